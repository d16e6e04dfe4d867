"""Hypotheses of different lengths: how long they may be, how they are compared, and when comparing is over.

A hypothesis is a sum of log-probabilities, which only falls; left alone it prefers the shortest text. The length rules
divide it by a power of the length:

    gnmt           ((5 + |y|) / 6)^alpha        Wu et al. 2016; |y| counts EOS, as in the paper's own code
    power          |y|^alpha                    |y| counts EOS
    power-no-eos   |y|^alpha                    |y| does not (an empty text counts as one token)

alpha 0 compares sums, 1 (power) means, below 0 prefers the short all the more. A hypothesis that was cut at the length
limit ranks behind every one that ended by itself: it is no finished sentence.

The stop rules. `first-k`: as soon as the beam's width of hypotheses has ended. `best-now`: as soon as so many have ended and
the best of those still being written, divided by its present length, ranks behind all of them: what transformers does by
`early_stopping=False`, its default; a longer text might still have won. `exact`: as soon as no hypothesis still
being written can get among the n best, so running on would return nothing better. What one can still reach follows from
its sum, which can only fall, and the lengths at which it may end; the divisor is monotone in the length, so only the
shortest and the longest of them need to be looked at; where a stop string may end a text, its lengths count as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.constraints import tokens_given, tokens_needed
from glassformer.decode.request import Request
from glassformer.errors import UserError


@dataclass(frozen=True)
class LengthRule:
    """How a sum of log-probabilities is divided by the length of its text, so that long and short ones compare."""

    name: str
    alpha: float

    def divisor(self, length: int, ended: bool) -> float:
        """`length` counts tokens without EOS; `ended` says there is an EOS."""
        counted = length + ended
        if self.name == "gnmt":
            return ((5 + counted) / 6) ** self.alpha
        if self.name == "power":
            return max(1, counted) ** self.alpha
        return max(1, length) ** self.alpha

    def score(self, total: float, length: int, ended: bool) -> float:
        """What a hypothesis is ranked by."""
        return total / self.divisor(length, ended)


def length_rule(config: DecodeConfig) -> LengthRule:
    """The rule that the settings ask for."""
    return LengthRule(config.length_rule, config.alpha)


def best_reachable(
    divisors: Float[Tensor, "2 L"],
    best: Float[Tensor, "n"],
    written: Int[Tensor, "n"],
    minimum: Int[Tensor, "n"],
    limit: Int[Tensor, "n"],
    has_stops: Bool[Tensor, "n"],
) -> Float[Tensor, "n"]:
    """The best score that `best`, the highest sum of what a slot is still writing, can lead to. EOS may come after `minimum`
    tokens and counts towards `limit`. A text may also end with a stop string, which has no EOS and may come with the next token
    or any other up to the limit."""
    last = divisors.size(1) - 1

    def reachable(ended: int, shortest: Tensor, longest: Tensor) -> Tensor:
        # The divisor is monotone in the length, so one of the two ends has the best.
        ends = (divisors[ended][length.clamp(0, last)] for length in (shortest, longest))
        low, high = (best / divisor for divisor in ends)
        return torch.maximum(low, high).masked_fill(shortest > longest, -math.inf)

    by_eos = reachable(1, torch.maximum(written, minimum), limit - 1)
    by_stop = reachable(0, written + 1, limit).masked_fill(~has_stops, -math.inf)
    return torch.maximum(by_eos, by_stop)


def translation_limits(config: DecodeConfig, source: int) -> tuple[int, int]:
    """The fewest and most new tokens for a source of `source` tokens."""
    most = config.max_new_tokens
    if most is None:
        most = max(1, math.floor(config.max_ratio * source + config.max_extra))
    return min(most, max(config.min_new_tokens, math.ceil(config.min_ratio * source))), most


def generation_limits(config: DecodeConfig, block_size: int) -> tuple[int, int]:
    """The fewest and most new tokens after a prompt."""
    most = config.max_new_tokens or max(block_size, config.min_new_tokens)
    return config.min_new_tokens, most


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
