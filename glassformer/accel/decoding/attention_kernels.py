"""Kernels for attention on the cache while decoding: append the new keys and values to their columns, then attend to all.

One row a slot: a program takes a head of a slot (`decode_attention`). Beams of a sentence attend to the same columns, so one
program reads them once for all, and only those that are an ancestor of some living beam (`beam_attention`; also for
cross-attention, where nothing is appended). A source's attention to itself is in source_kernels.py.

Both run an online softmax (Milakov and Gimelshein 2018; as in FlashAttention, Dao et al. 2022), tile after tile of keys: m_i is
the running maximum of the scores, l_i the running sum of exp(score - m_i), acc the running sum of exp(score - m_i) value. The
result is acc / l_i. Queries, keys and values come in the weights' type, sums are float32. What is computed is `self_attend` and
`cross_attend` of operations.py.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.accel.decoding.kernel_start import launch_options, multiprocessors, wait_for_previous

SINGLE_TILE_KEYS, TILE_KEYS = 64, 32  # `beam_attention`: up to so many columns are one tile; more are tiles of so many
MANY_PROGRAMS_TILE, MANY_PROGRAMS_WARPS = 64, 2  # `decode_attention`, where programs outnumber multiprocessors


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
    """In elements: from row to row of qkv; from slot to slot, head to head and column to column of keys and values; of the bias
    from slot to slot and beam to beam (0: one for all beams)."""

    row: Any
    key_slot: Any
    key_head: Any
    key_column: Any
    value_slot: Any
    value_head: Any
    value_column: Any
    bias_slot: Any
    bias_beam: Any


class AttentionShape(NamedTuple):
    """Known when a kernel is compiled: query heads H and key heads Hk, sizes of a key D and a value Dv, these rounded up to a
    tile."""

    heads: int
    kv_heads: int
    d: int
    dv: int
    block_d: int
    block_dv: int


@triton.jit
def online_softmax(q, ks, vs, bias, m_i, l_i, acc):
    """The online softmax of one query, a tile of S keys further: q (D,), ks (S, D), vs (S, Dv), bias (S,), m_i and l_i (),
    acc (Dv,)."""
    score = tl.sum(ks.to(tl.float32) * q[None, :], axis=1) + bias
    m_new = tl.maximum(m_i, tl.max(score, axis=0))
    p = tl.exp(score - m_new)
    alpha = tl.exp(m_i - m_new)
    l_i = l_i * alpha + tl.sum(p, axis=0)
    acc = acc * alpha + tl.sum(p[:, None] * vs.to(tl.float32), axis=0)
    return m_new, l_i, acc


@triton.jit
def decode_attention_kernel(
    ptr, strides, scale, n_keys,
    SHAPE: tl.constexpr, BLOCK_S: tl.constexpr, SINGLE_TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out[r, h] = softmax(q[r, h] . keys[r, h / group, :columns[r] + 1] scale + bias[r]) values, the new key and value included,
    which are first stored in column columns[r].

    Grid (H, n), one row a slot; a program takes a head of a slot, tiles of BLOCK_S columns by D (SINGLE_TILE: all in one).
    Memory: AttentionPointers, the last dimension contiguous; SHAPE is an AttentionShape."""
    HEADS: tl.constexpr = SHAPE[0]
    KV_HEADS: tl.constexpr = SHAPE[1]
    D: tl.constexpr = SHAPE[2]
    DV: tl.constexpr = SHAPE[3]
    BLOCK_D: tl.constexpr = SHAPE[4]
    BLOCK_DV: tl.constexpr = SHAPE[5]
    head, slot = tl.program_id(0), tl.program_id(1).to(tl.int64)
    kv_head = head // (HEADS // KV_HEADS)
    column = tl.load(ptr.columns + slot)
    d, dv = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    in_d, in_dv = d < D, dv < DV
    k_ptr = ptr.key_cache + slot * strides.key_slot + kv_head * strides.key_head
    v_ptr = ptr.value_cache + slot * strides.value_slot + kv_head * strides.value_head
    bias_ptr = ptr.bias + slot * strides.bias_slot
    s = tl.arange(0, BLOCK_S)
    old = s < column
    ks = tl.load(k_ptr + s[:, None] * strides.key_column + d[None, :], mask=old[:, None] & in_d[None, :], other=0.0)
    vs = tl.load(v_ptr + s[:, None] * strides.value_column + dv[None, :], mask=old[:, None] & in_dv[None, :], other=0.0)
    bias = tl.load(bias_ptr + s, mask=old, other=float("-inf")).to(tl.float32)
    wait_for_previous(PDL)
    qkv_ptr = ptr.qkv + slot * strides.row
    q = tl.load(qkv_ptr + head * D + d, mask=in_d, other=0.0).to(tl.float32) * scale
    k = tl.load(qkv_ptr + HEADS * D + kv_head * D + d, mask=in_d, other=0.0)
    v = tl.load(qkv_ptr + (HEADS + KV_HEADS) * D + kv_head * DV + dv, mask=in_dv, other=0.0)
    tl.store(k_ptr + column * strides.key_column + d, k, mask=in_d)
    tl.store(v_ptr + column * strides.value_column + dv, v, mask=in_dv)
    # The new token is taken from where it came, so nobody waits for the store.
    m_i = tl.sum(q * k.to(tl.float32), axis=0)
    l_i = m_i * 0.0 + 1.0
    acc = v.to(tl.float32)
    m_i, l_i, acc = online_softmax(q, ks, vs, bias, m_i, l_i, acc)
    if not SINGLE_TILE:
        start = (column * 0 + BLOCK_S).to(tl.int32)
        while start < column:
            t = start + tl.arange(0, BLOCK_S)
            in_t = t < column
            k_mask, v_mask = in_t[:, None] & in_d[None, :], in_t[:, None] & in_dv[None, :]
            next_ks = tl.load(k_ptr + t[:, None] * strides.key_column + d[None, :], mask=k_mask, other=0.0)
            next_vs = tl.load(v_ptr + t[:, None] * strides.value_column + dv[None, :], mask=v_mask, other=0.0)
            next_bias = tl.load(bias_ptr + t, mask=in_t, other=float("-inf")).to(tl.float32)
            m_i, l_i, acc = online_softmax(q, next_ks, next_vs, next_bias, m_i, l_i, acc)
            start += BLOCK_S
    out_ptr = ptr.out + slot * (HEADS * DV) + head * DV + dv
    tl.store(out_ptr, (acc / l_i).to(ptr.out.dtype.element_ty), mask=in_dv)


