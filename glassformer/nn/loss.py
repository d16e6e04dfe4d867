"""The output layer and its cross-entropy in one, so that the scores of all positions never stand in memory at once.

Plain:  logits = x W^T + b over (positions x vocabulary), its float32 copy, its softmax and its gradient: several of the
largest tensors of the whole step. Here, eagerly, the positions are taken a chunk at a time, and since the loss is the end
of the computation, each chunk's gradient is made on the spot: three matrix products a chunk, as many as the plain way,
and nothing is kept but the gradients of x, W and b. Positions whose label is IGNORE are left out before the first product.

Compiled, the plain formula is given to the compiler instead: it fuses the conversion and the softmax into its kernels, so
no float32 scores stand in memory either, and the larger product runs faster.

Label smoothing (Szegedy et al. 2016): the target is (1 - s) on the label and s / V on every word, the label included.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

IGNORE = -100
CHUNK_ELEMENTS = 2**23


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


class SoftmaxLoss(torch.autograd.Function):
    """Cross-entropy of scores that stand in memory in their own type: what is kept for the backward pass is the scores and
    one number a row. Columns from `words` on do not exist."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, words: int, smoothing: float) -> Tensor:
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
        ctx.save_for_backward(logits, labels, log_total)
        ctx.words, ctx.smoothing = words, smoothing
        return loss.masked_fill(~counts, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        logits, labels, log_total = ctx.saved_tensors
        column = torch.arange(logits.size(1), device=logits.device)
        chances = (logits.to(log_total.dtype) - log_total[:, None]).exp()
        right = (column == labels[:, None]).to(chances.dtype)
        target = right * (1 - ctx.smoothing) + ctx.smoothing / ctx.words
        counts = (labels != IGNORE)[:, None] & (column < ctx.words)
        return torch.where(counts, (chances - target) * grad_total, 0.0).to(logits.dtype), None, None, None


def compiled_cross_entropy(x: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, smoothing: float) -> Tensor:
    """The plain formula, in the shape a compiler makes the most of.

    Matrix units and memory like round sizes: rows of 50,257 scores, each starting off a memory boundary, cost three times
    what rows of 50,304 cost. So the table is padded, which melts into its conversion to bfloat16, and the scores of words
    that do not exist are passed over."""
    words = weight.size(0)
    missing = -words % 128
    logits = F.linear(x, F.pad(weight, (0, 0, 0, missing)) if missing else weight).flatten(0, 1)
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
    if torch.compiler.is_compiling():
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
