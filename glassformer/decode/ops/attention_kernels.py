"""Kernels for attention while decoding: the new keys and values into their columns, and attention over all columns.

One row a slot: a program takes a head of a slot (`attend_columns`). Beams of a sentence ask the same columns, so one program
reads them once for all, and only those that are some living beam's past (`attend_beams`; also for the source, where nothing is
appended). The words of a source among themselves are in source_kernels.py.

Queries, keys and values come in the weights' type, everything is summed in float32. What is computed is `attend`,
`self_attend` and `cross_attend` of ops/torch.py.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.decode.ops.kernel_start import launch_options, multiprocessors, wait_for_previous

ONE_TILE, SEVERAL_TILES = 64, 32  # columns that all beams of a head look at: so many at once, or so many at a time
MANY_BLOCK, MANY_WARPS = 64, 2  # columns at a time, and warps, where there are many slots


class AttentionPointers(NamedTuple):
    """qkv (R, (H + Hk) D + Hk Dv), or q (R, H D); key_cache (n, Hk, S, D); value_cache (n, Hk, S, Dv); bias (n, K or 1, S);
    columns (n,), the first that is new; out (R, H Dv)."""

    qkv: Any
    key_cache: Any
    value_cache: Any
    bias: Any
    columns: Any
    out: Any


class Strides(NamedTuple):
    """In elements: from row to row of qkv, and of keys, values and bias from slot to slot and so on."""

    row: Any
    key_slot: Any
    key_head: Any
    key_column: Any
    value_slot: Any
    value_head: Any
    value_column: Any
    bias_slot: Any
    bias_beam: Any


class Shape(NamedTuple):
    """Known when a kernel is compiled: heads and key heads, sizes of a key and a value, and these rounded up."""

    heads: int
    kv_heads: int
    d: int
    dv: int
    block_d: int
    block_dv: int


@triton.jit
def add_keys(q, ks, vs, seen, highest, share, found):
    """Attention of one query, some keys further: q (D,), ks (S, D), vs (S, Dv), and its running maximum, sum and mean."""
    score = tl.sum(ks.to(tl.float32) * q[None, :], axis=1) + seen
    higher = tl.maximum(highest, tl.max(score, axis=0))
    weight = tl.exp(score - higher)
    before = tl.exp(highest - higher)
    share = share * before + tl.sum(weight, axis=0)
    found = found * before + tl.sum(weight[:, None] * vs.to(tl.float32), axis=0)
    return higher, share, found


@triton.jit
def columns_kernel(
    at, strides, scale, n_keys, SHAPE: tl.constexpr, BLOCK_S: tl.constexpr, ONE: tl.constexpr, EARLY: tl.constexpr
):
    """out[r, h] = softmax(q[r, h] . keys[r, h / group, :n_keys] scale + bias[r]) values, the new key among them.

    Grid (H, n), one row a slot; a program takes a head of a slot, BLOCK_S columns at a time (ONE: all at once)."""
    HEADS: tl.constexpr = SHAPE[0]
    KV_HEADS: tl.constexpr = SHAPE[1]
    D: tl.constexpr = SHAPE[2]
    DV: tl.constexpr = SHAPE[3]
    BLOCK_D: tl.constexpr = SHAPE[4]
    BLOCK_DV: tl.constexpr = SHAPE[5]
    head, slot = tl.program_id(0), tl.program_id(1).to(tl.int64)
    kv = head // (HEADS // KV_HEADS)
    column = tl.load(at.columns + slot)
    d, dv = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    in_d, in_dv = d < D, dv < DV
    keys = at.key_cache + slot * strides.key_slot + kv * strides.key_head
    values = at.value_cache + slot * strides.value_slot + kv * strides.value_head
    bias = at.bias + slot * strides.bias_slot
    s = tl.arange(0, BLOCK_S)
    old = s < column
    ks = tl.load(keys + s[:, None] * strides.key_column + d[None, :], mask=old[:, None] & in_d[None, :], other=0.0)
    vs = tl.load(
        values + s[:, None] * strides.value_column + dv[None, :], mask=old[:, None] & in_dv[None, :], other=0.0
    )
    seen = tl.load(bias + s, mask=old, other=float("-inf")).to(tl.float32)
    wait_for_previous(EARLY)
    mine = at.qkv + slot * strides.row
    q = tl.load(mine + head * D + d, mask=in_d, other=0.0).to(tl.float32) * scale
    k = tl.load(mine + HEADS * D + kv * D + d, mask=in_d, other=0.0)
    v = tl.load(mine + (HEADS + KV_HEADS) * D + kv * DV + dv, mask=in_dv, other=0.0)
    tl.store(keys + column * strides.key_column + d, k, mask=in_d)
    tl.store(values + column * strides.value_column + dv, v, mask=in_dv)
    # The new token is taken from where it came, so nobody waits for the store.
    highest = tl.sum(q * k.to(tl.float32), axis=0)
    share = highest * 0.0 + 1.0
    found = v.to(tl.float32)
    highest, share, found = add_keys(q, ks, vs, seen, highest, share, found)
    if not ONE:
        start = (column * 0 + BLOCK_S).to(tl.int32)
        while start < column:
            t = start + tl.arange(0, BLOCK_S)
            in_t = t < column
            keys_mask, values_mask = in_t[:, None] & in_d[None, :], in_t[:, None] & in_dv[None, :]
            more_keys = tl.load(keys + t[:, None] * strides.key_column + d[None, :], mask=keys_mask, other=0.0)
            more_values = tl.load(values + t[:, None] * strides.value_column + dv[None, :], mask=values_mask, other=0.0)
            seen_more = tl.load(bias + t, mask=in_t, other=float("-inf")).to(tl.float32)
            highest, share, found = add_keys(q, more_keys, more_values, seen_more, highest, share, found)
            start += BLOCK_S
    out = at.out + slot * (HEADS * DV) + head * DV + dv
    tl.store(out, (found / share).to(at.out.dtype.element_ty), mask=in_dv)


def shape_of(heads: int, keys: Tensor, values: Tensor, least: int = 1) -> Shape:
    """The shape of an attention over keys (n, Hk, S, D) and values (n, Hk, S, Dv); tiles at least so wide."""
    rounded = (max(least, triton.next_power_of_2(t.size(3))) for t in (keys, values))
    return Shape(heads, keys.size(1), keys.size(3), values.size(3), *rounded)


def strides_of(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Strides:
    """How far apart things lie."""
    beam = 0 if bias.size(1) == 1 else bias.stride(1)
    (k0, k1, k2, _), (v0, v1, v2, _) = keys.stride(), values.stride()
    return Strides(q.stride(0), k0, k1, k2, v0, v1, v2, bias.stride(0), beam)


def attend_columns(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor,
    columns: Tensor,
    n_keys: int,
    *,
    heads: int,
    scale: float | None,
) -> Tensor:
    """One row a slot: the new keys and values of every slot into its column of `columns` (n,), and what its heads find in the
    first n_keys columns. qkv (n, (H + Hk) D + Hk Dv); keys (n, Hk, S, D); bias (n, 1, >= n_keys)."""
    rows = qkv.size(0)
    shape = shape_of(heads, keys, values)
    out = torch.empty(rows, heads * shape.dv, dtype=qkv.dtype, device=qkv.device)
    # Few programs wait for memory, many share it: a few take larger tiles.
    few = rows * heads <= multiprocessors()
    block = min(512 if few else MANY_BLOCK, max(16, triton.next_power_of_2(n_keys)))
    columns_kernel[(heads, rows)](
        AttentionPointers(qkv, keys, values, bias, columns, out), strides_of(qkv, keys, values, bias),
        1.0 / math.sqrt(shape.d) if scale is None else scale, n_keys, tuple(shape), block, n_keys <= block,
        num_warps=max(4, min(16, block // 32)) if few else MANY_WARPS, **launch_options(),
    )  # fmt: skip
    return out


@triton.jit
def add_keys_of_beams(q, ks, vs, seen, scale, highest, share, found, PRECISION: tl.constexpr):
    """Attention of all beams' queries, some keys further: q (K, D), ks (D, S), vs (S, Dv), seen (K, S)."""
    score = tl.dot(q, ks, input_precision=PRECISION) * scale + seen
    higher = tl.maximum(highest, tl.max(score, axis=1))
    level = tl.where(higher == float("-inf"), 0.0, higher)
    weight = tl.exp(score - level[:, None])
    before = tl.exp(highest - level)
    share = share * before + tl.sum(weight, axis=1)
    found = found * before[:, None] + tl.dot(weight.to(vs.dtype), vs, input_precision=PRECISION)
    return higher, share, found


