"""Kernels for the loss on a CUDA device: from the logits to the loss and its gradient, reading the logits once.

The logits of a step are its largest tensor (GPT-2, 64 x 1024 positions: 6.6 GB in bfloat16), and what is done with them
outside the matrix products is reading and writing. The loss is the end of the computation, so its gradient

    softmax(logits) - (1 - s) [token is the label] - s / vocab_size

is known as soon as the logits are, but for the upstream gradient, one factor that the products can be given afterwards. A
program takes a row, finds its largest logit and its sum, and while the row is still in the cache goes over it again and writes
the gradient in its place (`softmax_gradient`). The compiler, which sees the loss and its gradient as two functions with the
whole model between them, has to read the logits three times.

For products in 8 bits (see fp8.py) the gradient, which lies between -1 and 1, is written times 2^15 as float8_e5m2, in both
the orders that the two products want (`softmax_gradient8`).

Written in Triton, which comes with torch where torch knows a CUDA device; the module is imported only there. What the
kernels compute is said by the torch code of output_loss.py, to which they are held by Triton's interpreter on a CPU. To torch
each is a custom operator, which a compiler takes as it is.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.accel.fp8 import LOSS_SCALE
from glassformer.nn.loss import IGNORE

MAX_BLOCK_V = 2048
COLUMNS_PER_WARP = 512
TILE = 128
TILE_WARPS = 8


@triton.jit
def row_kernel(
    logits_ptr, labels_ptr, loss_ptr, grad_ptr,
    vocab_size, smoothing, scale,
    COLUMNS: tl.constexpr, SMOOTH: tl.constexpr, BLOCK_V: tl.constexpr, IGNORED: tl.constexpr,
):  # fmt: skip
    """loss[r] = logsumexp(s) - (1 - smoothing) s[label] - smoothing mean(s), of the first `vocab_size` of a row s of logits; and
    the gradient of the module's docstring, times `scale`, in the type of what `grad_ptr` points to.

    Grid (R,): a program takes a row and goes over it twice, BLOCK_V columns at a time, each lane with a maximum and a sum of its
    own; from the end back the second time. Memory: logits and gradients (R, COLUMNS), a row after the other; `grad_ptr` may be
    `logits_ptr`; labels and loss (R,)."""
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * COLUMNS
    label = tl.load(labels_ptr + row)
    counts = (label >= 0) & (label < vocab_size)
    label_logit = tl.load(logits_ptr + tl.where(counts, label, 0)).to(tl.float32)
    k = tl.arange(0, BLOCK_V)
    # Every lane has a maximum and a sum of its own, so that none waits for the others before the row has been read.
    running_max = tl.full([BLOCK_V], -1e30, tl.float32)
    exp_sum = tl.zeros([BLOCK_V], tl.float32)
    logit_sum = tl.zeros([BLOCK_V], tl.float32)
    for start in range(0, COLUMNS, BLOCK_V):
        # Asked for by columns, a round number, so that a thread takes many at a time; vocab_size is none.
        s = tl.load(logits_ptr + start + k, mask=start + k < COLUMNS, other=-float("inf")).to(tl.float32)
        s = tl.where(start + k < vocab_size, s, -float("inf"))
        new_max = tl.maximum(running_max, s)
        exp_sum = exp_sum * tl.exp(running_max - new_max) + tl.exp(s - new_max)
        running_max = new_max
        if SMOOTH:
            logit_sum += tl.where(start + k < vocab_size, s, 0.0)
    row_max = tl.max(running_max, axis=0)
    log_sum_exp = row_max + tl.log(tl.sum(exp_sum * tl.exp(running_max - row_max), axis=0))
    loss = log_sum_exp - (1.0 - smoothing) * label_logit
    if SMOOTH:
        loss -= smoothing / vocab_size * tl.sum(logit_sum, axis=0)
    # A label outside the vocabulary that is not IGNORED either: the trainer refuses a loss that is no number.
    tl.store(loss_ptr + row, tl.where(counts, loss, tl.where(label == IGNORED, 0.0, float("nan"))))
    # From the end back: what was read last is nearest.
    for done in range(0, COLUMNS, BLOCK_V):
        n = (COLUMNS - 1) // BLOCK_V * BLOCK_V - done + k
        s = tl.load(logits_ptr + n, mask=n < COLUMNS, other=-float("inf")).to(tl.float32)
        grad = tl.exp(s - log_sum_exp) - tl.where(n == label, 1.0 - smoothing, 0.0)
        if SMOOTH:
            grad -= smoothing / vocab_size
        grad = tl.where(counts & (n < vocab_size), grad, 0.0) * scale
        tl.store(grad_ptr + row * COLUMNS + n, grad.to(grad_ptr.dtype.element_ty), mask=n < COLUMNS)


@triton.jit
def transpose_kernel(matrix_ptr, transposed_ptr, rows, columns, TILE: tl.constexpr):
    """transposed = matrix.T, of bytes.

    Grid (columns / TILE, rows / TILE): a program takes a square of TILE x TILE. Memory: matrix (rows, columns) and transposed
    (columns, rows), a row after the other."""
    m, n = tl.program_id(1) * TILE, tl.program_id(0) * TILE
    i, j = tl.arange(0, TILE), tl.arange(0, TILE)
    in_m, in_n = i < rows - m, j < columns - n
    source = matrix_ptr + m.to(tl.int64) * columns + n + (i[:, None] * columns + j[None, :])
    transposed = transposed_ptr + n.to(tl.int64) * rows + m + (j[:, None] * rows + i[None, :])
    tile = tl.load(source, mask=in_m[:, None] & in_n[None, :], other=0)
    tl.store(transposed, tl.trans(tile), mask=in_n[:, None] & in_m[None, :])


def loss_and_gradient(
    logits: Tensor, labels: Tensor, vocab_size: int, smoothing: float, grad: Tensor, scale: float = 1.0
) -> Tensor:
    """Launches `row_kernel`, a program a row of logits (rows, columns): the loss of each row; its gradient goes to `grad`."""
    loss = logits.new_empty(logits.size(0), dtype=torch.float32)
    block_v = min(MAX_BLOCK_V, triton.next_power_of_2(logits.size(1)))
    row_kernel[(logits.size(0),)](
        logits, labels.contiguous(), loss, grad, vocab_size, smoothing, scale,
        COLUMNS=logits.size(1), SMOOTH=smoothing != 0, BLOCK_V=block_v, IGNORED=IGNORE,
        num_warps=max(1, block_v // COLUMNS_PER_WARP),
    )  # fmt: skip
    return loss


@torch.library.custom_op("glassformer::softmax_gradient", mutates_args={"logits"})
def softmax_gradient(logits: Tensor, labels: Tensor, vocab_size: int, smoothing: float) -> Tensor:
    """The loss of each row; the logits become its gradient."""
    return loss_and_gradient(logits, labels, vocab_size, smoothing, logits)


@softmax_gradient.register_fake
def _(logits: Tensor, labels: Tensor, vocab_size: int, smoothing: float) -> Tensor:
    return logits.new_empty(logits.size(0), dtype=torch.float32)


@torch.library.custom_op("glassformer::softmax_gradient8", mutates_args=())
def softmax_gradient8(
    logits: Tensor, labels: Tensor, vocab_size: int, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row and its gradient times LOSS_SCALE, in 8 bits, in two orders: rows x columns and transposed."""
    rows, columns = logits.shape
    grad8 = torch.empty_like(logits, dtype=torch.float8_e5m2)
    loss = loss_and_gradient(logits, labels, vocab_size, smoothing, grad8, LOSS_SCALE)
    transposed8 = grad8.new_empty(columns, rows)
    transpose_kernel[(triton.cdiv(columns, TILE), triton.cdiv(rows, TILE))](
        grad8.view(torch.int8), transposed8.view(torch.int8), rows, columns, TILE=TILE, num_warps=TILE_WARPS
    )
    return loss, grad8, transposed8


@softmax_gradient8.register_fake
def _(logits: Tensor, labels: Tensor, vocab_size: int, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    loss = logits.new_empty(logits.size(0), dtype=torch.float32)
    grad8 = torch.empty_like(logits, dtype=torch.float8_e5m2)
    return loss, grad8, grad8.new_empty(logits.size(1), logits.size(0))