def shape_of(heads: int, keys: Tensor, values: Tensor, least: int = 1) -> AttentionShape:
    """The shape of an attention over keys (n, Hk, S, D) and values (n, Hk, S, Dv); tiles at least so wide."""
    rounded = (max(least, triton.next_power_of_2(t.size(3))) for t in (keys, values))
    return AttentionShape(heads, keys.size(1), keys.size(3), values.size(3), *rounded)


def strides_of(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Strides:
    """The strides that the kernels need."""
    beam = 0 if bias.size(1) == 1 else bias.stride(1)
    (k0, k1, k2, _), (v0, v1, v2, _) = keys.stride(), values.stride()
    return Strides(q.stride(0), k0, k1, k2, v0, v1, v2, bias.stride(0), beam)


def decode_attention(
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
    """Self-attention of one row a slot (no beams): the new keys and values are stored in column `columns` (n,) of their slot, and
    each row attends to what its slot has filled, at most n_keys columns. qkv (n, (H + Hk) D + Hk Dv); keys (n, Hk, S, D); bias
    (n, 1, >= n_keys). Gives (n, H Dv)."""
    rows = qkv.size(0)
    shape = shape_of(heads, keys, values)
    out = torch.empty(rows, heads * shape.dv, dtype=qkv.dtype, device=qkv.device)
    # Few programs wait for memory, many share it: a few take larger tiles.
    few = rows * heads <= multiprocessors()
    block = min(512 if few else MANY_PROGRAMS_TILE, max(16, triton.next_power_of_2(n_keys)))
    decode_attention_kernel[(heads, rows)](
        AttentionPointers(qkv, keys, values, bias, columns, out), strides_of(qkv, keys, values, bias),
        1.0 / math.sqrt(shape.d) if scale is None else scale, n_keys, tuple(shape), block, n_keys <= block,
        num_warps=max(4, min(16, block // 32)) if few else MANY_PROGRAMS_WARPS, **launch_options(),
    )  # fmt: skip
    return out


@triton.jit
def online_softmax_beams(q, ks, vs, bias, scale, m_i, l_i, acc, PRECISION: tl.constexpr):
    """The online softmax of all beams' queries, a tile of S keys further: q (K, D), ks (D, S), vs (S, Dv), bias (K, S), m_i
    and l_i (K,), acc (K, Dv). Of a row that has seen no key, m_i is -inf."""
    score = tl.dot(q, ks, input_precision=PRECISION) * scale + bias
    m_new = tl.maximum(m_i, tl.max(score, axis=1))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp(score - m_safe[:, None])
    alpha = tl.exp(m_i - m_safe)
    l_i = l_i * alpha + tl.sum(p, axis=1)
    acc = acc * alpha[:, None] + tl.dot(p.to(vs.dtype), vs, input_precision=PRECISION)
    return m_new, l_i, acc


@triton.jit
def beam_attention_kernel(
    ptr, strides, scale, n_keys,
    SHAPE: tl.constexpr, BEAMS: tl.constexpr, BLOCK_S: tl.constexpr, FLAGS: tl.constexpr, PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """out[n, k, h] = softmax(q[n, k, h] . keys[n, h, :n_keys] scale + bias[n, k]) values, for all beams k of a slot at once.

    Grid (H, n); a program takes a head of a slot, its beams' queries as one tile BLOCK_K x D against tiles of BLOCK_S columns.
    Memory: AttentionPointers, the last dimension contiguous; rows of qkv are (slot, beam). SHAPE is an AttentionShape, BEAMS is
    (K, BLOCK_K), FLAGS is (SINGLE_TILE: all columns in one tile, APPEND: new keys and values are stored first). A column that no
    beam descends from is not read at all: a beam soon agrees on all but its last few tokens."""
    HEADS: tl.constexpr = SHAPE[0]
    D: tl.constexpr = SHAPE[2]
    DV: tl.constexpr = SHAPE[3]
    BLOCK_D: tl.constexpr = SHAPE[4]
    BLOCK_DV: tl.constexpr = SHAPE[5]
    N_BEAMS: tl.constexpr = BEAMS[0]
    BLOCK_K: tl.constexpr = BEAMS[1]
    SINGLE_TILE: tl.constexpr = FLAGS[0]
    APPEND: tl.constexpr = FLAGS[1]
    head, slot = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, d, dv, s = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV), tl.arange(0, BLOCK_S)
    in_b, in_d, in_dv = b < N_BEAMS, d < D, dv < DV
    k_ptr = ptr.key_cache + slot * strides.key_slot + head * strides.key_head
    v_ptr = ptr.value_cache + slot * strides.value_slot + head * strides.value_head
    bias_ptr = ptr.bias + slot * strides.bias_slot + b[:, None] * strides.bias_beam
    filled = n_keys
    if APPEND:
        filled = tl.load(ptr.columns + slot).to(tl.int32)
    if SINGLE_TILE:
        in_s = (s < filled) & (s < n_keys)
        bias = tl.load(bias_ptr + s[None, :], mask=in_b[:, None] & in_s[None, :], other=float("-inf")).to(tl.float32)
        used = tl.max(bias, axis=0) > float("-inf")
        ks = tl.load(
            k_ptr + s[None, :] * strides.key_column + d[:, None], mask=used[None, :] & in_d[:, None], other=0.0
        )
        vs = tl.load(
            v_ptr + s[:, None] * strides.value_column + dv[None, :], mask=used[:, None] & in_dv[None, :], other=0.0
        )
    wait_for_previous(PDL)
    qkv_ptr = ptr.qkv + (slot * N_BEAMS + b)[:, None] * strides.row
    q_mask, v_mask = in_b[:, None] & in_d[None, :], in_b[:, None] & in_dv[None, :]
    q = tl.load(qkv_ptr + head * D + d[None, :], mask=q_mask, other=0.0)
    if APPEND:
        column = filled + b
        k = tl.load(qkv_ptr + HEADS * D + head * D + d[None, :], mask=q_mask, other=0.0)
        v = tl.load(qkv_ptr + 2 * HEADS * D + head * DV + dv[None, :], mask=v_mask, other=0.0)
        tl.store(k_ptr + column[:, None] * strides.key_column + d[None, :], k, mask=q_mask)
        tl.store(v_ptr + column[:, None] * strides.value_column + dv[None, :], v, mask=v_mask)
        # Of the new columns each beam sees its own, and takes it from where it came.
        m_i = tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1) * scale
        l_i = tl.full([BLOCK_K], 1.0, dtype=tl.float32)
        acc = v.to(tl.float32)
    else:
        m_i = tl.full([BLOCK_K], float("-inf"), dtype=tl.float32)
        l_i = tl.zeros([BLOCK_K], dtype=tl.float32)
        acc = tl.zeros([BLOCK_K, BLOCK_DV], dtype=tl.float32)
    if SINGLE_TILE:
        m_i, l_i, acc = online_softmax_beams(q, ks, vs, bias, scale, m_i, l_i, acc, PRECISION)
    else:
        start = filled * 0
        while start < filled:
            t = start + tl.arange(0, BLOCK_S)
            bias_mask = in_b[:, None] & (t < filled)[None, :]
            bias = tl.load(bias_ptr + t[None, :], mask=bias_mask, other=float("-inf")).to(tl.float32)
            used = tl.max(bias, axis=0) > float("-inf")
            ks_mask, vs_mask = used[None, :] & in_d[:, None], used[:, None] & in_dv[None, :]
            ks = tl.load(k_ptr + t[None, :] * strides.key_column + d[:, None], mask=ks_mask, other=0.0)
            vs = tl.load(v_ptr + t[:, None] * strides.value_column + dv[None, :], mask=vs_mask, other=0.0)
            m_i, l_i, acc = online_softmax_beams(q, ks, vs, bias, scale, m_i, l_i, acc, PRECISION)
            start += BLOCK_S
    acc = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]
    out_ptr = ptr.out + (slot * N_BEAMS + b)[:, None] * (HEADS * DV) + head * DV + dv[None, :]
    tl.store(out_ptr, acc.to(ptr.out.dtype.element_ty), mask=v_mask)


def beam_attention(
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
    """Attention of all beams to the first n_keys columns of their slot, (n K, H Dv). Self-attention: with `columns` (n,), q is
    (n K, 2 H D + H Dv), and its keys and values are first stored in the K columns from there on. Cross-attention: without, q is
    (n K, H D). keys (n, H, S, D), strided but for the last; bias (n, K or 1, >= n_keys)."""
    slots, heads = keys.shape[:2]
    shape = shape_of(heads, keys, values, least=16)
    out = torch.empty(slots * beams, heads * shape.dv, dtype=q.dtype, device=q.device)
    # The fewer registers a program holds, the more of them wait for memory at the same time.
    block = max(16, triton.next_power_of_2(n_keys)) if n_keys <= SINGLE_TILE_KEYS else TILE_KEYS
    beam_attention_kernel[(heads, slots)](
        AttentionPointers(q, keys, values, bias, q if columns is None else columns, out), strides_of(q, keys, values, bias),
        1.0 / math.sqrt(shape.d) if scale is None else scale, n_keys,
        tuple(shape), (beams, max(16, triton.next_power_of_2(beams))), block, (n_keys <= block, columns is not None),
        "ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=max(1, shape.block_d * block // 4096) if q.element_size() == 2 else 4, num_stages=1, **launch_options(),
    )  # fmt: skip
    return out
