"""Kernels for what is not attention: products for few rows and some rows, and a sum with its norm.

With one row, or a few, a step's time is the number of kernels and the reading of the weights. So what belongs together is
one kernel: a norm, the product that follows it, its bias, its activation and the residual (`row_product`). With some dozens
of rows a block takes all of them through its part of the weights, which it calls for before its turn has come
(`batch_product`); long sums in parts, so that there are enough blocks. With many rows products are the library's, and the
time is in what stands between them: `add_norm`.

All sums are float32, whatever the weights are. What a kernel computes is said in one line of its docstring, and by
ops/torch.py, to which it is held.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.decode.ops.kernel_start import launch_options, multiprocessors, wait_for_previous

FEW_ROWS = 8  # up to here each row goes through the weights for itself
SOME_ROWS = 64  # up to here a block takes all rows through its part of the weights
BLOCK_K, STAGES = 64, 4  # of a sum, that such a block takes at a time; tiles on their way to it at a time
BLOCK_N, PRODUCT_WARPS = 32, 4  # of the outputs, that such a block makes
LONGEST_SUM = 1024  # of a block; a product with a longer one, where it may not be in parts, is the library's
NORMS = {"none": 0, "layer": 1, "rms": 2}
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "relu2": 4}


class Norm(NamedTuple):
    """A norm as kernels take it: its kind, gain (C,), shift (C,) or none, and epsilon."""

    kind: str
    gain: Tensor
    shift: Tensor | None
    eps: float


class ProductPointers(NamedTuple):
    """x (R, K); weight (N, K); bias (N,); residual (R, N); gain and shift (K,); out (R, N). What is not there is x."""

    x: Any
    weight: Any
    bias: Any
    residual: Any
    gain: Any
    shift: Any
    out: Any


class ProductSizes(NamedTuple):
    """Of a product: inputs K, outputs N, and the norm's epsilon."""

    inputs: Any
    outputs: Any
    eps: Any


