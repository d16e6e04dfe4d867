"""Hypotheses of different lengths: how long they may be, how they are compared, and when comparing is over.

A hypothesis is a sum of log-probabilities, which only falls; left alone it prefers the shortest text. The length rules
divide it by a power of the length:

    gnmt           ((5 + |y|) / 6)^alpha        Wu et al. 2016; |y| counts EOS, as in the paper's own code
    power          |y|^alpha                    |y| counts EOS
    power-no-eos   |y|^alpha                    |y| does not (an empty text counts as one token)

alpha 0 compares sums, 1 (power) means, below 0 prefers the short all the more. A hypothesis that was cut at the length
limit ranks behind every one that ended by itself: it is no finished sentence.

The stop rules. `first-k`: as soon as the beam's width of hypotheses has ended. `exact`: as soon as no hypothesis still
being written can get among the n best, so running on would return nothing better. What one can still reach follows from
its sum, which can only fall, and the lengths at which it may end; the divisor is monotone in the length, so only the
shortest and the longest of them need to be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.config import DecodeConfig


@dataclass(frozen=True)
class LengthRule:
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
        return total / self.divisor(length, ended)

    def best_possible(self, total: float, shortest: int, longest: int) -> float:
        """The best score that a sum can still lead to, if it ends with EOS after `shortest` to `longest` tokens."""
        if shortest > longest:
            return -math.inf
        return max(self.score(total, shortest, True), self.score(total, longest, True))


def length_rule(config: DecodeConfig) -> LengthRule:
    return LengthRule(config.length_rule, config.alpha)


def is_settled(
    config: DecodeConfig,
    ended: Sequence[float],
    best_total: float,
    *,
    wanted: int,
    width: int,
    written: int,
    minimum: int,
    limit: int,
) -> bool:
    """May the search of one sentence stop? `ended` are the scores of what has ended, in any order; `best_total` the
    highest sum of what is still being written, `written` its length in tokens. EOS may come after `minimum` tokens and
    counts towards `limit`."""
    if best_total == -math.inf:
        return True
    if config.stop_rule == "first-k":
        return len(ended) >= width
    if len(ended) < wanted:
        return False
    worst_wanted = sorted(ended, reverse=True)[wanted - 1]
    return length_rule(config).best_possible(best_total, max(written, minimum), limit - 1) <= worst_wanted


def translation_limits(config: DecodeConfig, source: int) -> tuple[int, int]:
    """Fewest and most new tokens for a source of so many tokens."""
    most = config.max_new_tokens
    if most is None:
        most = max(1, math.floor(config.max_ratio * source + config.max_extra))
    return min(most, max(config.min_new_tokens, math.ceil(config.min_ratio * source))), most


def generation_limits(config: DecodeConfig, block_size: int) -> tuple[int, int]:
    """Fewest and most new tokens after a prompt."""
    most = config.max_new_tokens or max(block_size, config.min_new_tokens)
    return config.min_new_tokens, most
