"""The distribution of the next token after a prefix of the answer: what a search chooses from and a sampler draws from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from glassformer.decode import TokenConstraints
from glassformer.errors import UserError
from glassformer.inspection.model_input import make_answer_input, make_prompt_input, read_text, with_special_tokens
from glassformer.inspection.packing import packed
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import Rows
from glassformer.probe.cutting import ablate
from glassformer.tasks import TextModel, decode_settings
from glassformer.tasks.generate import prompt_ids

TOP = 20  # tokens that are named


@torch.no_grad()
def next_token_data(model: TextModel, text: str, prefix: Sequence[int] = (), cut: Sequence[str] = ()) -> dict[str, Any]:
    """The log-probabilities of every token that may follow `prefix` (ids of the answer), highest first, and the names of the
    first TOP. Temperature, top-k and top-p keep the order, so a page can apply them by itself."""
    if model.kind not in ("transformer", "gpt", "gpt on pairs"):
        raise UserError("this run writes no text, so there is no next token to choose")
    net, settings = model.model, decode_settings(model)
    TokenConstraints(prefix=tuple(prefix)).check(net.config.vocab_size, model.special_tokens)
    if model.kind == "gpt":
        read_text(model.tokenizers.target, text, "the text")
        asked = make_prompt_input(model, prompt_ids(model, text), list(prefix), [])
    else:
        asked = make_answer_input(model, with_special_tokens(model, text, None)[0], list(prefix), False, [])
    if len(asked.row) > net.config.block_size:
        raise UserError("the answer is as long as this model's block; nothing can follow it")
    rows = [Rows.whole(torch.tensor([ids], device=model.device)) for ids in (asked.source, asked.row) if ids]
    with ablate(net, cut), eval_mode(net):
        logprobs = net(*rows)[0, -1].cpu().double().log_softmax(-1)
    logprobs[list(model.special_tokens.banned(settings.allow_unknown))] = -math.inf
    values, order = logprobs.sort(descending=True, stable=True)
    values = values[values > -math.inf]
    ids = order[: min(TOP, len(values))].tolist()
    return {
        "ids": ids,
        "pieces": model.tokenizers.target.pieces(ids),
        "prefix": model.tokenizers.target.pieces(list(prefix)),
        "ends": list(model.special_tokens.ends),
        "logprobs": packed(values.numpy(), "float32"),
        "settings": {"temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p},
    }
