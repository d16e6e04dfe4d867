"""Which next tokens are allowed, and which of them is taken: small pure functions on log-probabilities.

Each takes `scores` (a row for each hypothesis, a column for each word) and gives new ones. A token that is out is -inf; a
token that stays keeps its value, so a sum of what was chosen is still the model's own log-probability. Two functions do
change values: the repetition penalty and the temperature. Both work on log-probabilities, not on raw logits: a logit has
no zero of its own (adding a constant to all of them changes nothing), so scaling one by itself would mean nothing.

Tokens of equal probability share one fate in `top_k`, `top_p` and `min_p`: the set that stays depends on the
probabilities alone, never on the order of the vocabulary.

`history` is what a row has read and written so far, padded on the left with -1. The module does not know what a sentence,
a beam or a model is.

A draw uses no generator that others advance. The number behind it is a function of the seed, of the text being continued,
of the number of the sample and of the step (Philox 4x32-10; Salmon et al. 2011, "Parallel random numbers: as easy as
1, 2, 3"). So a sample can be repeated whatever else is in the batch, in whatever order, on whatever device. NumPy's Philox draws
one stream after the other, from a generator each; here thousands of streams are asked for a few numbers at once, so its ten
rounds are written out on arrays.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig

ROUNDING = 1e-6  # a float32 log-softmax is not sure of its last digits; nothing is excluded for less than this
LOW_32 = np.uint64(0xFFFFFFFF)
SHIFT_32 = np.uint64(32)
BLOCK_V = 64
ARGMAX_ROWS = 8  # of which the largest is found sooner by looking at each score once


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


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Ten rounds on counters of four 32-bit words (..., 4); the result has their shape and is as good as random."""
    a, b, c, d = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    for _ in range(10):
        left = np.uint64(0xD2511F53) * a
        right = np.uint64(0xCD9E8D57) * c
        a, b, c, d = (
            (right >> SHIFT_32) ^ b ^ np.uint64(k0),
            right & LOW_32,
            (left >> SHIFT_32) ^ d ^ np.uint64(k1),
            left & LOW_32,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([a, b, c, d], axis=-1)


def hash_ids(ids: Sequence[int]) -> int:
    """32 bits that stand for a text, so that two texts of a batch do not get the same random numbers."""
    return zlib.crc32(np.asarray(ids, dtype=np.int64).tobytes())


def uniforms(seed: int, texts: Sequence[int], samples: Sequence[int], steps: int) -> Float[Tensor, "R steps"]:
    """Numbers in [0, 1), of 53 bits, for the first `steps` tokens of each row: sample samples[i] of the text texts[i]."""
    counter = np.zeros((len(texts), steps, 4), dtype=np.uint64)
    counter[:, :, 0] = np.arange(steps)
    counter[:, :, 1] = np.asarray(samples)[:, None]
    counter[:, :, 2] = np.asarray(texts)[:, None]
    words = philox(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    bits = (words[:, :, 0] << np.uint64(21)) | (words[:, :, 1] >> np.uint64(11))
    return torch.from_numpy(bits.astype(np.float64) * 2.0**-53)


def topk(scores: Float[Tensor, "R V"], k: int) -> tuple[Float[Tensor, "R k"], Int[Tensor, "R k"]]:
    """scores.topk(k), for vocabularies: the k best tokens are in the k blocks with the highest maxima, and finding those
    is much faster than sorting; of a few rows the largest alone is found sooner by looking at each score once.
    Which of several equal tokens comes first is left open, as it is in topk."""
    if k == 1 and scores.size(0) <= ARGMAX_ROWS:
        value, token = scores.max(-1, keepdim=True)
        return value, token
    vocabulary = scores.size(1)
    blocks = vocabulary // BLOCK_V
    if blocks < 8 * k:
        value, token = scores.topk(k)
        return value, token
    whole = blocks * BLOCK_V
    parted = scores[:, :whole].unflatten(1, (blocks, BLOCK_V))
    highest = parted.amax(-1).topk(k).indices
    values = parted.gather(1, highest[:, :, None].expand(-1, -1, BLOCK_V)).flatten(1)
    value, place = torch.cat([values, scores[:, whole:]], dim=1).topk(k)
    inside = highest.gather(1, (place // BLOCK_V).clamp(max=k - 1)) * BLOCK_V + place % BLOCK_V
    return value, torch.where(place < k * BLOCK_V, inside, place + (whole - k * BLOCK_V))


def warp(scores: Float[Tensor, "R V"], config: DecodeConfig) -> Float[Tensor, "R V"]:
    """The distribution that is sampled from: temperature, top-k, top-p, min-p (the logits warpers of Hugging Face)."""
    scores = temperature(scores, config.temperature)
    if config.top_k is not None:
        scores = top_k(scores, config.top_k)
    if config.top_p is not None:
        scores = top_p(scores, config.top_p)
    if config.min_p is not None:
        scores = min_p(scores, config.min_p)
    return scores


def sample(scores: Float[Tensor, "R V"], uniform: Float[Tensor, "R"]) -> Int[Tensor, "R"]:
    """The token at which the cumulative probability passes `uniform`; never one that was filtered out."""
    total = scores.double().softmax(-1).cumsum(-1)
    # Scaled by the last sum, which rounding keeps from being exactly 1.
    threshold = uniform.to(total)[:, None] * total[:, -1:]
    last = (total < total[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum(torch.searchsorted(total, threshold, right=True), last).squeeze(1)
