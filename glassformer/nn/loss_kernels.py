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
the orders that the two products want, by tiles, where it is not (`softmax_gradients8`).

Written in Triton, which comes with torch where torch knows a CUDA device; the module is imported only there. What the
kernels compute is said by the torch code of loss.py, to which they are held by Triton's interpreter on a CPU. To torch
each is a custom operator, which a compiler takes as it is.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.nn.fp8 import LOSS_SCALE

COLUMNS_AT_A_TIME = 8192
COLUMNS_A_WARP = 512
TILE = 64
TILE_WARPS = 8


@triton.jit
def row_kernel(
    scores_at, labels_at, loss_at, log_total_at, grad_at, grad8_at,
    words, smoothing, scale8,
    COLUMNS: tl.constexpr, SMOOTH: tl.constexpr, GRAD: tl.constexpr, GRAD8: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One row: its loss, the logarithm of its sum, and where asked for its gradient. `grad_at` may be `scores_at`."""
    row = tl.program_id(0).to(tl.int64)
    scores_at += row * COLUMNS
    label = tl.load(labels_at + row)
    counts = label >= 0
    right = tl.load(scores_at + tl.where(counts, label, 0)).to(tl.float32)
    k = tl.arange(0, WIDE)
    highest = -float("inf")
    total = tl.zeros([WIDE], tl.float32)
    plain_total = tl.zeros([WIDE], tl.float32)
    for start in range(0, COLUMNS, WIDE):
        # Asked for by columns, a round number, so that a thread takes many at a time; words is none.
        s = tl.load(scores_at + start + k, mask=start + k < COLUMNS, other=-float("inf")).to(tl.float32)
        s = tl.where(start + k < words, s, -float("inf"))
        before = highest
        highest = tl.maximum(before, tl.max(s, axis=0))
        total = total * tl.exp(before - highest) + tl.exp(s - highest)
        if SMOOTH:
            plain_total += tl.where(start + k < words, s, 0.0)
    log_total = highest + tl.log(tl.sum(total, axis=0))
    loss = log_total - (1.0 - smoothing) * right
    if SMOOTH:
        loss -= smoothing / words * tl.sum(plain_total, axis=0)
    tl.store(loss_at + row, tl.where(counts, loss, 0.0))
    tl.store(log_total_at + row, log_total)
    if GRAD or GRAD8:
        for start in range(0, COLUMNS, WIDE):
            n = start + k
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
def tile_kernel(
    scores_at, labels_at, log_total_at, grad8_at, turned8_at,
    rows, columns, words, smoothing, scale8,
    SMOOTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The gradient of a square of scores, twice: in its order and turned, so that rows follow each other in memory."""
    m = tl.program_id(1) * TILE + tl.arange(0, TILE)
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    place = m[:, None].to(tl.int64) * columns + n[None, :]
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    label = tl.load(labels_at + m, mask=m < rows, other=-1)
    log_total = tl.load(log_total_at + m, mask=m < rows, other=0.0)
    real = (label >= 0)[:, None] & (n < words)[None, :]
    s = tl.load(scores_at + place, mask=inside, other=-float("inf")).to(tl.float32)
    grad = tl.exp(s - log_total[:, None]) - tl.where(n[None, :] == label[:, None], 1.0 - smoothing, 0.0)
    if SMOOTH:
        grad -= smoothing / words
    grad8 = (tl.where(real, grad, 0.0) * scale8).to(tl.float8e5)
    tl.store(grad8_at + place, grad8, mask=inside)
    turned = n[:, None].to(tl.int64) * rows + m[None, :]
    tl.store(turned8_at + turned, tl.trans(grad8), mask=(n < columns)[:, None] & (m < rows)[None, :])


def over_rows(
    logits: Tensor, labels: Tensor, words: int, smoothing: float, grad: Tensor | None, grad8: Tensor | None
) -> tuple[Tensor, Tensor]:
    loss, log_total = (logits.new_empty(logits.size(0), dtype=torch.float32) for _ in range(2))
    wide = min(COLUMNS_AT_A_TIME, triton.next_power_of_2(logits.size(1)))
    row_kernel[(logits.size(0),)](
        logits, labels.contiguous(), loss, log_total, logits if grad is None else grad, logits if grad8 is None else grad8,
        words, smoothing, LOSS_SCALE,
        COLUMNS=logits.size(1), SMOOTH=smoothing != 0, GRAD=grad is not None, GRAD8=grad8 is not None,
        WIDE=wide, num_warps=max(1, wide // COLUMNS_A_WARP),
    )  # fmt: skip
    return loss, log_total


@torch.library.custom_op("glassformer::softmax_gradient", mutates_args={"logits"})
def softmax_gradient(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> Tensor:
    """The loss of each row; the scores become its gradient."""
    return over_rows(logits, labels, words, smoothing, logits, None)[0]


@softmax_gradient.register_fake
def _(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> Tensor:
    return logits.new_empty(logits.size(0), dtype=torch.float32)


@torch.library.custom_op("glassformer::softmax_gradient8", mutates_args={"logits"})
def softmax_gradient8(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """The same, and the gradient a second time, times LOSS_SCALE, in 8 bits."""
    grad8 = torch.empty_like(logits, dtype=torch.float8_e5m2)
    return over_rows(logits, labels, words, smoothing, logits, grad8)[0], grad8


@softmax_gradient8.register_fake
def _(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> tuple[Tensor, Tensor]:
    loss = logits.new_empty(logits.size(0), dtype=torch.float32)
    return loss, torch.empty_like(logits, dtype=torch.float8_e5m2)


@torch.library.custom_op("glassformer::softmax_gradients8", mutates_args=())
def softmax_gradients8(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row and its gradient times LOSS_SCALE, in 8 bits, in two orders: rows x columns and turned."""
    rows, columns = logits.shape
    loss, log_total = over_rows(logits, labels, words, smoothing, None, None)
    grad8 = torch.empty_like(logits, dtype=torch.float8_e5m2)
    turned8 = grad8.new_empty(columns, rows)
    tile_kernel[(triton.cdiv(columns, TILE), triton.cdiv(rows, TILE))](
        logits, labels.contiguous(), log_total, grad8, turned8, rows, columns, words, smoothing, LOSS_SCALE,
        SMOOTH=smoothing != 0, TILE=TILE, num_warps=TILE_WARPS,
    )  # fmt: skip
    return loss, grad8, turned8


@softmax_gradients8.register_fake
def _(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    loss = logits.new_empty(logits.size(0), dtype=torch.float32)
    grad8 = torch.empty_like(logits, dtype=torch.float8_e5m2)
    return loss, grad8, grad8.new_empty(logits.size(1), logits.size(0))
