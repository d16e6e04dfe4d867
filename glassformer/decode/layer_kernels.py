"""What a layer computes while decoding on a CUDA device: what torch would do in eighteen launches, in five or eight.

With one row, or a few, a step's time is the number of kernels and the reading of the weights. So what belongs together is
one kernel: a norm, the matrix product that follows it, its bias, its activation and the residual (`product`); the new key
and value into their column, and attention over all columns (`attend_columns`); the embedding (`embed`).

With some dozens of rows a block takes all of them through its part of the weights, which it calls for before its turn has come
(`batch_product`); long sums in parts, so that there are enough blocks.

With many rows the products are large enough for the device's own library, and the time is in what stands between them:
the sum and the norm that follow a product (`add_norm`); the beams of a sentence, which ask the same columns, so that one
block reads them once for all, and only those that are some living beam's past (`attend_beams`); the sentences of a source,
all whose words fit one block (`attend_rows`). How words are chosen from the scores is in choice_kernels.py.

They are written in Triton, which comes with torch where torch knows a CUDA device, and sum in float32 whatever the weights
are. The module is imported only there. What each of them computes is said by the torch code of static_decoder.py, to which
they are held: by its interpreter on a CPU, and on a device by the whole engine against the plain model.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.decode.kernel_start import begin, starting

FEW_ROWS = 8  # up to here each row goes through the weights for itself
ENOUGH_PRODUCTS = 512  # of such rows: blocks that keep a device busy
SOME_ROWS = 64  # up to here a block takes all rows through its part of the weights
BITE, STAGES = 64, 4  # of a sum, that such a block takes at a time; bites on their way to it at a time
TALL, PRODUCT_WARPS = 32, 4  # of what comes out, that such a block makes
LONGEST_SUM = 1024  # of a block; a product with a longer one, where it may not be in parts, is the library's
ENOUGH_BLOCKS = 144  # for a device
NORMS = {"none": 0, "layer": 1, "rms": 2}
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "relu2": 4}
ONE_BITE, SEVERAL_BITES = 64, 32  # columns that all beams of a head look at: so many at once, or so many at a time
FEW_PROGRAMS = 128  # attention's, up to which each takes large bites
MANY_BLOCK, MANY_WARPS = 64, 2  # its bites where there is much of it
MOST_BYTES = 128  # of a column of words, for `attend_rows`: more take long to compile, and more memory than a block has


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
    WIDE: tl.constexpr, TALL: tl.constexpr, EARLY: tl.constexpr,
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
    inside = n < outputs
    if NORM > 0:
        gain = tl.load(gain_at + k, mask=known, other=0.0).to(tl.float32)
        if SHIFT:
            shift = tl.load(shift_at + k, mask=known, other=0.0).to(tl.float32)
    if BIAS:
        bias = tl.load(bias_at + n, mask=inside, other=0.0).to(tl.float32)
    begin(EARLY)
    x = tl.load(x_at + row * inputs + k, mask=known, other=0.0).to(tl.float32)
    if NORM == 1:
        mean = tl.sum(x, axis=0) / inputs
        x = tl.where(known, x - mean, 0.0)
    if NORM > 0:
        x = x / tl.sqrt(tl.sum(x * x, axis=0) / inputs + eps) * gain
        if SHIFT:
            x = x + shift
    y = tl.sum(weight.to(tl.float32) * x[None, :], axis=1)
    if BIAS:
        y = y + bias
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
    while tall > 1 and rows * outputs < ENOUGH_PRODUCTS * tall:
        tall //= 2
    product_kernel[(triton.cdiv(outputs, tall), rows)](
        x, weight, x if bias is None else bias, x if residual is None else residual, gain, x if shift is None else shift, out,
        inputs, outputs, eps,
        NORMS[kind], ACTIVATIONS[activation], bias is not None, shift is not None, residual is not None,
        wide, tall,
        num_warps=4 if wide * tall <= 4096 else 8, **starting(),
    )  # fmt: skip
    return out


@triton.jit
def fetch_ahead(at):
    """Have what stands there (the 128 bytes around each address; none around 0) brought into the second cache."""
    tl.inline_asm_elementwise(
        "{ .reg .pred some; setp.ne.s64 some, $1, 0; @some prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
        "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def batch_product_kernel(
    x_at, weight_at, bias_at, out_at,
    rows, inputs, outputs, part_size,
    ACT: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr, TALL: tl.constexpr, BITE: tl.constexpr, BITES: tl.constexpr,
    LINE: tl.constexpr, LINES: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * TALL + tl.arange(0, TALL)
    part = tl.program_id(1)
    m = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    in_n, in_m = n < outputs, m < rows
    own = weight_at + n.to(tl.int64) * inputs + part * (BITE * BITES)
    if EARLY:
        line = tl.arange(0, LINES) * LINE
        wanted = in_n[:, None] & (line < BITE * BITES)[None, :]
        fetch_ahead(tl.where(wanted, (own[:, None] + line[None, :]).to(tl.int64), 0))
    if BIAS:
        bias = tl.load(bias_at + n, mask=in_n, other=0.0).to(tl.float32)
    begin(EARLY)
    k = tl.arange(0, BITE)
    x = x_at + m[:, None] * inputs + part * (BITE * BITES) + k[None, :]
    weight = own[None, :] + k[:, None]
    y = tl.zeros([ROWS, TALL], dtype=tl.float32)
    for bite in tl.range(0, BITES, num_stages=STAGES):
        xs = tl.load(x + bite * BITE, mask=in_m[:, None], other=0.0)
        ws = tl.load(weight + bite * BITE, mask=in_n[None, :], other=0.0)
        y = tl.dot(xs, ws, y, input_precision=PRECISION)
    if BIAS:
        y = y + bias[None, :]
    y = activated(y, ACT)
    out = out_at + part * part_size + m[:, None] * outputs + n[None, :]
    tl.store(out, y.to(out_at.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


def product_parts(rows: int, inputs: int, outputs: int, *, most: int = 8) -> int | None:
    """In how many parts `batch_product` should take a sum, so that there are enough blocks for the device; None where the
    library is to make the product."""
    if not FEW_ROWS < rows <= SOME_ROWS:
        return None
    able = [n for n in (1, 2, 3, 4, 6, 8) if n <= most and inputs % (n * BITE) == 0 and inputs <= n * LONGEST_SUM]
    enough = [parts for parts in able if parts * outputs >= ENOUGH_BLOCKS * TALL]
    return min(enough, default=max(able, default=None))


def batch_product(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str = "none", parts: int = 1
) -> Tensor:
    """activation(x weight^T + bias), for some dozens of rows. In several `parts`, a stretch of the sum each, the result is
    (parts, rows, out), and neither bias nor activation can be had."""
    assert parts == 1 or (bias is None and activation == "none")
    rows, inputs = x.shape
    outputs = weight.size(0)
    out = torch.empty(parts, rows, outputs, dtype=x.dtype, device=x.device)
    high = max(16, min(64, triton.next_power_of_2(rows)))
    own, line = inputs // parts, 128 // x.element_size()
    batch_product_kernel[(triton.cdiv(outputs, TALL), parts, triton.cdiv(rows, high))](
        x, weight, x if bias is None else bias, out,
        rows, inputs, outputs, rows * outputs,
        ACTIVATIONS[activation], bias is not None, high, TALL, BITE, own // BITE,
        line, triton.next_power_of_2(triton.cdiv(own, line)), STAGES, "ieee" if x.dtype == torch.float32 else "tf32",
        num_warps=PRODUCT_WARPS, **starting(),
    )  # fmt: skip
    return out if parts > 1 else out[0]


@triton.jit
def taken_in(q, ks, vs, seen, highest, share, found):
    """Attention of one query, some keys further."""
    score = tl.sum(ks.to(tl.float32) * q[None, :], axis=1) + seen
    higher = tl.maximum(highest, tl.max(score, axis=0))
    weight = tl.exp(score - higher)
    before = tl.exp(highest - higher)
    share = share * before + tl.sum(weight, axis=0)
    found = found * before + tl.sum(weight[:, None] * vs.to(tl.float32), axis=0)
    return higher, share, found


@triton.jit
def attend_kernel(
    qkv_at, keys_at, values_at, shade_at, column_at, out_at,
    scale, reach, width, key_row, key_head, value_row, value_head,
    shade_row, shade_head,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    PD: tl.constexpr, PDV: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    kv = head // (HEADS // KV_HEADS)
    column = tl.load(column_at)
    d, dv = tl.arange(0, PD), tl.arange(0, PDV)
    in_d, in_dv = d < D, dv < DV
    keys = keys_at + row * key_row + kv * key_head
    values = values_at + row * value_row + kv * value_head
    shade = shade_at + row * shade_row + head * shade_head
    s = tl.arange(0, BLOCK)
    old = (s < reach) & (s != column)
    ks = tl.load(keys + s[:, None] * D + d[None, :], mask=old[:, None] & in_d[None, :], other=0.0)
    vs = tl.load(values + s[:, None] * DV + dv[None, :], mask=old[:, None] & in_dv[None, :], other=0.0)
    seen = tl.load(shade + s, mask=old, other=float("-inf")).to(tl.float32)
    seen_now = tl.load(shade + column).to(tl.float32)
    begin(EARLY)
    mine = qkv_at + row * width
    q = tl.load(mine + head * D + d, mask=in_d, other=0.0).to(tl.float32) * scale
    k = tl.load(mine + HEADS * D + kv * D + d, mask=in_d, other=0.0)
    v = tl.load(mine + (HEADS + KV_HEADS) * D + kv * DV + dv, mask=in_dv, other=0.0)
    tl.store(keys + column * D + d, k, mask=in_d)
    tl.store(values + column * DV + dv, v, mask=in_dv)
    # The new token is taken from where it came, so nobody waits for the store.
    highest = tl.sum(q * k.to(tl.float32), axis=0) + seen_now
    share = highest * 0.0 + 1.0
    found = v.to(tl.float32)
    highest, share, found = taken_in(q, ks, vs, seen, highest, share, found)
    if not ONE:
        start = (column * 0 + BLOCK).to(tl.int32)
        while start < reach:
            t = start + tl.arange(0, BLOCK)
            in_t = (t < reach) & (t != column)
            more_keys = tl.load(keys + t[:, None] * D + d[None, :], mask=in_t[:, None] & in_d[None, :], other=0.0)
            more_values = tl.load(
                values + t[:, None] * DV + dv[None, :], mask=in_t[:, None] & in_dv[None, :], other=0.0
            )
            seen_more = tl.load(shade + t, mask=in_t, other=float("-inf")).to(tl.float32)
            highest, share, found = taken_in(q, more_keys, more_values, seen_more, highest, share, found)
            start += BLOCK
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
    rows, kv_heads, _, size = keys.shape
    value_size = values.size(3)
    out = torch.empty(rows, heads * value_size, dtype=qkv.dtype, device=qkv.device)
    shade_head = 0 if shade.size(1) == 1 else shade.stride(1)
    # Few programs wait for memory, many share it: a few take larger bites.
    few = rows * heads <= FEW_PROGRAMS
    block = min(512 if few else MANY_BLOCK, max(16, triton.next_power_of_2(reach)))
    warps = max(4, min(16, block // 32)) if few else MANY_WARPS
    attend_kernel[(heads, rows)](
        qkv, keys, values, shade, column, out,
        1.0 / math.sqrt(size) if scale is None else scale, reach, qkv.size(1), *keys.stride()[:2], *values.stride()[:2],
        shade.stride(0), shade_head,
        heads, kv_heads, size, value_size,
        triton.next_power_of_2(size), triton.next_power_of_2(value_size), block, reach <= block,
        num_warps=warps, **starting(),
    )  # fmt: skip
    return out


@triton.jit
def all_taken_in(q, ks, vs, seen, scale, highest, share, found, PRECISION: tl.constexpr):
    """The same for the queries of all beams."""
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
    q_at, keys_at, values_at, shade_at, column_at, out_at,
    scale, reach, row_width, shade_sentence, shade_beam,
    key_sentence, key_head, key_column, value_sentence, value_head, value_column,
    BEAMS: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    PD: tl.constexpr, PDV: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr, NEW: tl.constexpr,
    PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    head, sentence = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, d, dv, s = tl.arange(0, ROWS), tl.arange(0, PD), tl.arange(0, PDV), tl.arange(0, BLOCK)
    in_b, in_d, in_dv = b < BEAMS, d < D, dv < DV
    keys = keys_at + sentence * key_sentence + head * key_head
    values = values_at + sentence * value_sentence + head * value_head
    shade = shade_at + sentence * shade_sentence + b[:, None] * shade_beam
    filled = reach
    if NEW:
        filled = tl.load(column_at).to(tl.int32)
    if ONE:
        seen = tl.load(shade + s[None, :], mask=in_b[:, None] & (s < reach)[None, :], other=float("-inf")).to(
            tl.float32
        )
        seen = tl.where((s < filled)[None, :], seen, float("-inf"))
        # A column that is no beam's past is not read at all: a beam soon agrees on all but its last few words.
        used = tl.max(seen, axis=0) > float("-inf")
        ks = tl.load(keys + s[None, :] * key_column + d[:, None], mask=used[None, :] & in_d[:, None], other=0.0)
        vs = tl.load(values + s[:, None] * value_column + dv[None, :], mask=used[:, None] & in_dv[None, :], other=0.0)
    begin(EARLY)
    mine = q_at + (sentence * BEAMS + b)[:, None] * row_width
    q = tl.load(mine + head * D + d[None, :], mask=in_b[:, None] & in_d[None, :], other=0.0)
    if NEW:
        column = filled + b
        k = tl.load(mine + HEADS * D + head * D + d[None, :], mask=in_b[:, None] & in_d[None, :], other=0.0)
        v = tl.load(mine + 2 * HEADS * D + head * DV + dv[None, :], mask=in_b[:, None] & in_dv[None, :], other=0.0)
        tl.store(keys + column[:, None] * key_column + d[None, :], k, mask=in_b[:, None] & in_d[None, :])
        tl.store(values + column[:, None] * value_column + dv[None, :], v, mask=in_b[:, None] & in_dv[None, :])
        # Of the new columns each beam sees its own, and takes it from where it came.
        highest = tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1) * scale
        share = tl.full([ROWS], 1.0, dtype=tl.float32)
        found = v.to(tl.float32)
    else:
        highest = tl.full([ROWS], float("-inf"), dtype=tl.float32)
        share = tl.zeros([ROWS], dtype=tl.float32)
        found = tl.zeros([ROWS, PDV], dtype=tl.float32)
    if ONE:
        highest, share, found = all_taken_in(q, ks, vs, seen, scale, highest, share, found, PRECISION)
    else:
        start = filled * 0
        while start < reach:
            t = start + tl.arange(0, BLOCK)
            in_t = (t < filled)[None, :]
            seen = tl.load(shade + t[None, :], mask=in_b[:, None] & in_t, other=float("-inf")).to(tl.float32)
            used = tl.max(seen, axis=0) > float("-inf")
            ks = tl.load(keys + t[None, :] * key_column + d[:, None], mask=used[None, :] & in_d[:, None], other=0.0)
            vs = tl.load(
                values + t[:, None] * value_column + dv[None, :], mask=used[:, None] & in_dv[None, :], other=0.0
            )
            highest, share, found = all_taken_in(q, ks, vs, seen, scale, highest, share, found, PRECISION)
            start += BLOCK
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
    D), in whatever order but for the last; shade (N, K or 1, >= reach)."""
    sentences, heads, _, size = keys.shape
    value_size = values.size(3)
    out = torch.empty(sentences * beams, heads * value_size, dtype=q.dtype, device=q.device)
    # The fewer registers a block holds, the more of them wait for memory at the same time.
    block = max(16, triton.next_power_of_2(reach)) if reach <= ONE_BITE else SEVERAL_BITES
    wide = max(16, triton.next_power_of_2(size))
    beams_kernel[(heads, sentences)](
        q, keys, values, shade, q if column is None else column, out,
        1.0 / math.sqrt(size) if scale is None else scale, reach, q.stride(0),
        shade.stride(0), 0 if shade.size(1) == 1 else shade.stride(1),
        *keys.stride()[:3], *values.stride()[:3],
        beams, heads, size, value_size,
        wide, max(16, triton.next_power_of_2(value_size)),
        max(16, triton.next_power_of_2(beams)), block, reach <= block, column is not None,
        "ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=max(1, wide * block // 4096) if q.element_size() == 2 else 4, num_stages=1, **starting(),
    )  # fmt: skip
    return out


