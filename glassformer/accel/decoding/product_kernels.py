"""Kernels for what is not attention: matrix products for few rows and for some dozens of rows, and the residual sum with its
norm.

With one row, or a few, a step's time is the number of kernels and the reading of the weights. So what belongs together is one
kernel: a norm, the product that follows it, its bias, its activation and the residual (`gemv`, a matrix-vector product for
each row). With some dozens of rows a block takes all of them through its tile of the weights, which it prefetches before its
turn has come (`split_k_matmul`); long sums are split along K, so that there are enough blocks. With many rows products are
the library's, and the time is in what stands between them: `add_norm`.

Matrices are row-major: x (R, K), weight (N, K) as torch.nn.Linear has it. All sums are float32, whatever the weights are.
What a kernel computes is said in the first line of its docstring, and by operations.py, to which it is held.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.accel.decoding.kernel_start import launch_options, multiprocessors, wait_for_previous

GEMV_ROWS = 8  # up to so many rows: `gemv`
SPLIT_K_ROWS = 64  # up to so many rows: `split_k_matmul`; more are the library's
BLOCK_K, STAGES = 64, 4  # its tiles along K, and how many of them are loaded ahead
BLOCK_N, MATMUL_WARPS = 32, 4  # its tiles along N
MAX_K = 1024  # that one of its programs sums over; a longer sum that may not be split is the library's
NORMS = {"none": 0, "layer": 1, "rms": 2}
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "relu2": 4}


class Norm(NamedTuple):
    """A norm as kernels take it: its kind, gain (C,), shift (C,) or none, and epsilon."""

    kind: str
    gain: Tensor
    shift: Tensor | None
    eps: float


class MatmulPointers(NamedTuple):
    """x (R, K); weight (N, K); bias (N,); residual (R, N); gain and shift (K,); out (R, N). What is absent is x, and not read."""

    x: Any
    weight: Any
    bias: Any
    residual: Any
    gain: Any
    shift: Any
    out: Any


class GemvSizes(NamedTuple):
    """Inputs K, outputs N, and the norm's epsilon."""

    inputs: Any
    outputs: Any
    eps: Any


