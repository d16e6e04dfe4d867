"""Where a vocabulary comes in and goes out: the embedding, and the logits read once, to a fraction of their size.

For every BLOCK_V tokens the highest logit of those that may be written, and the logsumexp of the row in partial sums. The
best tokens of a row stand in the blocks with the highest maxima, so only these are read again (beam_kernels.py).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.accel.decoding.kernel_start import launch_options, wait_for_previous

BLOCK_V = 64  # tokens that one maximum stands for
TILE_V = 1024  # tokens that one program reads


class ScorePointers(NamedTuple):
    """logits (n K, V); never (V,) int8; minimum, written (n,); maxima (n K, V / BLOCK_V); partial_lse (n K, V / TILE_V)."""

    logits: Any
    never: Any
    minimum: Any
    written: Any
    maxima: Any
    partial_lse: Any


class ScoreSizes(NamedTuple):
    """vocab_size V, elements from row to row of the logits, blocks and partial sums of a row, EOS (-1: none)."""

    vocab_size: Any
    row_stride: Any
    n_blocks: Any
    n_partials: Any
    eos: Any


@triton.jit
def block_maxima_kernel(
    ptr, sizes, BEAMS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK_V: tl.constexpr, PDL: tl.constexpr
):
    """maxima[r, b] = max of the logits[r, block b] that may be written; partial_lse[r, p] = logsumexp(logits[r, tile p]).
    Those that may not be written are -inf in the logits afterwards.

    Grid (V / TILE_V, n K); a program reads a tile of BLOCKS x BLOCK_V logits of one row. Memory: ScorePointers; rows of the
    logits are row_stride apart, the rest is contiguous."""
    wait_for_previous(PDL)
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    slot = row // BEAMS
    block = part * BLOCKS + tl.arange(0, BLOCKS)
    v = block[:, None] * BLOCK_V + tl.arange(0, BLOCK_V)[None, :]
    in_v = v < sizes.vocab_size
    logits_ptr = ptr.logits + row * sizes.row_stride + v
    logits = tl.load(logits_ptr, mask=in_v, other=float("-inf")).to(tl.float32)
    tile_max = tl.max(tl.max(logits, axis=1), axis=0)
    total = tl.sum(tl.sum(tl.exp(logits - tile_max), axis=1), axis=0)
    tl.store(ptr.partial_lse + row * sizes.n_partials + part, tile_max + tl.log(total))
    too_short = tl.load(ptr.written + slot) < tl.load(ptr.minimum + slot)
    banned = (tl.load(ptr.never + v, mask=in_v, other=0) != 0) | ((v == sizes.eos) & too_short)
    neg_inf = tl.full([BLOCKS, BLOCK_V], float("-inf"), dtype=tl.float32).to(ptr.logits.dtype.element_ty)
    tl.store(logits_ptr, neg_inf, mask=in_v & banned)
    allowed = tl.where(banned, float("-inf"), logits)
    tl.store(ptr.maxima + row * sizes.n_blocks + block, tl.max(allowed, axis=1), mask=block < sizes.n_blocks)


def block_maxima(
    logits: Tensor, never: Tensor, minimum: Tensor, written: Tensor, eos: int, *, beams: int
) -> tuple[Tensor, Tensor]:
    """The highest logit of every BLOCK_V tokens that may be written now (n K, V / BLOCK_V), and the logsumexp of every TILE_V
    logits (n K, V / TILE_V). What may not be written is -inf in `logits` afterwards."""
    rows, vocab_size = logits.shape
    n_blocks, n_partials = triton.cdiv(vocab_size, BLOCK_V), triton.cdiv(vocab_size, TILE_V)
    maxima = torch.empty(rows, n_blocks, dtype=torch.float32, device=logits.device)
    partial_lse = torch.empty(rows, n_partials, dtype=torch.float32, device=logits.device)
    block_maxima_kernel[(n_partials, rows)](
        ScorePointers(logits, never, minimum, written, maxima, partial_lse),
        ScoreSizes(vocab_size, logits.stride(0), n_blocks, n_partials, eos), beams, TILE_V // BLOCK_V, BLOCK_V,
        **launch_options(),
    )  # fmt: skip
    return maxima, partial_lse


@triton.jit
def topk_tokens(scores, sizes, row, in_b, SIZE: tl.constexpr):
    """values, tokens = topk(log_softmax(logits[row]), candidates) for each beam: (K, C), best first; -inf where there are no
    more. Only the blocks of the vocabulary with the highest maxima are read. SIZE: see beam_kernels.py."""
    BLOCK_K: tl.constexpr = SIZE[2]
    BLOCK_C: tl.constexpr = SIZE[3]
    BLOCKS: tl.constexpr = SIZE[5]
    PARTIALS: tl.constexpr = SIZE[6]
    CANDIDATES: tl.constexpr = SIZE[7]
    BLOCK_V: tl.constexpr = SIZE[8]
    NEG_INF, NO_INDEX = float("-inf"), 2**30
    s, w, p = tl.arange(0, BLOCKS), tl.arange(0, BLOCK_C), tl.arange(0, PARTIALS)
    partials_mask = in_b[:, None] & (p < sizes.n_partials)[None, :]
    partial = tl.load(
        scores.partial_lse + row[:, None] * sizes.n_partials + p[None, :], mask=partials_mask, other=NEG_INF
    )
    top = tl.max(partial, axis=1)
    top = tl.where(top == NEG_INF, 0.0, top)
    log_total = tl.where(in_b, top + tl.log(tl.sum(tl.exp(partial - top[:, None]), axis=1)), 0.0)
    maxima_mask = in_b[:, None] & (s < sizes.n_blocks)[None, :]
    maxima = tl.load(scores.maxima + row[:, None] * sizes.n_blocks + s[None, :], mask=maxima_mask, other=NEG_INF)
    chosen = tl.full([BLOCK_K, BLOCK_C], -1, dtype=tl.int32)
    for i in range(CANDIDATES):
        highest = tl.max(maxima, axis=1)
        index = tl.min(tl.where((maxima == highest[:, None]) & (maxima > NEG_INF), s[None, :], NO_INDEX), axis=1)
        chosen = tl.where(w[None, :] == i, tl.where(index < NO_INDEX, index, -1)[:, None], chosen)
        maxima = tl.where(s[None, :] == index[:, None], NEG_INF, maxima)
    v = chosen[:, :, None] * BLOCK_V + tl.arange(0, BLOCK_V)[None, None, :]
    known = (chosen >= 0)[:, :, None] & (v < sizes.vocab_size)
    found = tl.load(scores.logits + row[:, None, None] * sizes.row_stride + v, mask=known, other=NEG_INF).to(tl.float32)
    value = tl.full([BLOCK_K, BLOCK_C], NEG_INF, dtype=tl.float32)
    token = tl.full([BLOCK_K, BLOCK_C], 0, dtype=tl.int32)
    for i in range(CANDIDATES):
        highest = tl.max(tl.max(found, axis=2), axis=1)
        best = (found == highest[:, None, None]) & (found > NEG_INF)
        best_token = tl.min(tl.min(tl.where(best, v, NO_INDEX), axis=2), axis=1)
        value = tl.where(w[None, :] == i, (highest - log_total)[:, None], value)
        token = tl.where(w[None, :] == i, tl.where(best_token < NO_INDEX, best_token, 0)[:, None], token)
        found = tl.where(v == best_token[:, None, None], NEG_INF, found)
    return value, token


class EmbeddingPointers(NamedTuple):
    """tokens, positions (R,); table (V, C); encodings (P, C); out (R, C)."""

    tokens: Any
    positions: Any
    table: Any
    encodings: Any
    out: Any


@triton.jit
def embed_kernel(ptr, factor, width, POSITIONS: tl.constexpr, BLOCK_C: tl.constexpr, PDL: tl.constexpr):
    """out[r] = table[tokens[r]] factor + encodings[positions[r]].

    Grid (R,); a program takes a row as one tile, C <= BLOCK_C. Memory: EmbeddingPointers, all contiguous."""
    wait_for_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK_C)
    in_c = c < width
    token = tl.load(ptr.tokens + row)
    x = tl.load(ptr.table + token * width + c, mask=in_c, other=0.0).to(tl.float32) * factor
    if POSITIONS:
        x = x.to(ptr.out.dtype.element_ty).to(tl.float32)
        position = tl.load(ptr.positions + row)
        x = x + tl.load(ptr.encodings + position * width + c, mask=in_c, other=0.0).to(tl.float32)
    tl.store(ptr.out + row * width + c, x.to(ptr.out.dtype.element_ty), mask=in_c)


def embed(tokens: Tensor, table: Tensor, positions: Tensor, encodings: Tensor | None, factor: float) -> Tensor:
    """Token embeddings with their positions: tokens (R,), table (V, C), positions (R,), encodings (P, C)."""
    rows, width = tokens.size(0), table.size(1)
    out = torch.empty(rows, width, dtype=table.dtype, device=table.device)
    embed_kernel[(rows,)](
        EmbeddingPointers(tokens, positions, table, table if encodings is None else encodings, out), float(factor), width,
        encodings is not None, triton.next_power_of_2(width), **launch_options(),
    )  # fmt: skip
    return out
