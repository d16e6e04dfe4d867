"""A kernel for the encoder: the tokens of a source attend to each other, all of them in one tile.

torch's attention sets up its blocks for sentences far longer than these. What is computed is `attend` of operations.py where
nothing but padding is masked.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.accel.decoding.attention_kernels import shape_of
from glassformer.accel.decoding.kernel_start import launch_options, wait_for_previous

MAX_COLUMN_BYTES = (
    128  # of a column of q (W numbers): wider sources take long to compile, and more memory than a block has
)


class SourcePointers(NamedTuple):
    """q, k (n, H, W, D) and v (n, H, W, Dv) with strides in common; bias (n, W); out (n W, H Dv)."""

    q: Any
    k: Any
    v: Any
    bias: Any
    out: Any


class SourceStrides(NamedTuple):
    """In elements: from sentence to sentence, head to head and token to token of q, k and v; from head to head of v; the
    width W; from sentence to sentence of the bias."""

    slot: Any
    head: Any
    token: Any
    value_head: Any
    width: Any
    bias: Any


@triton.jit
def source_attention_kernel(
    ptr, strides, scale, SHAPE: tl.constexpr, BLOCK_W: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr
):
    """out[n, w, h] = softmax(q[n, h, w] . k[n, h] scale + bias[n]) v[n, h]: every token attends to its whole sentence.

    Grid (H, n); a program takes a head of a sentence, all W <= BLOCK_W tokens of it as one tile. Memory: SourcePointers,
    strided but for the last dimension; SHAPE is an AttentionShape."""
    HEADS: tl.constexpr = SHAPE[0]
    D: tl.constexpr = SHAPE[2]
    DV: tl.constexpr = SHAPE[3]
    BLOCK_D: tl.constexpr = SHAPE[4]
    BLOCK_DV: tl.constexpr = SHAPE[5]
    wait_for_previous(PDL)
    head, slot = tl.program_id(0), tl.program_id(1).to(tl.int64)
    t, d, dv = tl.arange(0, BLOCK_W), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    in_t, in_d, in_dv = t < strides.width, d < D, dv < DV
    row_offset = slot * strides.slot + t * strides.token
    q = tl.load(
        ptr.q + row_offset[:, None] + head * strides.head + d[None, :], mask=in_t[:, None] & in_d[None, :], other=0.0
    )
    k = tl.load(
        ptr.k + row_offset[None, :] + head * strides.head + d[:, None], mask=in_t[None, :] & in_d[:, None], other=0.0
    )
    v = tl.load(
        ptr.v + row_offset[:, None] + head * strides.value_head + dv[None, :],
        mask=in_t[:, None] & in_dv[None, :],
        other=0.0,
    )
    bias = tl.load(ptr.bias + slot * strides.bias + t, mask=in_t, other=float("-inf")).to(tl.float32)
    score = tl.dot(q, k, input_precision=PRECISION) * scale + bias[None, :]
    row_max = tl.max(score, axis=1)
    p = tl.exp(score - tl.where(row_max == float("-inf"), 0.0, row_max)[:, None])
    row_sum = tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, input_precision=PRECISION) / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    out = ptr.out + (slot * strides.width + t)[:, None] * (HEADS * DV) + head * DV + dv[None, :]
    tl.store(out, acc.to(ptr.out.dtype.element_ty), mask=in_t[:, None] & in_dv[None, :])


def supports_source_attention(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Can `source_attention` take these? They must lie as one product has left them, side by side, and fit one tile."""
    return (
        q.shape[:3] == k.shape[:3] == v.shape[:3]
        and q.size(2) * q.element_size() <= MAX_COLUMN_BYTES
        and q.stride() == k.stride()
        and v.stride(0) == q.stride(0)
        and v.stride(2) == q.stride(2)
        and q.stride(3) == v.stride(3) == 1
    )


def source_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, scale: float | None) -> Tensor:
    """Attention of every token to the tokens of its own sentence, (n W, H Dv). q, k (n, H, W, D) and v (n, H, W, Dv) as
    `supports_source_attention` has them; bias (n, W), -inf at the padding."""
    slots, heads, width, _ = q.shape
    shape = shape_of(heads, k, v, least=16)
    out = torch.empty(slots * width, heads * shape.dv, dtype=q.dtype, device=q.device)
    block = max(16, triton.next_power_of_2(width))
    strides = SourceStrides(q.stride(0), q.stride(1), q.stride(2), v.stride(1), width, bias.stride(0))
    source_attention_kernel[(heads, slots)](
        SourcePointers(q, k, v, bias, out), strides, 1.0 / math.sqrt(shape.d) if scale is None else scale,
        tuple(shape), block, "ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=2 if block <= 32 else 4, **launch_options(),
    )  # fmt: skip
    return out
