"""Which next tokens are allowed: small pure functions on log-probabilities.

Each takes `scores` (a row for each hypothesis, a column for each word) and gives new ones. A token that is out is -inf; a
token that stays keeps its value, so a sum of what was chosen is still the model's own log-probability. Two functions do
change values: the repetition penalty and the temperature. Both work on log-probabilities, not on raw logits: a logit has
no zero of its own (adding a constant to all of them changes nothing), so scaling one by itself would mean nothing.

Tokens of equal probability share one fate in `top_k`, `top_p` and `min_p`: the set that stays depends on the
probabilities alone, never on the order of the vocabulary.

`history` is what a row has read and written so far, padded on the left with -1. The module does not know what a sentence,
a beam or a model is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

ROUNDING = 1e-6  # a float32 log-softmax is not sure of its last digits; nothing is excluded for less than this


def ban_sequences(
    scores: Float[Tensor, "R V"], history: Int[Tensor, "R T"], sequences: Sequence[Sequence[int]]
) -> Float[Tensor, "R V"]:
    """None of the sequences is ever completed. One of a single token is never written at all."""
    out = scores.clone()
    for sequence in sequences:
        *before, last = sequence
        if len(before) > history.size(1):
            continue
        tail = history[:, history.size(1) - len(before) :]
        complete = (tail == torch.tensor(before, dtype=tail.dtype, device=tail.device)).all(dim=1)
        out[:, last] = out[:, last].masked_fill(complete, -math.inf)
    return out


def no_repeat_ngram(scores: Float[Tensor, "R V"], history: Int[Tensor, "R T"], n: int) -> Float[Tensor, "R V"]:
    """No n tokens in a row occur twice."""
    rows, length = history.shape
    if n < 1 or length < n:
        return scores
    windows = history.unfold(1, n, 1)
    tail = history[:, length - n + 1 :]
    repeats = (windows[:, :, :-1] == tail[:, None]).all(-1) & (windows >= 0).all(-1)
    # Column V takes the bans that are none.
    banned = windows[:, :, -1].masked_fill(~repeats, scores.size(1))
    mask = torch.zeros(rows, scores.size(1) + 1, dtype=torch.bool, device=scores.device)
    return scores.masked_fill(mask.scatter(1, banned, True)[:, :-1], -math.inf)


def repetition_penalty(
    scores: Float[Tensor, "R V"], history: Int[Tensor, "R T"], penalty: float
) -> Float[Tensor, "R V"]:
    """p becomes p^penalty for every token that has occurred (Keskar et al. 2019, on log-probabilities)."""
    if penalty == 1.0:
        return scores
    vocabulary = scores.size(1)
    seen = torch.zeros(scores.size(0), vocabulary + 1, dtype=torch.bool, device=scores.device)
    seen = seen.scatter(1, history.masked_fill(history < 0, vocabulary), True)[:, :-1]
    return torch.where(seen, scores * penalty, scores)


def force(scores: Float[Tensor, "R V"], tokens: Int[Tensor, "R"]) -> Float[Tensor, "R V"]:
    """Rows whose token is not negative may write it alone."""
    columns = torch.arange(scores.size(1), device=scores.device)
    other = (tokens[:, None] >= 0) & (columns != tokens[:, None])
    return scores.masked_fill(other, -math.inf)


def temperature(scores: Float[Tensor, "R V"], value: float) -> Float[Tensor, "R V"]:
    """Log-probabilities of scores divided by `value`: above 1 flatter, below 1 steeper."""
    return (scores / value).log_softmax(-1)


def top_k(scores: Float[Tensor, "R V"], k: int) -> Float[Tensor, "R V"]:
    """The k most probable tokens, and whatever is as probable as the last of them."""
    floor = scores.topk(min(k, scores.size(1))).values[:, -1:]
    return scores.masked_fill(scores < floor, -math.inf)


def top_p(scores: Float[Tensor, "R V"], p: float) -> Float[Tensor, "R V"]:
    """The most probable tokens that together reach the probability p, as few as possible (Holtzman et al. 2020)."""
    if p >= 1:
        return scores
    ordered = scores.double().softmax(-1).sort(-1, descending=True)
    reached_before = ordered.values.cumsum(-1) - ordered.values
    kept = (reached_before < p - ROUNDING).sum(-1, keepdim=True).clamp(min=1)
    floor = scores.gather(1, ordered.indices.gather(1, kept - 1))
    return scores.masked_fill(scores < floor, -math.inf)


def min_p(scores: Float[Tensor, "R V"], fraction: float) -> Float[Tensor, "R V"]:
    """Tokens at least `fraction` times as probable as the most probable one (Nguyen et al. 2024)."""
    if fraction <= 0:
        return scores
    floor = scores.amax(-1, keepdim=True) + (math.log(fraction) - ROUNDING)
    return scores.masked_fill(scores < floor, -math.inf)