@triton.jit
def beams_kernel(
    at, strides, scale, n_keys,
    SHAPE: tl.constexpr, BEAMS: tl.constexpr, BLOCK_S: tl.constexpr, HOW: tl.constexpr, PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """out[n, k, h] = softmax(q[n, k, h] . keys[n, h, :n_keys] scale + bias[n, k]) values, for all beams k of a slot at once.

    Grid (H, n). BEAMS is (how many, rounded up for a tile); HOW is (all columns in one tile, are there new keys to append).
    A column that is no beam's past is not read at all: a beam soon agrees on all but its last few words."""
    HEADS: tl.constexpr = SHAPE[0]
    D: tl.constexpr = SHAPE[2]
    DV: tl.constexpr = SHAPE[3]
    BLOCK_D: tl.constexpr = SHAPE[4]
    BLOCK_DV: tl.constexpr = SHAPE[5]
    N_BEAMS: tl.constexpr = BEAMS[0]
    BLOCK_K: tl.constexpr = BEAMS[1]
    ONE: tl.constexpr = HOW[0]
    NEW: tl.constexpr = HOW[1]
    head, slot = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, d, dv, s = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV), tl.arange(0, BLOCK_S)
    in_b, in_d, in_dv = b < N_BEAMS, d < D, dv < DV
    keys = at.key_cache + slot * strides.key_slot + head * strides.key_head
    values = at.value_cache + slot * strides.value_slot + head * strides.value_head
    bias = at.bias + slot * strides.bias_slot + b[:, None] * strides.bias_beam
    filled = n_keys
    if NEW:
        filled = tl.load(at.columns + slot).to(tl.int32)
    if ONE:
        in_s = (s < filled) & (s < n_keys)
        seen = tl.load(bias + s[None, :], mask=in_b[:, None] & in_s[None, :], other=float("-inf")).to(tl.float32)
        used = tl.max(seen, axis=0) > float("-inf")
        ks = tl.load(keys + s[None, :] * strides.key_column + d[:, None], mask=used[None, :] & in_d[:, None], other=0.0)
        vs = tl.load(
            values + s[:, None] * strides.value_column + dv[None, :], mask=used[:, None] & in_dv[None, :], other=0.0
        )
    wait_for_previous(EARLY)
    mine = at.qkv + (slot * N_BEAMS + b)[:, None] * strides.row
    of_q, of_v = in_b[:, None] & in_d[None, :], in_b[:, None] & in_dv[None, :]
    q = tl.load(mine + head * D + d[None, :], mask=of_q, other=0.0)
    if NEW:
        column = filled + b
        k = tl.load(mine + HEADS * D + head * D + d[None, :], mask=of_q, other=0.0)
        v = tl.load(mine + 2 * HEADS * D + head * DV + dv[None, :], mask=of_v, other=0.0)
        tl.store(keys + column[:, None] * strides.key_column + d[None, :], k, mask=of_q)
        tl.store(values + column[:, None] * strides.value_column + dv[None, :], v, mask=of_v)
        # Of the new columns each beam sees its own, and takes it from where it came.
        highest = tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1) * scale
        share = tl.full([BLOCK_K], 1.0, dtype=tl.float32)
        found = v.to(tl.float32)
    else:
        highest = tl.full([BLOCK_K], float("-inf"), dtype=tl.float32)
        share = tl.zeros([BLOCK_K], dtype=tl.float32)
        found = tl.zeros([BLOCK_K, BLOCK_DV], dtype=tl.float32)
    if ONE:
        highest, share, found = add_keys_of_beams(q, ks, vs, seen, scale, highest, share, found, PRECISION)
    else:
        start = filled * 0
        while start < filled:
            t = start + tl.arange(0, BLOCK_S)
            seen = tl.load(bias + t[None, :], mask=in_b[:, None] & (t < filled)[None, :], other=float("-inf")).to(
                tl.float32
            )
            used = tl.max(seen, axis=0) > float("-inf")
            of_k, of_vs = used[None, :] & in_d[:, None], used[:, None] & in_dv[None, :]
            ks = tl.load(keys + t[None, :] * strides.key_column + d[:, None], mask=of_k, other=0.0)
            vs = tl.load(values + t[:, None] * strides.value_column + dv[None, :], mask=of_vs, other=0.0)
            highest, share, found = add_keys_of_beams(q, ks, vs, seen, scale, highest, share, found, PRECISION)
            start += BLOCK_S
    found = found / tl.where(share == 0.0, 1.0, share)[:, None]
    out = at.out + (slot * N_BEAMS + b)[:, None] * (HEADS * DV) + head * DV + dv[None, :]
    tl.store(out, found.to(at.out.dtype.element_ty), mask=of_v)


