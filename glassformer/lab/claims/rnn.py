"""Is an RNN serial and forgetful, and what did attention add to it? LSTM without and with attention beside a Transformer."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from glassformer.lab.claims.claim import Budget, Measured, Results
from glassformer.lab.claims.recurrent_translator import RecurrentTranslator
from glassformer.lab.claims.training import (
    Letters,
    Strings,
    TrainArgs,
    dates,
    exact_match,
    parameters,
    summed_loss,
    train_on,
)
from glassformer.models import Transformer


def make(arm: str, vocabulary: int) -> nn.Module:
    """The model of an arm (transformer, LSTM, LSTM with attention), all at about the same number of parameters."""
    if arm == "transformer":
        return Transformer(
            n_layer=2, n_head=4, n_embd=64, n_hidden=192, vocab_size=vocabulary, block_size=72, dropout=0.0
        )
    return RecurrentTranslator(vocabulary, 128 if arm == "lstm" else 124, attends=arm != "lstm")


def gradient_over_time(model: nn.Module, length: int, seed: int) -> list[float]:
    """How much the score of the first target token depends on each source token: the size of that gradient."""
    task = Letters("copy", length, length)
    pairs = task.batch(16, torch.Generator().manual_seed(seed))
    kept: list[torch.Tensor] = []
    table = model.embedding if isinstance(model, RecurrentTranslator) else model.source_table  # type: ignore[union-attr]

    def keep(_: nn.Module, __: object, out: torch.Tensor) -> torch.Tensor:
        if not kept:
            out.retain_grad()
            kept.append(out)
        return out

    handle = table.register_forward_hook(keep)  # type: ignore[union-attr, arg-type]
    try:
        scores = model(pairs.source, pairs.target, pairs.source_lengths, pairs.target_lengths)[:, 0]
        scores.logsumexp(-1).sum().backward()
    finally:
        handle.remove()
    assert kept[0].grad is not None
    return kept[0].grad.norm(dim=-1).mean(0).tolist()  # type: ignore[no-any-return]


def trial(budget: Budget, task: str, length: int, arm: str, seed: int) -> Measured:
    """Train, count right answers, time a step, and see how far back the gradient reaches before training."""
    data: Letters | Strings = (
        Letters("copy", max(2, length // 2), length) if task == "copy" else dates(budget.steps(20_000))
    )
    model = make(arm, data.vocabulary)
    found: Measured = {"parameters": parameters(model)}
    if task == "copy":
        found["reach"] = gradient_over_time(model, length, seed)
        model.zero_grad()
    losses = train_on(model, data, TrainArgs(budget.steps(900)), seed)
    pairs = data.batch(64, torch.Generator().manual_seed(7))
    began = time.perf_counter()
    for _ in range(5):
        summed_loss(model, pairs).backward()
    found |= {
        "accuracy": exact_match(model, data.test()),
        "loss": sum(losses[-20:]) / len(losses[-20:]),
        "step": (time.perf_counter() - began) / 5,
    }
    return found


def reach_lines(results: Results, **case: Any) -> dict[str, Any]:
    """The gradient of the first answer to each source token, as a share of the largest."""
    names = {"lstm": "LSTM", "lstm+attention": "LSTM with attention", "transformer": "Transformer"}
    lines = {name: results.curves("reach", arm=arm, **case) for arm, name in names.items()}
    return {name: (xs, [[v / max(own) for v in own] for own in seeds]) for name, (xs, seeds) in lines.items()}
