"""Kernels for the loss on a CUDA device: from the scores to the loss and its gradient, reading the scores once.

The scores of a step are its largest tensor (GPT-2, 64 x 1024 positions: 6.6 GB in bfloat16), and what is done with them
outside the matrix products is reading and writing. The loss is the end of the computation, so its gradient

    softmax(scores) - (1 - s) [word is the label] - s / vocab_size

is known as soon as the scores are, but for one factor that the products can be given afterwards. A block takes a row,
finds its largest score and its sum, and while the row is still in the cache goes over it again and writes the gradient
in its place (`softmax_gradient`). The compiler, which sees the loss and its gradient as two functions with the whole model
between them, has to read the scores three times.

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

COLUMNS_AT_A_TIME = 2048
COLUMNS_A_WARP = 512
TILE = 128
TILE_WARPS = 8


@triton.jit
def row_kernel(
    scores_at, labels_at, loss_at, grad_at,
    vocab_size, smoothing, scale,
    COLUMNS: tl.constexpr, SMOOTH: tl.constexpr, WIDE: tl.constexpr, IGNORED: tl.constexpr,
):  # fmt: skip
    """loss[r] = logsumexp(s) - (1 - smoothing) s[label] - smoothing mean(s), of the first `vocab_size` of a row s of scores; and
    the gradient of the module's docstring, times `scale`, in the type of what `grad_at` points to.

    Grid (R,): a program takes a row and goes over it twice, WIDE columns at a time, each lane with a maximum and a sum of its
    own; from the end back the second time. Memory: scores and gradients (R, COLUMNS), a row after the other; `grad_at` may be
    `scores_at`; labels and loss (R,)."""
    row = tl.program_id(0).to(tl.int64)
    scores_at += row * COLUMNS
    label = tl.load(labels_at + row)
    counts = (label >= 0) & (label < vocab_size)
    right = tl.load(scores_at + tl.where(counts, label, 0)).to(tl.float32)
    k = tl.arange(0, WIDE)
    # Every lane has a maximum and a sum of its own, so that none waits for the others before the row has been read.
    highest = tl.full([WIDE], -1e30, tl.float32)
    total = tl.zeros([WIDE], tl.float32)
    plain_total = tl.zeros([WIDE], tl.float32)
    for start in range(0, COLUMNS, WIDE):
        # Asked for by columns, a round number, so that a thread takes many at a time; vocab_size is none.
        s = tl.load(scores_at + start + k, mask=start + k < COLUMNS, other=-float("inf")).to(tl.float32)
        s = tl.where(start + k < vocab_size, s, -float("inf"))
        higher = tl.maximum(highest, s)
        total = total * tl.exp(highest - higher) + tl.exp(s - higher)
        highest = higher
        if SMOOTH:
            plain_total += tl.where(start + k < vocab_size, s, 0.0)
    top = tl.max(highest, axis=0)
    log_total = top + tl.log(tl.sum(total * tl.exp(highest - top), axis=0))
    loss = log_total - (1.0 - smoothing) * right
    if SMOOTH:
        loss -= smoothing / vocab_size * tl.sum(plain_total, axis=0)
    # A label that is no word and does not say that it is none: the trainer refuses a loss that is no number.
    tl.store(loss_at + row, tl.where(counts, loss, tl.where(label == IGNORED, 0.0, float("nan"))))
    # From the end back: what was read last is nearest.
    for done in range(0, COLUMNS, WIDE):
        n = (COLUMNS - 1) // WIDE * WIDE - done + k
        s = tl.load(scores_at + n, mask=n < COLUMNS, other=-float("inf")).to(tl.float32)
        grad = tl.exp(s - log_total) - tl.where(n == label, 1.0 - smoothing, 0.0)
        if SMOOTH:
            grad -= smoothing / vocab_size
        grad = tl.where(counts & (n < vocab_size), grad, 0.0) * scale
        tl.store(grad_at + row * COLUMNS + n, grad.to(grad_at.dtype.element_ty), mask=n < COLUMNS)


@triton.jit
def transpose_kernel(given_at, transposed_at, rows, columns, TILE: tl.constexpr):
    """transposed = given.T, of bytes.

    Grid (columns / TILE, rows / TILE): a program takes a square of TILE x TILE. Memory: given (rows, columns) and transposed
    (columns, rows), a row after the other."""
    m, n = tl.program_id(1) * TILE, tl.program_id(0) * TILE
    i, j = tl.arange(0, TILE), tl.arange(0, TILE)
    in_m, in_n = i < rows - m, j < columns - n
    given = given_at + m.to(tl.int64) * columns + n + (i[:, None] * columns + j[None, :])
    transposed = transposed_at + n.to(tl.int64) * rows + m + (j[:, None] * rows + i[None, :])
    tile = tl.load(given, mask=in_m[:, None] & in_n[None, :], other=0)
    tl.store(transposed, tl.trans(tile), mask=in_n[:, None] & in_m[None, :])


def over_rows(
    logits: Tensor, labels: Tensor, vocab_size: int, smoothing: float, grad: Tensor, scale: float = 1.0
) -> Tensor:
    """Starts `row_kernel`, a program a row of scores (rows, columns): the loss of each row; its gradient goes to `grad`."""
    loss = logits.new_empty(logits.size(0), dtype=torch.float32)
    wide = min(COLUMNS_AT_A_TIME, triton.next_power_of_2(logits.size(1)))
    row_kernel[(logits.size(0),)](
        logits, labels.contiguous(), loss, grad, vocab_size, smoothing, scale,
        COLUMNS=logits.size(1), SMOOTH=smoothing != 0, WIDE=wide, IGNORED=IGNORE,
        num_warps=max(1, wide // COLUMNS_A_WARP),
    )  # fmt: skip
    return loss


@torch.library.custom_op("glassformer::softmax_gradient", mutates_args={"logits"})
def softmax_gradient(logits: Tensor, labels: Tensor, vocab_size: int, smoothing: float) -> Tensor:
    """The loss of each row; the scores become its gradient."""
    return over_rows(logits, labels, vocab_size, smoothing, logits)


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
    loss = over_rows(logits, labels, vocab_size, smoothing, grad8, LOSS_SCALE)
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