@triton.jit
def rows_kernel(
    qkv_at, real_at, out_at, scale, width, row_width,
    HEADS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    head, sentence = tl.program_id(0), tl.program_id(1).to(tl.int64)
    t, d, dv = tl.arange(0, ROWS), tl.arange(0, PD), tl.arange(0, PDV)
    in_t, in_d, in_dv = t < width, d < D, dv < DV
    at = qkv_at + (sentence * width + t) * row_width
    q = tl.load(at[:, None] + head * D + d[None, :], mask=in_t[:, None] & in_d[None, :], other=0.0)
    k = tl.load(at[None, :] + HEADS * D + head * D + d[:, None], mask=in_t[None, :] & in_d[:, None], other=0.0)
    v = tl.load(at[:, None] + 2 * HEADS * D + head * DV + dv[None, :], mask=in_t[:, None] & in_dv[None, :], other=0.0)
    real = tl.load(real_at + sentence * width + t, mask=in_t, other=0) != 0
    score = tl.where(real[None, :], tl.dot(q, k, input_precision=PRECISION) * scale, float("-inf"))
    highest = tl.max(score, axis=1)
    weight = tl.exp(score - tl.where(highest == float("-inf"), 0.0, highest)[:, None])
    share = tl.sum(weight, axis=1)
    found = tl.dot(weight.to(v.dtype), v, input_precision=PRECISION) / tl.where(share == 0.0, 1.0, share)[:, None]
    out = out_at + (sentence * width + t)[:, None] * (HEADS * DV) + head * DV + dv[None, :]
    tl.store(out, found.to(out_at.dtype.element_ty), mask=in_t[:, None] & in_dv[None, :])


def attend_rows(qkv: Tensor, real: Tensor, *, heads: int, value_size: int, scale: float | None) -> Tensor:
    """What the heads of every word find among the real words of its sentence, before and behind it. qkv (N W, 2 H D + H
    Dv); real (N, W), W elements of at most MOST_BYTES."""
    sentences, width = real.shape
    size = (qkv.size(1) - heads * value_size) // (2 * heads)
    out = torch.empty(sentences * width, heads * value_size, dtype=qkv.dtype, device=qkv.device)
    tall = max(16, triton.next_power_of_2(width))
    rows_kernel[(heads, sentences)](
        qkv, real.view(torch.int8), out, 1.0 / math.sqrt(size) if scale is None else scale, width, qkv.stride(0),
        heads, size, value_size, max(16, triton.next_power_of_2(size)), max(16, triton.next_power_of_2(value_size)), tall,
        "ieee" if qkv.dtype == torch.float32 else "tf32",
        num_warps=2 if tall <= 32 else 4, **starting(),
    )  # fmt: skip
    return out


@triton.jit
def add_norm_kernel(
    x_at, change_at, bias_at, gain_at, shift_at, sum_at, out_at, width, part_size, eps,
    NORM: tl.constexpr, SHIFT: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr, KEEP: tl.constexpr,
    WIDE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDE)
    inside = c < width
    if NORM > 0:
        gain = tl.load(gain_at + c, mask=inside, other=0.0).to(tl.float32)
        if SHIFT:
            shift = tl.load(shift_at + c, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        bias = tl.load(bias_at + c, mask=inside, other=0.0).to(tl.float32)
    begin(EARLY)
    x = tl.load(x_at + row * width + c, mask=inside, other=0.0).to(tl.float32)
    if PARTS > 0:
        change = tl.load(change_at + row * width + c, mask=inside, other=0.0).to(tl.float32)
        for part in tl.static_range(1, PARTS):
            change += tl.load(change_at + part * part_size + row * width + c, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            change += bias
        x = (x + change).to(out_at.dtype.element_ty).to(tl.float32)  # as it is kept
    if KEEP:
        tl.store(sum_at + row * width + c, x.to(out_at.dtype.element_ty), mask=inside)
    if NORM == 1:
        x = tl.where(inside, x - tl.sum(x, axis=0) / width, 0.0)
    if NORM > 0:
        x = x / tl.sqrt(tl.sum(x * x, axis=0) / width + eps) * gain
        if SHIFT:
            x = x + shift
    tl.store(out_at + row * width + c, x.to(out_at.dtype.element_ty), mask=inside)


def add_norm(
    x: Tensor,
    change: Tensor | None,
    norm: tuple[str, Tensor, Tensor | None, float] | None,
    *,
    keep: bool,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """x + change + bias (kept only where asked), and its norm. A change may come in parts, one above the other."""
    rows, width = x.shape
    kind, gain, shift, eps = norm or ("none", x, None, 0.0)
    out = torch.empty_like(x)
    total = torch.empty_like(x) if keep and change is not None else x
    wide = triton.next_power_of_2(width)
    parts = 0 if change is None else change.size(0) if change.dim() == 3 else 1
    add_norm_kernel[(rows,)](
        x, x if change is None else change, x if bias is None else bias, gain, x if shift is None else shift, total, out,
        width, rows * width, eps,
        NORMS[kind], shift is not None, parts, bias is not None, keep and change is not None, wide,
        num_warps=max(1, min(8, wide // 256)), **starting(),
    )  # fmt: skip
    return total, out


@triton.jit
def embed_kernel(
    tokens_at, lengths_at, column_at, table_at, positions_at, shade_at, out_at,
    factor, width, shade_sentence, shade_beam,
    BEAMS: tl.constexpr, K: tl.constexpr, POSITIONS: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    sentence, beam = row // BEAMS, row % BEAMS
    c, b = tl.arange(0, WIDE), tl.arange(0, K)
    inside = c < width
    token, place = tl.load(tokens_at + row), tl.load(lengths_at + sentence)
    x = tl.load(table_at + token * width + c, mask=inside, other=0.0).to(tl.float32) * factor
    if POSITIONS:
        x = x + tl.load(positions_at + place * width + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_at + row * width + c, x.to(out_at.dtype.element_ty), mask=inside)
    shade = shade_at + sentence * shade_sentence + beam * shade_beam + tl.load(column_at)
    tl.store(shade + b, tl.where(b == beam, 0.0, float("-inf")), mask=b < BEAMS)


def embed(
    tokens: Tensor,
    lengths: Tensor,
    column: Tensor,
    table: Tensor,
    positions: Tensor | None,
    shade: Tensor,
    factor: float,
    sentences: int,
) -> Tensor:
    """The new tokens of the first sentences with their positions; of the new columns each row sees its own. tokens (N, K);
    shade (N, K, S)."""
    width, beams = table.size(1), tokens.size(1)
    out = torch.empty(sentences * beams, width, dtype=table.dtype, device=table.device)
    embed_kernel[(sentences * beams,)](
        tokens, lengths, column, table, table if positions is None else positions, shade, out,
        factor, width, shade.stride(0), shade.stride(1),
        beams, triton.next_power_of_2(beams), positions is not None, triton.next_power_of_2(width), **starting(),
    )  # fmt: skip
    return out
