"""What is checked before a request is decoded: what cannot go together, ids, limits; and what needs no decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.constraints import tokens_given, tokens_needed
from glassformer.decode.lengths import generation_limits, translation_limits
from glassformer.decode.request import BeamTrace, Hypothesis, Request
from glassformer.decode.streaming import Decode
from glassformer.errors import ConfigError, UserError


def empty_answer(trace: bool) -> list[Hypothesis]:
    """The answer to an empty source."""
    return [Hypothesis([], 0.0, 0.0, [], "eos", trace=BeamTrace() if trace else None)]


def check_settings(config: DecodeConfig, request: Request, text: Decode | None) -> None:
    """Refuse in a sentence what cannot go together."""
    constraints = request.constraints
    if constraints.terms and config.temperature > 0:
        raise ConfigError("glossary terms need a search; set decode.temperature to 0")
    if constraints.terms and config.groups > 1:
        raise ConfigError("glossary terms and diverse n-best share out the beam in two ways; set decode.groups to 1")
    if constraints.stops and text is None:
        raise ValueError("stop strings need `text`, the function that turns ids into text")


def check_ids(model: Any, index: int, ids: Sequence[int]) -> None:
    """Refuse in a sentence ids that the model does not know, and more of them than it has positions for."""
    c, has_source = model.config, model.config.family == "transformer"
    vocab_size = (c.source_vocab_size or c.vocab_size) if has_source else c.vocab_size
    if (min(ids) < 0 or max(ids) >= vocab_size) and isinstance(getattr(model, "decoder", None), nn.Module):
        wrong = next(i for i in ids if not 0 <= i < vocab_size)
        raise ValueError(
            f"token id {wrong} is not in the vocabulary, whose ids run from 0 to {vocab_size - 1}; "
            "was the text encoded with another tokenizer?"
        )
    if has_source and c.positions == "learned" and len(ids) > c.block_size:
        raise UserError(
            "source {index} has {n_ids} tokens, and this model has learned positions for {block_size}; "
            "split it into sentences",
            index + 1,
            len(ids),
            c.block_size,
        )


def limits_for(model: ModelConfig, config: DecodeConfig, request: Request) -> tuple[int, int]:
    """The fewest and most new tokens of an answer: as the request or the settings say, enough for what it must contain, and no
    more than the model has learned positions for. What it must contain fits into a block, or into what was asked for."""
    if request.limits is not None:
        fewest, most = request.limits
    elif model.family == "transformer":
        fewest, most = translation_limits(config, len(request.ids))
    else:
        fewest, most = generation_limits(config, model.block_size)
    learned = model.family == "transformer" and model.positions == "learned"
    room = model.block_size if learned else max(model.block_size, most)
    constraints, needed = request.constraints, 0
    if constraints:  # by what takes no time to count first: a term may be as long as a book
        needed = tokens_given(constraints)
        needed = tokens_needed(constraints) if needed < room else needed + 1
    if needed > room:
        raise UserError("what the answer must contain is longer than the {room} tokens this model can write", room)
    most = max(most, needed)
    if learned:
        most = min(most, model.block_size)
    return min(fewest, most), most
