"""Kernels for decoding on a CUDA device: what torch would do in eighteen launches a layer, in five or eight.

With one row, or a few, a step's time is the number of kernels and the reading of the weights. So what belongs together is
one kernel: a norm, the matrix product that follows it, its bias, its activation and the residual (`product`); the new key
and value into their column, and attention over all columns (`attend_columns`); the vocabulary's best word and its
log-probability (`best_words`, in two parts, as one block alone would be slow to read it); the embedding (`embed`).

With many rows the products are large enough for the device's own library, and the time is in what stands between them:
the sum and the norm that follow a product (`add_norm`); the beams of a sentence, which ask the same columns, so that one
block reads them once for all (`attend_beams`); the best words of a large vocabulary, of which only the stretches with the
highest peaks need a second look (`peaks`).

They are written in Triton, which comes with torch where torch knows a CUDA device, and compute in float32 whatever the
weights are. The module is imported only there. What each of them computes is said by the torch code of engine_cuda.py, to
which they are held: by its interpreter on a CPU, and on a device by the whole engine against the plain model.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from typing import Any

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

FEW_ROWS = 8  # up to here each row goes through the weights for itself
NORMS = {"none": 0, "layer": 1, "rms": 2}
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "relu2": 4}
WORDS_A_BLOCK = 1024


@triton.jit
def activated(y, ACT: tl.constexpr):
    if ACT == 1:
        y = tl.maximum(y, 0.0)
    if ACT == 2:
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    if ACT == 3:
        # tanh(z) = 1 - 2 / (exp(2 z) + 1)
        z = 0.7978845608028654 * (y + 0.044715 * y * y * y)
        y = 0.5 * y * (2.0 - 2.0 / (tl.exp(2.0 * z) + 1.0))
    if ACT == 4:
        y = tl.maximum(y, 0.0)
        y = y * y
    return y


@triton.jit
def product_kernel(
    x_at, weight_at, bias_at, residual_at, gain_at, shift_at, out_at,
    inputs, outputs, eps,
    NORM: tl.constexpr, ACT: tl.constexpr, BIAS: tl.constexpr, SHIFT: tl.constexpr, RESIDUAL: tl.constexpr,
    WIDE: tl.constexpr, TALL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1)
    k = tl.arange(0, WIDE)
    n = tl.program_id(0) * TALL + tl.arange(0, TALL)
    known = k < inputs
    weight = tl.load(
        weight_at + n[:, None].to(tl.int64) * inputs + k[None, :],
        mask=(n < outputs)[:, None] & known[None, :],
        other=0.0,
    )
    x = tl.load(x_at + row * inputs + k, mask=known, other=0.0).to(tl.float32)
    if NORM == 1:
        mean = tl.sum(x, axis=0) / inputs
        x = tl.where(known, x - mean, 0.0)
    if NORM > 0:
        x = x / tl.sqrt(tl.sum(x * x, axis=0) / inputs + eps)
        x = x * tl.load(gain_at + k, mask=known, other=0.0).to(tl.float32)
        if SHIFT:
            x = x + tl.load(shift_at + k, mask=known, other=0.0).to(tl.float32)
    y = tl.sum(weight.to(tl.float32) * x[None, :], axis=1)
    inside = n < outputs
    if BIAS:
        y = y + tl.load(bias_at + n, mask=inside, other=0.0).to(tl.float32)
    y = activated(y, ACT)
    if RESIDUAL:
        y = y + tl.load(residual_at + row * outputs + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_at + row.to(tl.int64) * outputs + n, y.to(out_at.dtype.element_ty), mask=inside)


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: tuple[str, Tensor, Tensor | None, float] | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """activation(norm(x) weight^T + bias) + residual, for x (rows, in) and weight (out, in). `norm`: its kind, gain, shift
    and epsilon."""
    rows, inputs = x.shape
    outputs = weight.size(0)
    out = torch.empty(rows, outputs, dtype=dtype or x.dtype, device=x.device)
    kind, gain, shift, eps = norm or ("none", x, None, 0.0)
    wide = triton.next_power_of_2(inputs)
    # Enough blocks for every processor of the device, and enough bytes in each to be worth its start.
    tall = max(1, min(16, 8192 // wide))
    while tall > 1 and rows * outputs < 512 * tall:
        tall //= 2
    product_kernel[(triton.cdiv(outputs, tall), rows)](
        x, weight, x if bias is None else bias, x if residual is None else residual, gain, x if shift is None else shift, out,
        inputs, outputs, eps,
        NORMS[kind], ACTIVATIONS[activation], bias is not None, shift is not None, residual is not None,
        wide, tall,
        num_warps=4 if wide * tall <= 4096 else 8,
    )  # fmt: skip
    return out


@triton.jit
def attend_kernel(
    qkv_at, keys_at, values_at, shade_at, column_at, out_at,
    scale, width, capacity,
    shade_row, shade_head,
    REACH: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    PD: tl.constexpr, PDV: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    kv = head // (HEADS // KV_HEADS)
    column = tl.load(column_at)
    d, dv = tl.arange(0, PD), tl.arange(0, PDV)
    in_d, in_dv = d < D, dv < DV
    mine = qkv_at + row * width
    q = tl.load(mine + head * D + d, mask=in_d, other=0.0).to(tl.float32) * scale
    k = tl.load(mine + HEADS * D + kv * D + d, mask=in_d, other=0.0)
    v = tl.load(mine + (HEADS + KV_HEADS) * D + kv * DV + dv, mask=in_dv, other=0.0)
    keys = keys_at + (row * KV_HEADS + kv) * capacity * D
    values = values_at + (row * KV_HEADS + kv) * capacity * DV
    tl.store(keys + column * D + d, k, mask=in_d)
    tl.store(values + column * DV + dv, v, mask=in_dv)
    # The new token is taken from where it came, so nobody waits for the store.
    shade = shade_at + row * shade_row + head * shade_head
    highest = tl.sum(q * k.to(tl.float32), axis=0) + tl.load(shade + column).to(tl.float32)
    share = highest * 0.0 + 1.0
    found = v.to(tl.float32)
    for start in range(0, REACH, BLOCK):
        s = start + tl.arange(0, BLOCK)
        old = (s < REACH) & (s != column)
        ks = tl.load(keys + s[:, None] * D + d[None, :], mask=old[:, None] & in_d[None, :], other=0.0).to(tl.float32)
        vs = tl.load(values + s[:, None] * DV + dv[None, :], mask=old[:, None] & in_dv[None, :], other=0.0)
        score = tl.sum(ks * q[None, :], axis=1) + tl.load(shade + s, mask=old, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(score, axis=0))
        weight = tl.exp(score - higher)
        before = tl.exp(highest - higher)
        share = share * before + tl.sum(weight, axis=0)
        found = found * before + tl.sum(weight[:, None] * vs.to(tl.float32), axis=0)
        highest = higher
    out = out_at + row * (HEADS * DV) + head * DV + dv
    tl.store(out, (found / share).to(out_at.dtype.element_ty), mask=in_dv)


def attend_columns(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    shade: Tensor,
    column: Tensor,
    reach: int,
    *,
    heads: int,
    scale: float | None,
) -> Tensor:
    """The new keys and values of every row into `column`, and what its heads find in the first `reach` columns, that one
    among them. qkv (rows, (H + Hk) D + Hk Dv); keys (rows, Hk, S, D); shade (rows, 1 or H, 1, >= reach)."""
    rows, kv_heads, capacity, size = keys.shape
    value_size = values.size(3)
    out = torch.empty(rows, heads * value_size, dtype=qkv.dtype, device=qkv.device)
    shade_head = 0 if shade.size(1) == 1 else shade.stride(1)
    # Few blocks wait for memory, many share it: a few take larger bites.
    block, warps = (128, 8) if rows * heads <= 128 else (64, 4)
    attend_kernel[(heads, rows)](
        qkv, keys, values, shade, column, out,
        1.0 / math.sqrt(size) if scale is None else scale, qkv.size(1), capacity,
        shade.stride(0), shade_head,
        reach, heads, kv_heads, size, value_size,
        triton.next_power_of_2(size), triton.next_power_of_2(value_size), block,
        num_warps=warps,
    )  # fmt: skip
    return out


@triton.jit
def beams_kernel(
    q_at, keys_at, values_at, shade_at, column_at, out_at,
    scale, row_width, capacity, shade_sentence, shade_beam,
    BEAMS: tl.constexpr, REACH: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    PD: tl.constexpr, PDV: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, NEW: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    head, sentence = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, d, dv = tl.arange(0, ROWS), tl.arange(0, PD), tl.arange(0, PDV)
    in_b, in_d, in_dv = b < BEAMS, d < D, dv < DV
    mine = q_at + (sentence * BEAMS + b)[:, None] * row_width
    q = tl.load(mine + head * D + d[None, :], mask=in_b[:, None] & in_d[None, :], other=0.0)
    keys = keys_at + (sentence * HEADS + head) * capacity * D
    values = values_at + (sentence * HEADS + head) * capacity * DV
    if NEW:
        column = tl.load(column_at) + b
        k = tl.load(mine + HEADS * D + head * D + d[None, :], mask=in_b[:, None] & in_d[None, :], other=0.0)
        v = tl.load(mine + 2 * HEADS * D + head * DV + dv[None, :], mask=in_b[:, None] & in_dv[None, :], other=0.0)
        tl.store(keys + column[:, None] * D + d[None, :], k, mask=in_b[:, None] & in_d[None, :])
        tl.store(values + column[:, None] * DV + dv[None, :], v, mask=in_b[:, None] & in_dv[None, :])
        tl.debug_barrier()  # read again below, by other threads of this block
    highest = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    share = tl.zeros([ROWS], dtype=tl.float32)
    found = tl.zeros([ROWS, PDV], dtype=tl.float32)
    shade = shade_at + sentence * shade_sentence + b[:, None] * shade_beam
    for start in range(0, REACH, BLOCK):
        s = start + tl.arange(0, BLOCK)
        in_s = s < REACH
        ks = tl.load(keys + s[None, :] * D + d[:, None], mask=in_s[None, :] & in_d[:, None], other=0.0)
        vs = tl.load(values + s[:, None] * DV + dv[None, :], mask=in_s[:, None] & in_dv[None, :], other=0.0)
        seen = tl.load(shade + s[None, :], mask=in_b[:, None] & in_s[None, :], other=float("-inf")).to(tl.float32)
        score = tl.dot(q, ks, input_precision=PRECISION) * scale + seen
        higher = tl.maximum(highest, tl.max(score, axis=1))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(score - level[:, None])
        before = tl.exp(highest - level)
        share = share * before + tl.sum(weight, axis=1)
        found = found * before[:, None] + tl.dot(weight.to(vs.dtype), vs, input_precision=PRECISION)
        highest = higher
    found = found / tl.where(share == 0.0, 1.0, share)[:, None]
    out = out_at + (sentence * BEAMS + b)[:, None] * (HEADS * DV) + head * DV + dv[None, :]
    tl.store(out, found.to(out_at.dtype.element_ty), mask=in_b[:, None] & in_dv[None, :])


def attend_beams(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    shade: Tensor,
    reach: int,
    *,
    beams: int,
    scale: float | None,
    column: Tensor | None = None,
) -> Tensor:
    """What the heads of all beams find in the first `reach` columns of their sentence. With `column`, q is (N K, 2 H D + H
    Dv), and its keys and values are entered in the columns from there on first; without it, q is (N K, H D). keys (N, H, S,
    D); shade (N, K or 1, >= reach)."""
    sentences, heads, capacity, size = keys.shape
    value_size = values.size(3)
    out = torch.empty(sentences * beams, heads * value_size, dtype=q.dtype, device=q.device)
    block = min(64, max(16, triton.next_power_of_2(reach)))
    beams_kernel[(heads, sentences)](
        q, keys, values, shade, q if column is None else column, out,
        1.0 / math.sqrt(size) if scale is None else scale, q.stride(0), capacity,
        shade.stride(0), 0 if shade.size(1) == 1 else shade.stride(1),
        beams, reach, heads, size, value_size,
        max(16, triton.next_power_of_2(size)), max(16, triton.next_power_of_2(value_size)),
        max(16, triton.next_power_of_2(beams)), block, column is not None,
        "ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def add_norm_kernel(
    x_at, change_at, gain_at, shift_at, sum_at, out_at, width, eps,
    NORM: tl.constexpr, SHIFT: tl.constexpr, ADD: tl.constexpr, KEEP: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDE)
    inside = c < width
    x = tl.load(x_at + row * width + c, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x = x + tl.load(change_at + row * width + c, mask=inside, other=0.0).to(tl.float32)
        x = x.to(out_at.dtype.element_ty).to(tl.float32)  # as it is kept
    if KEEP:
        tl.store(sum_at + row * width + c, x.to(out_at.dtype.element_ty), mask=inside)
    if NORM == 1:
        x = tl.where(inside, x - tl.sum(x, axis=0) / width, 0.0)
    if NORM > 0:
        x = x / tl.sqrt(tl.sum(x * x, axis=0) / width + eps)
        x = x * tl.load(gain_at + c, mask=inside, other=0.0).to(tl.float32)
        if SHIFT:
            x = x + tl.load(shift_at + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_at + row * width + c, x.to(out_at.dtype.element_ty), mask=inside)


def add_norm(
    x: Tensor, change: Tensor | None, norm: tuple[str, Tensor, Tensor | None, float] | None, *, keep: bool
) -> tuple[Tensor, Tensor]:
    """x + change (kept only where asked), and its norm."""
    rows, width = x.shape
    kind, gain, shift, eps = norm or ("none", x, None, 0.0)
    out = torch.empty_like(x)
    total = torch.empty_like(x) if keep and change is not None else x
    wide = triton.next_power_of_2(width)
    add_norm_kernel[(rows,)](
        x, x if change is None else change, gain, x if shift is None else shift, total, out, width, eps,
        NORMS[kind], shift is not None, change is not None, keep and change is not None, wide,
        num_warps=max(1, min(8, wide // 256)),
    )  # fmt: skip
    return total, out


@triton.jit
def peaks_kernel(
    logits_at, never_at, minimum_at, written_at, peak_at, part_at,
    words, row_width, stretches, blocks, eos, BEAMS: tl.constexpr, STRETCHES: tl.constexpr, STRETCH: tl.constexpr,
):  # fmt: skip
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    stretch = block * STRETCHES + tl.arange(0, STRETCHES)
    n = stretch[:, None] * STRETCH + tl.arange(0, STRETCH)[None, :]
    inside = n < words
    at = logits_at + row * row_width + n
    logits = tl.load(at, mask=inside, other=float("-inf")).to(tl.float32)
    highest = tl.max(tl.max(logits, axis=1), axis=0)
    total = tl.sum(tl.sum(tl.exp(logits - highest), axis=1), axis=0)
    tl.store(part_at + row * blocks + block, highest + tl.log(total))
    early = tl.load(written_at) < tl.load(minimum_at + row // BEAMS)
    out = (tl.load(never_at + n, mask=inside, other=0) != 0) | ((n == eos) & early)
    tl.store(at, tl.full([STRETCHES, STRETCH], float("-inf"), dtype=tl.float32), mask=inside & out)
    allowed = tl.where(out, float("-inf"), logits)
    tl.store(peak_at + row * stretches + stretch, tl.max(allowed, axis=1), mask=stretch < stretches)


def peaks(
    logits: Tensor, never: Tensor, minimum: Tensor, written: Tensor, eos: int, *, beams: int, stretch: int
) -> tuple[Tensor, Tensor]:
    """The highest score of every stretch of words that may be written now, and the log of the sum of all exponentials of
    every row. What may not be written is -inf in `logits` afterwards."""
    rows, words = logits.shape
    stretches = triton.cdiv(words, stretch)
    a_block = max(1, WORDS_A_BLOCK // stretch)
    blocks = triton.cdiv(stretches, a_block)
    peak = torch.empty(rows, stretches, dtype=torch.float32, device=logits.device)
    part = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    peaks_kernel[(blocks, rows)](
        logits, never, minimum, written, peak, part,
        words, logits.stride(0), stretches, blocks, eos, beams, a_block, stretch,
    )  # fmt: skip
    return peak, part.logsumexp(dim=1)


@triton.jit
def embed_kernel(
    tokens_at, lengths_at, column_at, table_at, positions_at, shade_at, out_at,
    factor, width, shade_row, POSITIONS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDE)
    inside = c < width
    token, place = tl.load(tokens_at + row), tl.load(lengths_at + row)
    x = tl.load(table_at + token * width + c, mask=inside, other=0.0).to(tl.float32) * factor
    if POSITIONS:
        x = x + tl.load(positions_at + place * width + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_at + row * width + c, x.to(out_at.dtype.element_ty), mask=inside)
    tl.store(lengths_at + row, place + 1)
    tl.store(shade_at + row * shade_row + tl.load(column_at), 0.0)


def embed(
    tokens: Tensor,
    lengths: Tensor,
    column: Tensor,
    table: Tensor,
    positions: Tensor | None,
    shade: Tensor,
    factor: float,
    rows: int,
) -> Tensor:
    """The new tokens of the first rows with their positions; each row is one longer, and sees its new column."""
    width = table.size(1)
    out = torch.empty(rows, width, dtype=table.dtype, device=table.device)
    embed_kernel[(rows,)](
        tokens, lengths, column, table, table if positions is None else positions, shade, out,
        factor, width, shade.stride(0), positions is not None, triton.next_power_of_2(width),
    )  # fmt: skip
    return out


@triton.jit
def look_through_kernel(
    logits_at, never_at, minimum_at, written_at, best_at, word_at, share_at,
    words, row_width, blocks, eos, BLOCK: tl.constexpr,
):  # fmt: skip
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = block * BLOCK + tl.arange(0, BLOCK)
    inside = n < words
    logits = tl.load(logits_at + row * row_width + n, mask=inside, other=float("-inf")).to(tl.float32)
    highest = tl.max(logits, axis=0)
    share = tl.sum(tl.exp(logits - highest), axis=0)
    early = tl.load(written_at) < tl.load(minimum_at + row)
    out = (tl.load(never_at + n, mask=inside, other=1) != 0) | ((n == eos) & early)
    allowed = tl.where(out, float("-inf"), logits)
    at = row * blocks + block
    tl.store(best_at + at, tl.max(allowed, axis=0))
    tl.store(word_at + at, block * BLOCK + tl.argmax(allowed, axis=0))
    # The sum of all exponentials as one number, so that the second part needs no second maximum.
    tl.store(share_at + at, highest + tl.log(share))


@triton.jit
def enter_kernel(
    best_at, word_at, share_at, written_at, limit_at, over_at, lengths_at, by_eos_at, tokens_at, ids_at, logprobs_at,
    blocks, longest, eos, PARTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, PARTS)
    inside = b < blocks
    best = tl.load(best_at + row * blocks + b, mask=inside, other=float("-inf"))
    part = tl.load(share_at + row * blocks + b, mask=inside, other=float("-inf"))
    first = tl.argmax(best, axis=0)
    word = tl.sum(tl.where(b == first, tl.load(word_at + row * blocks + b, mask=inside, other=0), 0), axis=0)
    highest = tl.max(part, axis=0)
    total = highest + tl.log(tl.sum(tl.exp(part - highest), axis=0))
    logprob = tl.max(best, axis=0) - total
    written = tl.load(written_at)
    open_ = tl.load(over_at + row) == 0
    goes_on = open_ & (logprob > float("-inf"))
    ended = goes_on & (word == eos)
    tl.store(ids_at + row * longest + written, word)
    tl.store(logprobs_at + row * longest + written, logprob)
    tl.store(lengths_at + row, tl.load(lengths_at + row) + goes_on.to(tl.int64))
    tl.store(by_eos_at + row, ((tl.load(by_eos_at + row) != 0) | ended).to(tl.int8))
    over = (goes_on == 0) | ended | (written + 1 >= tl.load(limit_at + row))
    tl.store(over_at + row, over.to(tl.int8))
    tl.store(tokens_at + row, word.to(tl.int64))


def best_words(board: Any, logits: Tensor, tokens: Tensor, never: Tensor) -> None:
    """The greedy step of a board of lines (engine_cuda.py): the best word of every row and its log-probability entered.
    `never` has a 1 for each word that may not be written."""
    rows, words = logits.shape
    blocks = triton.cdiv(words, WORDS_A_BLOCK)
    best = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    word = torch.empty(rows, blocks, dtype=torch.int32, device=logits.device)
    share = torch.empty_like(best)
    look_through_kernel[(blocks, rows)](
        logits, never, board.minimum, board.written, best, word, share,
        words, logits.stride(0), blocks, board.eos, WORDS_A_BLOCK,
    )  # fmt: skip
    over, by_eos = board.over.view(torch.int8), board.by_eos.view(torch.int8)
    enter_kernel[(rows,)](
        best, word, share, board.written, board.limit, over, board.lengths, by_eos, tokens, board.ids, board.logprobs,
        blocks, board.longest, board.eos, triton.next_power_of_2(blocks), num_warps=1,
    )  # fmt: skip
    board.written += 1