@triton.jit
def apply_activation(y, ACT: tl.constexpr):
    """relu, gelu, gelu_tanh or relu2 (ACT: a number of ACTIVATIONS) of a tile, element by element."""
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
def gemv_kernel(
    ptr, sizes,
    NORM: tl.constexpr, ACT: tl.constexpr, BIAS: tl.constexpr, SHIFT: tl.constexpr, RESIDUAL: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out[r, n] = act(norm(x[r]) . weight[n] + bias[n]) + residual[r, n].

    Grid (N / BLOCK_N, R); a program makes BLOCK_N outputs of one row from one tile BLOCK_N x BLOCK_K of the weight, K <= BLOCK_K.
    Memory: MatmulPointers, all contiguous. NORM and ACT are numbers of NORMS and ACTIVATIONS."""
    row = tl.program_id(1)
    k = tl.arange(0, BLOCK_K)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_k, in_n = k < sizes.inputs, n < sizes.outputs
    tile = ptr.weight + n[:, None].to(tl.int64) * sizes.inputs + k[None, :]
    weight = tl.load(tile, mask=in_n[:, None] & in_k[None, :], other=0.0)
    if NORM > 0:
        gain = tl.load(ptr.gain + k, mask=in_k, other=0.0).to(tl.float32)
        if SHIFT:
            shift = tl.load(ptr.shift + k, mask=in_k, other=0.0).to(tl.float32)
    if BIAS:
        bias = tl.load(ptr.bias + n, mask=in_n, other=0.0).to(tl.float32)
    wait_for_previous(PDL)
    x = tl.load(ptr.x + row * sizes.inputs + k, mask=in_k, other=0.0).to(tl.float32)
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
    y = apply_activation(y, ACT)
    if RESIDUAL:
        y = y + tl.load(ptr.residual + row * sizes.outputs + n, mask=in_n, other=0.0).to(tl.float32)
    tl.store(ptr.out + row.to(tl.int64) * sizes.outputs + n, y.to(ptr.out.dtype.element_ty), mask=in_n)


def gemv(
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
    ptr = MatmulPointers(
        x,
        weight,
        x if bias is None else bias,
        x if residual is None else residual,
        gain,
        x if shift is None else shift,
        out,
    )
    gemv_kernel[(triton.cdiv(outputs, block_n), rows)](
        ptr, GemvSizes(inputs, outputs, eps),
        NORMS[kind], ACTIVATIONS[activation], bias is not None, shift is not None, residual is not None,
        block_k, block_n, num_warps=4 if block_k * block_n <= 4096 else 8, **launch_options(),
    )  # fmt: skip
    return out


@triton.jit
def prefetch_l2(ptr):
    """Prefetch the 128 bytes around each address (none around 0) into the L2 cache."""
    tl.inline_asm_elementwise(
        "{ .reg .pred some; setp.ne.s64 some, $1, 0; @some prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
        "=r,l", [ptr], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


class MatmulSizes(NamedTuple):
    """Rows R, inputs K, outputs N."""

    rows: Any
    inputs: Any
    outputs: Any


@triton.jit
def split_k_matmul_kernel(
    ptr, sizes,
    ACT: tl.constexpr, BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TILE: tl.constexpr,
    CACHE_LINES: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out[p, m, n] = act(sum over k in part p of x[m, k] weight[n, k] + bias[n]).

    Grid (N / BLOCK_N, split_k, R / BLOCK_M); a program makes a BLOCK_M x BLOCK_N tile of one part's sum. Memory: x (R, K), weight
    (N, K), out (split_k, R, N), all contiguous. TILE is (BLOCK_K, tiles of a part along K, pipeline stages); CACHE_LINES is
    (elements of a cache line, lines of a part's row rounded up)."""
    BLOCK_K: tl.constexpr = TILE[0]
    N_TILES: tl.constexpr = TILE[1]
    N_STAGES: tl.constexpr = TILE[2]
    LINE_SIZE: tl.constexpr = CACHE_LINES[0]
    N_LINES: tl.constexpr = CACHE_LINES[1]
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    in_n, in_m = n < sizes.outputs, m < sizes.rows
    row_ptr = ptr.weight + n.to(tl.int64) * sizes.inputs + part * (BLOCK_K * N_TILES)
    if PDL:
        line = tl.arange(0, N_LINES) * LINE_SIZE
        line_mask = in_n[:, None] & (line < BLOCK_K * N_TILES)[None, :]
        prefetch_l2(tl.where(line_mask, (row_ptr[:, None] + line[None, :]).to(tl.int64), 0))
    if BIAS:
        bias = tl.load(ptr.bias + n, mask=in_n, other=0.0).to(tl.float32)
    wait_for_previous(PDL)
    k = tl.arange(0, BLOCK_K)
    x_ptr = ptr.x + m[:, None] * sizes.inputs + part * (BLOCK_K * N_TILES) + k[None, :]
    weight_ptr = row_ptr[None, :] + k[:, None]
    y = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for i in tl.range(0, N_TILES, num_stages=N_STAGES):
        xs = tl.load(x_ptr + i * BLOCK_K, mask=in_m[:, None], other=0.0)
        ws = tl.load(weight_ptr + i * BLOCK_K, mask=in_n[None, :], other=0.0)
        y = tl.dot(xs, ws, y, input_precision=PRECISION)
    if BIAS:
        y = y + bias[None, :]
    y = apply_activation(y, ACT)
    out_ptr = ptr.out + part * (sizes.rows * sizes.outputs) + m[:, None] * sizes.outputs + n[None, :]
    tl.store(out_ptr, y.to(ptr.out.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


def choose_split_k(rows: int, inputs: int, outputs: int, *, max_split_k: int = 8) -> int | None:
    """Into how many parts `split_k_matmul` should split K, so that there is a block for every multiprocessor; None where the
    library is to make the product."""
    if not GEMV_ROWS < rows <= SPLIT_K_ROWS:
        return None
    possible = [
        n for n in (1, 2, 3, 4, 6, 8) if n <= max_split_k and inputs % (n * BLOCK_K) == 0 and inputs <= n * MAX_K
    ]
    sufficient = [split_k for split_k in possible if split_k * outputs >= multiprocessors() * BLOCK_N]
    return min(sufficient, default=max(possible, default=None))


def split_k_matmul(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str = "none", split_k: int = 1
) -> Tensor:
    """activation(x weight^T + bias), for x (R, K) of some dozens of rows. With `split_k` above 1 the result is (split_k, R, N),
    partial sums over a part of K each, without bias and activation."""
    rows, inputs = x.shape
    outputs = weight.size(0)
    out = torch.empty(split_k, rows, outputs, dtype=x.dtype, device=x.device)
    block_m = max(16, min(64, triton.next_power_of_2(rows)))
    own, line = inputs // split_k, 128 // x.element_size()
    split_k_matmul_kernel[(triton.cdiv(outputs, BLOCK_N), split_k, triton.cdiv(rows, block_m))](
        MatmulPointers(x, weight, x if bias is None else bias, x, x, x, out), MatmulSizes(rows, inputs, outputs),
        ACTIVATIONS[activation], bias is not None, block_m, BLOCK_N, (BLOCK_K, own // BLOCK_K, STAGES),
        (line, triton.next_power_of_2(triton.cdiv(own, line))), "ieee" if x.dtype == torch.float32 else "tf32",
        num_warps=MATMUL_WARPS, **launch_options(),
    )  # fmt: skip
    return out if split_k > 1 else out[0]


class AddNormPointers(NamedTuple):
    """x and out (R, C); change (split_k, R, C); bias, gain and shift (C,); total (R, C). What is absent is x, and not read."""

    x: Any
    change: Any
    bias: Any
    gain: Any
    shift: Any
    total: Any
    out: Any


class AddNormSizes(NamedTuple):
    """Width C, elements of one part of change (R C), the norm's epsilon."""

    width: Any
    part: Any
    eps: Any


@triton.jit
def add_norm_kernel(
    ptr, sizes,
    NORM: tl.constexpr, SHIFT: tl.constexpr, SPLIT_K: tl.constexpr, BIAS: tl.constexpr, KEEP: tl.constexpr,
    BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """total[r] = x[r] + change[:, r].sum(0) + bias; out[r] = norm(total[r]).

    Grid (R,); a program takes a row as one tile, C <= BLOCK_C. Memory: AddNormPointers, all contiguous. KEEP: total is stored."""
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK_C)
    in_c = c < sizes.width
    if NORM > 0:
        gain = tl.load(ptr.gain + c, mask=in_c, other=0.0).to(tl.float32)
        if SHIFT:
            shift = tl.load(ptr.shift + c, mask=in_c, other=0.0).to(tl.float32)
    if BIAS:
        bias = tl.load(ptr.bias + c, mask=in_c, other=0.0).to(tl.float32)
    wait_for_previous(PDL)
    offset = row * sizes.width + c
    x = tl.load(ptr.x + offset, mask=in_c, other=0.0).to(tl.float32)
    if SPLIT_K > 0:
        change = tl.load(ptr.change + offset, mask=in_c, other=0.0).to(tl.float32)
        for part in tl.static_range(1, SPLIT_K):
            change += tl.load(ptr.change + part * sizes.part + offset, mask=in_c, other=0.0).to(tl.float32)
        if BIAS:
            change += bias
        x = (x + change).to(ptr.out.dtype.element_ty).to(tl.float32)  # as it is kept
    if KEEP:
        tl.store(ptr.total + offset, x.to(ptr.out.dtype.element_ty), mask=in_c)
    if NORM == 1:
        x = tl.where(in_c, x - tl.sum(x, axis=0) / sizes.width, 0.0)
    if NORM > 0:
        x = x / tl.sqrt(tl.sum(x * x, axis=0) / sizes.width + sizes.eps) * gain
        if SHIFT:
            x = x + shift
    tl.store(ptr.out + offset, x.to(ptr.out.dtype.element_ty), mask=in_c)


def add_norm(
    x: Tensor, change: Tensor | None, norm: Norm | None, *, keep: bool, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x + change + bias (stored only with `keep`), and its norm. A change (split_k, R, C) comes as partial sums."""
    rows, width = x.shape
    kind, gain, shift, eps = norm or Norm("none", x, None, 0.0)
    out = torch.empty_like(x)
    total = torch.empty_like(x) if keep and change is not None else x
    block_c = triton.next_power_of_2(width)
    split_k = 0 if change is None else change.size(0) if change.dim() == 3 else 1
    ptr = AddNormPointers(
        x, x if change is None else change, x if bias is None else bias, gain, x if shift is None else shift, total, out
    )
    add_norm_kernel[(rows,)](
        ptr, AddNormSizes(width, rows * width, eps),
        NORMS[kind], shift is not None, split_k, bias is not None, keep and change is not None, block_c,
        num_warps=max(1, min(8, block_c // 256)), **launch_options(),
    )  # fmt: skip
    return total, out
