"""Answers read straight off a model, token by token: what the API is held to."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, CONTROL, EOS


def chosen(logits: torch.Tensor) -> int:
    """The likeliest token that may be written."""
    scores = logits.clone()
    scores[[i for i in range(CONTROL) if i != EOS]] = -torch.inf
    return int(scores.argmax())


@torch.no_grad()
def greedy_by_hand(model: Any, source: str, most: int) -> str:
    """Everything read again for each token, straight through the model."""
    ids = [*model.tokenizers.source.encode(source), EOS]
    written: list[int] = []
    while len(written) < most:
        logits = model.model(Rows.from_lists([ids]), Rows.from_lists([[BOS, *written]]))
        token = chosen(logits[0, -1])
        if token == EOS:
            break
        written.append(token)
    return model.tokenizers.target.decode(written)


@torch.no_grad()
def continued_by_hand(model: Any, prompt: list[int], most: int) -> str:
    written: list[int] = []
    while len(written) < most:
        token = chosen(model.model(Rows.from_lists([[*prompt, *written]]))[0, -1])
        if token == EOS:
            break
        written.append(token)
    return model.tokenizers.target.decode(written)