@triton.jit
def activated(y, ACT: tl.constexpr):
    """relu, gelu, gelu_tanh or relu2 of a tile."""
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
def row_product_kernel(
    at, sizes,
    NORM: tl.constexpr, ACT: tl.constexpr, BIAS: tl.constexpr, SHIFT: tl.constexpr, RESIDUAL: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out[r, n] = act(norm(x[r]) . weight[n] + bias[n]) + residual[r, n].

    Grid (N / BLOCK_N, R); a program makes BLOCK_N outputs of one row and reads the whole row, K <= BLOCK_K."""
    row = tl.program_id(1)
    k = tl.arange(0, BLOCK_K)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_k, in_n = k < sizes.inputs, n < sizes.outputs
    tile = at.weight + n[:, None].to(tl.int64) * sizes.inputs + k[None, :]
    weight = tl.load(tile, mask=in_n[:, None] & in_k[None, :], other=0.0)
    if NORM > 0:
        gain = tl.load(at.gain + k, mask=in_k, other=0.0).to(tl.float32)
        if SHIFT:
            shift = tl.load(at.shift + k, mask=in_k, other=0.0).to(tl.float32)
    if BIAS:
        bias = tl.load(at.bias + n, mask=in_n, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    x = tl.load(at.x + row * sizes.inputs + k, mask=in_k, other=0.0).to(tl.float32)
    if NORM == 1:
        mean = tl.sum(x, axis=0) / sizes.inputs
        x = tl.where(in_k, x - mean, 0.0)
    if NORM > 0:
        x = x / tl.sqrt(tl.sum(x * x, axis=0) / sizes.inputs + sizes.eps) * gain
        if SHIFT:
            x = x + shift
    y = tl.sum(weight.to(tl.float32) * x[None, :], axis=1)
    if BIAS:
        y = y + bias
    y = activated(y, ACT)
    if RESIDUAL:
        y = y + tl.load(at.residual + row * sizes.outputs + n, mask=in_n, other=0.0).to(tl.float32)
    tl.store(at.out + row.to(tl.int64) * sizes.outputs + n, y.to(at.out.dtype.element_ty), mask=in_n)


def row_product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: Norm | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """activation(norm(x) weight^T + bias) + residual, for x (R, K) of few rows and weight (N, K)."""
    rows, inputs = x.shape
    outputs = weight.size(0)
    out = torch.empty(rows, outputs, dtype=dtype or x.dtype, device=x.device)
    kind, gain, shift, eps = norm or Norm("none", x, None, 0.0)
    block_k = triton.next_power_of_2(inputs)
    # Enough programs for every multiprocessor, and enough bytes in each to be worth its start.
    block_n = max(1, min(16, 8192 // block_k))
    while block_n > 1 and rows * outputs < 4 * multiprocessors() * block_n:
        block_n //= 2
    at = ProductPointers(
        x,
        weight,
        x if bias is None else bias,
        x if residual is None else residual,
        gain,
        x if shift is None else shift,
        out,
    )
    row_product_kernel[(triton.cdiv(outputs, block_n), rows)](
        at, ProductSizes(inputs, outputs, eps),
        NORMS[kind], ACTIVATIONS[activation], bias is not None, shift is not None, residual is not None,
        block_k, block_n, num_warps=4 if block_k * block_n <= 4096 else 8, **launch_options(),
    )  # fmt: skip
    return out


@triton.jit
def fetch_ahead(at):
    """Have what stands there (the 128 bytes around each address; none around 0) brought into the second cache."""
    tl.inline_asm_elementwise(
        "{ .reg .pred some; setp.ne.s64 some, $1, 0; @some prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
        "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


class BatchSizes(NamedTuple):
    """Of a product in parts: rows R, inputs K, outputs N."""

    rows: Any
    inputs: Any
    outputs: Any


@triton.jit
def batch_product_kernel(
    at, sizes,
    ACT: tl.constexpr, BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TILE: tl.constexpr,
    LINES: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out[p, m, n] = act(sum over k of part p of x[m, k] weight[n, k] + bias[n]).

    Grid (N / BLOCK_N, parts, R / BLOCK_M); a program makes a BLOCK_M x BLOCK_N tile of one part's sum. TILE is (BLOCK_K, how many
    of them a part has, stages); LINES is (elements of a line of cache, how many of them a part's row has, rounded up)."""
    BLOCK_K: tl.constexpr = TILE[0]
    TILES: tl.constexpr = TILE[1]
    N_STAGES: tl.constexpr = TILE[2]
    LINE: tl.constexpr = LINES[0]
    N_LINES: tl.constexpr = LINES[1]
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    in_n, in_m = n < sizes.outputs, m < sizes.rows
    own = at.weight + n.to(tl.int64) * sizes.inputs + part * (BLOCK_K * TILES)
    if EARLY:
        line = tl.arange(0, N_LINES) * LINE
        wanted = in_n[:, None] & (line < BLOCK_K * TILES)[None, :]
        fetch_ahead(tl.where(wanted, (own[:, None] + line[None, :]).to(tl.int64), 0))
    if BIAS:
        bias = tl.load(at.bias + n, mask=in_n, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    k = tl.arange(0, BLOCK_K)
    x = at.x + m[:, None] * sizes.inputs + part * (BLOCK_K * TILES) + k[None, :]
    weight = own[None, :] + k[:, None]
    y = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for i in tl.range(0, TILES, num_stages=N_STAGES):
        xs = tl.load(x + i * BLOCK_K, mask=in_m[:, None], other=0.0)
        ws = tl.load(weight + i * BLOCK_K, mask=in_n[None, :], other=0.0)
        y = tl.dot(xs, ws, y, input_precision=PRECISION)
    if BIAS:
        y = y + bias[None, :]
    y = activated(y, ACT)
    out = at.out + part * (sizes.rows * sizes.outputs) + m[:, None] * sizes.outputs + n[None, :]
    tl.store(out, y.to(at.out.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


def product_parts(rows: int, inputs: int, outputs: int, *, most: int = 8) -> int | None:
    """In how many parts `batch_product` should take a sum, so that there is a block for every multiprocessor; None where the
    library is to make the product."""
    if not FEW_ROWS < rows <= SOME_ROWS:
        return None
    able = [n for n in (1, 2, 3, 4, 6, 8) if n <= most and inputs % (n * BLOCK_K) == 0 and inputs <= n * LONGEST_SUM]
    enough = [parts for parts in able if parts * outputs >= multiprocessors() * BLOCK_N]
    return min(enough, default=max(able, default=None))


def batch_product(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str = "none", parts: int = 1
) -> Tensor:
    """activation(x weight^T + bias), for x (R, K) of some dozens of rows. In several `parts`, a stretch of the sum each, the
    result is (parts, R, N), and neither bias nor activation can be had."""
    rows, inputs = x.shape
    outputs = weight.size(0)
    out = torch.empty(parts, rows, outputs, dtype=x.dtype, device=x.device)
    block_m = max(16, min(64, triton.next_power_of_2(rows)))
    own, line = inputs // parts, 128 // x.element_size()
    batch_product_kernel[(triton.cdiv(outputs, BLOCK_N), parts, triton.cdiv(rows, block_m))](
        ProductPointers(x, weight, x if bias is None else bias, x, x, x, out), BatchSizes(rows, inputs, outputs),
        ACTIVATIONS[activation], bias is not None, block_m, BLOCK_N, (BLOCK_K, own // BLOCK_K, STAGES),
        (line, triton.next_power_of_2(triton.cdiv(own, line))), "ieee" if x.dtype == torch.float32 else "tf32",
        num_warps=PRODUCT_WARPS, **launch_options(),
    )  # fmt: skip
    return out if parts > 1 else out[0]


class SumPointers(NamedTuple):
    """x and out (R, C); change (parts, R, C); bias, gain and shift (C,); total (R, C). What is not there is x."""

    x: Any
    change: Any
    bias: Any
    gain: Any
    shift: Any
    total: Any
    out: Any


class SumSizes(NamedTuple):
    """Of a sum: width C, elements of a part, epsilon."""

    width: Any
    part: Any
    eps: Any


@triton.jit
def add_norm_kernel(
    at, sizes,
    NORM: tl.constexpr, SHIFT: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr, KEEP: tl.constexpr,
    BLOCK_C: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """total = x + sum of change's parts + bias; out = norm(total).        Grid (R,): a program takes a row, C <= BLOCK_C."""
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK_C)
    inside = c < sizes.width
    if NORM > 0:
        gain = tl.load(at.gain + c, mask=inside, other=0.0).to(tl.float32)
        if SHIFT:
            shift = tl.load(at.shift + c, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        bias = tl.load(at.bias + c, mask=inside, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    here = row * sizes.width + c
    x = tl.load(at.x + here, mask=inside, other=0.0).to(tl.float32)
    if PARTS > 0:
        change = tl.load(at.change + here, mask=inside, other=0.0).to(tl.float32)
        for part in tl.static_range(1, PARTS):
            change += tl.load(at.change + part * sizes.part + here, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            change += bias
        x = (x + change).to(at.out.dtype.element_ty).to(tl.float32)  # as it is kept
    if KEEP:
        tl.store(at.total + here, x.to(at.out.dtype.element_ty), mask=inside)
    if NORM == 1:
        x = tl.where(inside, x - tl.sum(x, axis=0) / sizes.width, 0.0)
    if NORM > 0:
        x = x / tl.sqrt(tl.sum(x * x, axis=0) / sizes.width + sizes.eps) * gain
        if SHIFT:
            x = x + shift
    tl.store(at.out + here, x.to(at.out.dtype.element_ty), mask=inside)


def add_norm(
    x: Tensor, change: Tensor | None, norm: Norm | None, *, keep: bool, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x + change + bias (kept only where asked), and its norm. A change may come in parts, one above the other."""
    rows, width = x.shape
    kind, gain, shift, eps = norm or Norm("none", x, None, 0.0)
    out = torch.empty_like(x)
    total = torch.empty_like(x) if keep and change is not None else x
    block_c = triton.next_power_of_2(width)
    parts = 0 if change is None else change.size(0) if change.dim() == 3 else 1
    at = SumPointers(
        x, x if change is None else change, x if bias is None else bias, gain, x if shift is None else shift, total, out
    )
    add_norm_kernel[(rows,)](
        at, SumSizes(width, rows * width, eps),
        NORMS[kind], shift is not None, parts, bias is not None, keep and change is not None, block_c,
        num_warps=max(1, min(8, block_c // 256)), **launch_options(),
    )  # fmt: skip
    return total, out
