"""The output layer and its cross-entropy in one, so that the scores of all positions never stand in memory at once.

Plain:  logits = x W^T + b over (positions x vocabulary), its float32 copy, its softmax and its gradient: several of the
largest tensors of the whole step. Here, eagerly, the positions are taken a chunk at a time, and since the loss is the end
of the computation, each chunk's gradient is made on the spot: three matrix products a chunk, as many as the plain way,
and nothing is kept but the gradients of x, W and b. Positions whose label is IGNORE are left out before the first product.

Compiled, the plain formula is given to the compiler instead: it fuses the conversion and the softmax into its kernels, so
no float32 scores stand in memory either, and the larger product runs faster. Where Triton is, the gradient is again made
with the loss, by the kernels of loss_kernels.py, and the products may be in 8 bits (fp8.py); `computing` says which.

Label smoothing (Szegedy et al. 2016): the target is (1 - s) on the label and s / V on every word, the label included.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.nn.fp8 import (
    ACTIVATION_SCALE,
    E4M3,
    E5M2,
    LOSS_SCALE,
    SIZES,
    by_columns,
    scaled_product,
    to_float8,
    weight_to_float8,
    working_type,
)

IGNORE = -100
CHUNK_ELEMENTS = 2**23
KERNEL_DEVICES = ("cuda",)


@dataclass(frozen=True)
class Way:
    """How the output layer of a training model and its loss are computed."""

    kernel: bool = (
        False  # the gradient with the loss, where the device has the kernels (in full precision: compiled only)
    )
    float8: bool = False  # the products in 8 bits, compiled or not ...
    float8_weights: bool = False  # ... that of the weights' gradient too


PLAIN, BY_KERNEL = Way(), Way(kernel=True)
way = PLAIN
kernels_are_there = False


@contextmanager
def computing(chosen: Way) -> Iterator[None]:
    """Inside, the output layer is computed in this way. To be entered outside of what is compiled."""
    global way, kernels_are_there
    before = way
    way = chosen
    if chosen.kernel and not kernels_are_there and importlib.util.find_spec("triton") is not None:
        importlib.import_module("glassformer.nn.loss_kernels")
        kernels_are_there = True
    try:
        yield
    finally:
        way = before


class LinearCrossEntropy(torch.autograd.Function):
    """Sum over all positions of the cross-entropy of x W^T + b against labels."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, wants_gradient: bool
    ) -> Tensor:
        vocabulary = weight.size(0)
        total = torch.zeros((), dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
        grad_x = torch.empty_like(x) if wants_gradient else None
        grad_w = torch.zeros_like(weight) if wants_gradient else None
        grad_b = torch.zeros_like(bias) if wants_gradient and bias is not None else None
        step = max(1, CHUNK_ELEMENTS // vocabulary)
        for start in range(0, x.size(0), step):
            part = slice(start, start + step)
            logits = F.linear(x[part], weight, bias)
            log_p = logits.log_softmax(dim=-1, dtype=total.dtype)
            right = log_p.gather(1, labels[part, None])
            total -= (1 - smoothing) * right.sum()
            if smoothing:
                total -= smoothing * log_p.mean(dim=-1).sum()
            if grad_x is not None and grad_w is not None:
                # d loss / d logits = softmax - target; made in place of log_p, which no one needs any more.
                grad = log_p.exp_()
                if smoothing:
                    grad.sub_(smoothing / vocabulary)
                grad.scatter_add_(1, labels[part, None], torch.full_like(right, smoothing - 1.0))
                grad = grad.to(logits.dtype)
                grad_x[part] = grad @ weight.to(grad.dtype)
                if grad_w.dtype == grad.dtype == x.dtype:
                    # In place: a second table a chunk would be a fifth of the time spent here.
                    grad_w.addmm_(grad.T, x[part])
                else:
                    grad_w += grad.T @ x[part].to(grad.dtype)
                if grad_b is not None:
                    grad_b += grad.sum(0)
        ctx.save_for_backward(grad_x, grad_w, grad_b)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grads = [None if g is None else g * grad_total.to(g.dtype) for g in ctx.saved_tensors]
        return (*grads, None, None, None)


def row_losses(logits: Tensor, labels: Tensor, words: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss of each row of scores, and the logarithm of the sum over its words. Columns from `words` on do not exist."""
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    exists = torch.arange(logits.size(1), device=logits.device) < words
    scores_of_words = scores.masked_fill(~exists, -torch.inf)
    # Written out and not as logsumexp: this form the compiler knows to take in one pass over the scores.
    highest = scores_of_words.amax(dim=-1, keepdim=True)
    log_total = highest[:, 0] + (scores_of_words - highest).exp().sum(dim=-1).log()
    counts = labels != IGNORE
    right = logits.gather(1, labels.masked_fill(~counts, 0)[:, None])[:, 0].to(scores.dtype)
    loss = log_total - (1 - smoothing) * right
    if smoothing:
        loss = loss - smoothing / words * scores.masked_fill(~exists, 0.0).sum(dim=-1)
    return loss.masked_fill(~counts, 0.0), log_total


def score_gradient(
    logits: Tensor, labels: Tensor, log_total: Tensor, words: int, smoothing: float, factor: Tensor | float = 1.0
) -> Tensor:
    """d (factor x sum of row_losses) / d logits, in the type of log_total."""
    column = torch.arange(logits.size(1), device=logits.device)
    chances = (logits.to(log_total.dtype) - log_total[:, None]).exp()
    right = (column == labels[:, None]).to(chances.dtype)
    target = right * (1 - smoothing) + smoothing / words
    counts = (labels != IGNORE)[:, None] & (column < words)
    return torch.where(counts, (chances - target) * factor, 0.0)


class SoftmaxLoss(torch.autograd.Function):
    """Cross-entropy of scores that stand in memory in their own type: what is kept for the backward pass is the scores and
    one number a row."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, words: int, smoothing: float) -> Tensor:
        losses, log_total = row_losses(logits, labels, words, smoothing)
        ctx.save_for_backward(logits, labels, log_total)
        ctx.words, ctx.smoothing = words, smoothing
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        logits, labels, log_total = ctx.saved_tensors
        grad = score_gradient(logits, labels, log_total, ctx.words, ctx.smoothing, grad_total)
        return grad.to(logits.dtype), None, None, None


class OutputLoss(torch.autograd.Function):
    """The output layer and the cross-entropy of its scores. The gradient of the scores is made with the loss and takes
    their place; the factor that comes back through the loss, one number, is given to the products."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        table: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        words: int,
        smoothing: float,
        kernel: bool,
    ) -> Tensor:
        dtype, table = table.dtype, table.to(x.dtype)
        scores = F.linear(x, table, bias)
        if kernel:
            losses = torch.ops.glassformer.softmax_gradient(scores, labels, words, smoothing)
        else:
            losses, log_total = row_losses(scores, labels, words, smoothing)
            scores = score_gradient(scores, labels, log_total, words, smoothing).to(scores.dtype)
        ctx.save_for_backward(x, table, scores)
        ctx.has_bias, ctx.dtype = bias is not None, dtype
        return losses.sum()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, table, grad = ctx.saved_tensors
        grad_b = grad.sum(0) * factor if ctx.has_bias else None
        grad_w = (grad.t() @ x).to(ctx.dtype) * factor
        return (grad @ table) * factor, grad_w, grad_b, None, None, None, None


class Float8OutputLoss(torch.autograd.Function):
    """The same, its products in 8 bits; that of the weights' gradient only where `weights` says so."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        table: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        words: int,
        smoothing: float,
        kernel: bool,
        weights: bool,
    ) -> Tensor:
        x8 = to_float8(x, ACTIVATION_SCALE, E4M3)
        table8, back = weight_to_float8(table)
        scores = scaled_product(x8, table8.t(), 1 / ACTIVATION_SCALE, back, x.dtype, bias=bias)
        if kernel and weights:
            losses, grad8, for_weights = torch.ops.glassformer.softmax_gradients8(scores, labels, words, smoothing)
        elif kernel:
            losses, grad8 = torch.ops.glassformer.softmax_gradient8(scores, labels, words, smoothing)
            for_weights = scores
        else:
            losses, log_total = row_losses(scores, labels, words, smoothing)
            grad = score_gradient(scores, labels, log_total, words, smoothing)
            grad8 = to_float8(grad, LOSS_SCALE, E5M2)
            for_weights = grad8.t().contiguous() if weights else grad.to(x.dtype)
        ctx.save_for_backward(x8 if weights else x, table8, back, grad8, for_weights)
        ctx.weights, ctx.has_bias, ctx.dtype, ctx.weight_dtype = weights, bias is not None, x.dtype, table.dtype
        return losses.sum()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, table8, back, grad8, for_weights = ctx.saved_tensors
        grad_x = scaled_product(grad8, by_columns(table8), 1 / LOSS_SCALE, back, ctx.dtype, fast=False)
        if ctx.weights:
            grad_w = scaled_product(
                for_weights, by_columns(x), 1 / LOSS_SCALE, 1 / ACTIVATION_SCALE, torch.float32, fast=False
            )
        else:
            grad_w = (for_weights.t() @ x).to(ctx.weight_dtype)
        grad_b = (grad8.to(torch.float32).sum(0) * (factor / LOSS_SCALE)).to(ctx.dtype) if ctx.has_bias else None
        return grad_x * factor, grad_w * factor, grad_b, None, None, None, None, None


def compiled_cross_entropy(x: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, smoothing: float) -> Tensor:
    """The plain formula, in the shape a compiler makes the most of.

    Matrix units and memory like round sizes: rows of 50,257 scores, each starting off a memory boundary, cost three times
    what rows of 50,304 cost. So the table is padded, which melts into its conversion to bfloat16, and the scores of words
    that do not exist are passed over."""
    words = weight.size(0)
    missing = -words % 128
    table = F.pad(weight, (0, 0, 0, missing)) if missing else weight
    dtype = working_type(x)
    kernel = way.kernel and kernels_are_there and x.device.type in KERNEL_DEVICES
    if (way.float8 or (kernel and dtype != torch.float64)) and torch.is_grad_enabled():
        flat = x.flatten(0, 1).to(dtype)
        padded_bias = None if bias is None else F.pad(bias, (0, missing)).to(dtype)
        given = (flat, table, padded_bias, labels.flatten(), words, smoothing, kernel)
        if way.float8:
            weights = way.float8_weights and flat.size(0) % SIZES == 0
            return Float8OutputLoss.apply(*given, weights)  # type: ignore[no-any-return]
        return OutputLoss.apply(*given)  # type: ignore[no-any-return]
    logits = F.linear(x, table).flatten(0, 1)
    if bias is not None:
        logits = logits + F.pad(bias, (0, missing)).to(logits.dtype)
    return SoftmaxLoss.apply(logits, labels.flatten(), words, smoothing)  # type: ignore[no-any-return]


def linear_cross_entropy(
    x: Float[Tensor, "B T C"],
    weight: Float[Tensor, "V C"],
    labels: Int[Tensor, "B T"],
    *,
    bias: Float[Tensor, "V"] | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Summed over the positions whose label is not IGNORE; the caller knows what to divide by."""
    if torch.compiler.is_compiling() or way.float8:
        return compiled_cross_entropy(x, weight, labels, bias, smoothing)
    counts = labels != IGNORE
    chosen = labels[counts]
    if chosen.device.type == "cpu" and chosen.numel():
        low, high = (int(v) for v in chosen.aminmax())
        if low < 0 or high >= weight.size(0):
            wrong = low if low < 0 else high
            raise ValueError(f"label {wrong} is outside the {weight.size(0)} classes of the output layer")
    wants_gradient = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    return LinearCrossEntropy.apply(x[counts], weight, bias, chosen, smoothing, wants_gradient)  # type: ignore[no-any-return]