def attend_beams(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor,
    n_keys: int,
    *,
    beams: int,
    scale: float | None,
    columns: Tensor | None = None,
) -> Tensor:
    """What the heads of all beams find in the first n_keys columns of their slot. With `columns` (n,), q is (n K, 2 H D + H
    Dv), and its keys and values are first entered in the columns from there on; without, q is (n K, H D). keys (n, H, S, D), in
    whatever order but for the last; bias (n, K or 1, >= n_keys)."""
    slots, heads = keys.shape[:2]
    shape = shape_of(heads, keys, values, least=16)
    out = torch.empty(slots * beams, heads * shape.dv, dtype=q.dtype, device=q.device)
    # The fewer registers a program holds, the more of them wait for memory at the same time.
    block = max(16, triton.next_power_of_2(n_keys)) if n_keys <= ONE_TILE else SEVERAL_TILES
    beams_kernel[(heads, slots)](
        AttentionPointers(q, keys, values, bias, q if columns is None else columns, out), strides_of(q, keys, values, bias),
        1.0 / math.sqrt(shape.d) if scale is None else scale, n_keys,
        tuple(shape), (beams, max(16, triton.next_power_of_2(beams))), block, (n_keys <= block, columns is not None),
        "ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=max(1, shape.block_d * block // 4096) if q.element_size() == 2 else 4, num_stages=1, **launch_options(),
    )  # fmt: skip
    return out
