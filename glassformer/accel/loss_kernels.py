"""Kernels for the loss on a CUDA device: from the scores to the loss and its gradient, reading the scores once.

The scores of a step are its largest tensor (GPT-2, 64 x 1024 positions: 6.6 GB in bfloat16), and what is done with them
outside the matrix products is reading and writing. The loss is the end of the computation, so its gradient

    softmax(scores) - (1 - s) [word is the label] - s / words

is known as soon as the scores are, but for one factor that the products can be given afterwards. A block takes a row,
finds its largest score and its sum, and while the row is still in the cache goes over it again and writes the gradient
in its place (`softmax_gradient`). The compiler, which sees the loss and its gradient as two functions with the whole model
between them, has to read the scores three times.

For products in 8 bits (see fp8.py) the gradient, which lies between -1 and 1, is written times 2^15 as float8_e5m2:
beside the one in the scores' own type where the gradient of the weights is to be exact (`softmax_gradient8`), or in both
the orders that the two products want, where it is not (`softmax_gradients8`).

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
    scores_at, labels_at, loss_at, grad_at, grad8_at,
    words, smoothing, scale8,
    COLUMNS: tl.constexpr, SMOOTH: tl.constexpr, GRAD: tl.constexpr, GRAD8: tl.constexpr, WIDE: tl.constexpr,
    IGNORED: tl.constexpr,
):  # fmt: skip
    """loss[r] = logsumexp(s) - (1 - smoothing) s[label] - smoothing mean(s), of the first `words` of a row s of scores; and the
    gradient of the module's docstring, as it is and times scale8 in 8 bits, where asked for.

    Grid (R,): a program takes a row and goes over it twice, WIDE columns at a time, each lane with a maximum and a sum of its
    own; from the end back the second time. Memory: scores and gradients (R, COLUMNS), a row after the other; `grad_at` may be
    `scores_at`; labels and loss (R,)."""
    row = tl.program_id(0).to(tl.int64)
    scores_at += row * COLUMNS
    label = tl.load(labels_at + row)
    counts = (label >= 0) & (label < words)
    right = tl.load(scores_at + tl.where(counts, label, 0)).to(tl.float32)
    k = tl.arange(0, WIDE)
    # Every lane has a maximum and a sum of its own, so that none waits for the others before the row has been read.
    highest = tl.full([WIDE], -1e30, tl.float32)
    total = tl.zeros([WIDE], tl.float32)
    plain_total = tl.zeros([WIDE], tl.float32)
    for start in range(0, COLUMNS, WIDE):
        # Asked for by columns, a round number, so that a thread takes many at a time; words is none.
        s = tl.load(scores_at + start + k, mask=start + k < COLUMNS, other=-float("inf")).to(tl.float32)
        s = tl.where(start + k < words, s, -float("inf"))
        higher = tl.maximum(highest, s)
        total = total * tl.exp(highest - higher) + tl.exp(s - higher)
        highest = higher
        if SMOOTH:
            plain_total += tl.where(start + k < words, s, 0.0)
    top = tl.max(highest, axis=0)
    log_total = top + tl.log(tl.sum(total * tl.exp(highest - top), axis=0))
    loss = log_total - (1.0 - smoothing) * right
    if SMOOTH:
        loss -= smoothing / words * tl.sum(plain_total, axis=0)
    # A label that is no word and does not say that it is none: the trainer refuses a loss that is no number.
    tl.store(loss_at + row, tl.where(counts, loss, tl.where(label == IGNORED, 0.0, float("nan"))))
    if GRAD or GRAD8:
        # From the end back: what was read last is nearest.
        for done in range(0, COLUMNS, WIDE):
            n = (COLUMNS - 1) // WIDE * WIDE - done + k
            s = tl.load(scores_at + n, mask=n < COLUMNS, other=-float("inf")).to(tl.float32)
            grad = tl.exp(s - log_total) - tl.where(n == label, 1.0 - smoothing, 0.0)
            if SMOOTH:
                grad -= smoothing / words
            grad = tl.where(counts & (n < words), grad, 0.0)
            if GRAD:
                tl.store(grad_at + row * COLUMNS + n, grad.to(grad_at.dtype.element_ty), mask=n < COLUMNS)
            if GRAD8:
                tl.store(grad8_at + row * COLUMNS + n, (grad * scale8).to(tl.float8e5), mask=n < COLUMNS)


@triton.jit
def turn_kernel(given_at, turned_at, rows, columns, TILE: tl.constexpr):
    """turned = given.T, of bytes.

    Grid (columns / TILE, rows / TILE): a program takes a square of TILE x TILE. Memory: given (rows, columns) and turned
    (columns, rows), a row after the other."""
    m, n = tl.program_id(1) * TILE, tl.program_id(0) * TILE
    i, j = tl.arange(0, TILE), tl.arange(0, TILE)
    in_m, in_n = i < rows - m, j < columns - n
    given = given_at + m.to(tl.int64) * columns + n + (i[:, None] * columns + j[None, :])
    turned = turned_at + n.to(tl.int64) * rows + m + (j[:, None] * rows + i[None, :])
    tile = tl.load(given, mask=in_m[:, None] & in_n[None, :], other=0)
    tl.store(turned, tl.trans(tile), mask=in_n[:, None] & in_m[None, :])


def over_rows(
    logits: Tensor, labels: Tensor, words: int, smoothing: float, grad: Tensor | None, grad8: Tensor | None
) -> Tensor:
    """Starts `row_kernel`, a program a row of scores (rows, columns): the loss of each row, its gradient where asked for."""
    loss = logits.new_empty(logits.size(0), dtype=torch.float32)
    wide = min(COLUMNS_AT_A_TIME, triton.next_power_of_2(logits.size(1)))
    row_kernel[(logits.size(0),)](
        logits, labels.contiguous(), loss, logits if grad is None else grad, logits if grad8 is None else grad8,
        words, smoothing, LOSS_SCALE,
        COLUMNS=logits.size(1), SMOOTH=smoothing != 0, GRAD=grad is not None, GRAD8=grad8 is not None,
        WIDE=wide, IGNORED=IGNORE, num_warps=max(1, wide // COLUMNS_A_WARP),
    )  # fmt: skip
    return loss


@torch.library.custom_op("glassformer::softmax_gradient", mutates_args={"logits"})
def softmax_gradient(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> Tensor:
    """The loss of each row; the scores become its gradient."""
    return over_rows(logits, labels, words, smoothing, logits, None)


@softmax_gradient.register_fake
def _(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> Tensor:
    return logits.new_empty(logits.size(0), dtype=torch.float32)


@torch.library.custom_op("glassformer::softmax_gradient8", mutates_args={"logits"})
def softmax_gradient8(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """The same, and the gradient a second time, times LOSS_SCALE, in 8 bits."""
    grad8 = torch.empty_like(logits, dtype=torch.float8_e5m2)
    return over_rows(logits, labels, words, smoothing, logits, grad8), grad8


@softmax_gradient8.register_fake
def _(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> tuple[Tensor, Tensor]:
    loss = logits.new_empty(logits.size(0), dtype=torch.float32)
    return loss, torch.empty_like(logits, dtype=torch.float8_e5m2)


@torch.library.custom_op("glassformer::softmax_gradients8", mutates_args=())
def softmax_gradients8(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row and its gradient times LOSS_SCALE, in 8 bits, in two orders: rows x columns and turned."""
    rows, columns = logits.shape
    grad8 = torch.empty_like(logits, dtype=torch.float8_e5m2)
    loss = over_rows(logits, labels, words, smoothing, None, grad8)
    turned8 = grad8.new_empty(columns, rows)
    turn_kernel[(triton.cdiv(columns, TILE), triton.cdiv(rows, TILE))](
        grad8.view(torch.int8), turned8.view(torch.int8), rows, columns, TILE=TILE, num_warps=TILE_WARPS
    )
    return loss, grad8, turned8


@softmax_gradients8.register_fake
def _(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    loss = logits.new_empty(logits.size(0), dtype=torch.float32)
    grad8 = torch.empty_like(logits, dtype=torch.float8_e5m2)
    return loss, grad8, grad8.new_empty(logits.size(1), logits.size(0))
