"""A kernel for the encoder: the words of a source see each other, all of them in one tile.

torch's attention sets up its blocks for sentences far longer than these. What is computed is `attend` of ops/torch.py where
nothing but padding is hidden.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.decode.ops.attention_kernels import shape_of
from glassformer.decode.ops.kernel_start import launch_options, wait_for_previous

MOST_BYTES = 128  # of a column of words, for `attend_rows`: more take long to compile, and more memory than a block has


class RowPointers(NamedTuple):
    """q, k (n, H, W, D) and v (n, H, W, Dv) with strides in common; bias (n, W); out (n W, H Dv)."""

    q: Any
    k: Any
    v: Any
    bias: Any
    out: Any


class RowStrides(NamedTuple):
    """From sentence to sentence, head to head and word to word of q, k and v; the head of v; the width of a sentence."""

    slot: Any
    head: Any
    word: Any
    value_head: Any
    width: Any
    bias: Any


@triton.jit
def rows_kernel(
    at, strides, scale, SHAPE: tl.constexpr, BLOCK_W: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr
):
    """out[n, w, h] = softmax(q[n, h, w] . k[n, h] scale + bias[n]) v[n, h]: every word sees every other of its sentence.

    Grid (H, n); a program takes a head of a sentence, all W <= BLOCK_W words of it."""
    HEADS: tl.constexpr = SHAPE[0]
    D: tl.constexpr = SHAPE[2]
    DV: tl.constexpr = SHAPE[3]
    BLOCK_D: tl.constexpr = SHAPE[4]
    BLOCK_DV: tl.constexpr = SHAPE[5]
    wait_for_previous(EARLY)
    head, slot = tl.program_id(0), tl.program_id(1).to(tl.int64)
    t, d, dv = tl.arange(0, BLOCK_W), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    in_t, in_d, in_dv = t < strides.width, d < D, dv < DV
    word = slot * strides.slot + t * strides.word
    q = tl.load(at.q + word[:, None] + head * strides.head + d[None, :], mask=in_t[:, None] & in_d[None, :], other=0.0)
    k = tl.load(at.k + word[None, :] + head * strides.head + d[:, None], mask=in_t[None, :] & in_d[:, None], other=0.0)
    v = tl.load(
        at.v + word[:, None] + head * strides.value_head + dv[None, :], mask=in_t[:, None] & in_dv[None, :], other=0.0
    )
    seen = tl.load(at.bias + slot * strides.bias + t, mask=in_t, other=float("-inf")).to(tl.float32)
    score = tl.dot(q, k, input_precision=PRECISION) * scale + seen[None, :]
    highest = tl.max(score, axis=1)
    weight = tl.exp(score - tl.where(highest == float("-inf"), 0.0, highest)[:, None])
    share = tl.sum(weight, axis=1)
    found = tl.dot(weight.to(v.dtype), v, input_precision=PRECISION) / tl.where(share == 0.0, 1.0, share)[:, None]
    out = at.out + (slot * strides.width + t)[:, None] * (HEADS * DV) + head * DV + dv[None, :]
    tl.store(out, found.to(at.out.dtype.element_ty), mask=in_t[:, None] & in_dv[None, :])


def suits_rows(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """May `attend_rows` take these? They lie as one product has left them, side by side, and fit one tile."""
    return (
        q.shape[:3] == k.shape[:3] == v.shape[:3]
        and q.size(2) * q.element_size() <= MOST_BYTES
        and q.stride() == k.stride()
        and v.stride(0) == q.stride(0)
        and v.stride(2) == q.stride(2)
        and q.stride(3) == v.stride(3) == 1
    )


def attend_rows(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, scale: float | None) -> Tensor:
    """What the heads of every word find among the words of its sentence. q, k (n, H, W, D) and v (n, H, W, Dv) as `suits_rows`
    has them; bias (n, W), -inf at the padding."""
    slots, heads, width, _ = q.shape
    shape = shape_of(heads, k, v, least=16)
    out = torch.empty(slots * width, heads * shape.dv, dtype=q.dtype, device=q.device)
    block = max(16, triton.next_power_of_2(width))
    strides = RowStrides(q.stride(0), q.stride(1), q.stride(2), v.stride(1), width, bias.stride(0))
    rows_kernel[(heads, slots)](
        RowPointers(q, k, v, bias, out), strides, 1.0 / math.sqrt(shape.d) if scale is None else scale,
        tuple(shape), block, "ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=2 if block <= 32 else 4, **launch_options(),
    )  # fmt: skip
    return out
