"""Which of the allowed tokens is taken: the best one, or a draw.

A draw uses no generator that others advance. The number behind it is a function of the seed, of the text being continued,
of the number of the sample and of the step (Philox 4x32-10; Salmon et al. 2011, "Parallel random numbers: as easy as
1, 2, 3"). So a sample can be repeated whatever else is in the batch, in whatever order, on whatever device. NumPy's Philox draws
one stream after the other, from a generator each; here thousands of streams are asked for a few numbers at once, so its ten
rounds are written out on arrays.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode import filters

LOW_32 = np.uint64(0xFFFFFFFF)
SHIFT_32 = np.uint64(32)
BLOCK_V = 64
ARGMAX_ROWS = 8  # of which the largest is found sooner by looking at each score once


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
    scores = filters.temperature(scores, config.temperature)
    if config.top_k is not None:
        scores = filters.top_k(scores, config.top_k)
    if config.top_p is not None:
        scores = filters.top_p(scores, config.top_p)
    if config.min_p is not None:
        scores = filters.min_p(scores, config.min_p)
    return scores


def sample(scores: Float[Tensor, "R V"], uniform: Float[Tensor, "R"]) -> Int[Tensor, "R"]:
    """The token at which the cumulative probability passes `uniform`; never one that was filtered out."""
    total = scores.double().softmax(-1).cumsum(-1)
    # Scaled by the last sum, which rounding keeps from being exactly 1.
    threshold = uniform.to(total)[:, None] * total[:, -1:]
    last = (total < total[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum(torch.searchsorted(total, threshold, right=True), last).squeeze(1)
