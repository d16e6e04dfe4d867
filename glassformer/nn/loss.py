"""The output layer and its cross-entropy in one: the equation, and a form that never holds the logits of all positions.

`cross_entropy` is the equation: logits = x W^T + b over (positions x vocabulary), a softmax, minus the logarithm at the label.
Its logits, their float32 copy, their softmax and their gradient are several of the largest tensors of a whole step.

`linear_cross_entropy` takes the positions a chunk at a time, and since the loss is the end of the computation, each chunk's
gradient is made on the spot: three matrix products a chunk, as many as the plain form, and nothing the size of the
vocabulary is kept but the gradients of W and b. Positions whose label is IGNORE are left out before the first product. Whoever
differentiates the gradient again (`higher_derivatives`, torch.func) gets the equation.

Label smoothing (Szegedy et al. 2016): the target is (1 - s) on the label and s / V on every token, the label included.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.nn.modes import is_symbolic, refuse_second_derivative

IGNORE = -100
CHUNK_ELEMENTS = 2**23


def cross_entropy(
    x: Float[Tensor, "*any C"],
    weight: Float[Tensor, "V C"],
    labels: Int[Tensor, "*any"],
    *,
    bias: Float[Tensor, "V"] | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The equation, summed over the positions whose label is not IGNORE."""
    logits = F.linear(x, weight, bias)
    log_p = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    counts = labels != IGNORE
    label_log_p = log_p.gather(-1, labels.masked_fill(~counts, 0)[..., None])[..., 0]
    loss = -(1 - smoothing) * label_log_p
    if smoothing:
        loss = loss - smoothing * log_p.mean(dim=-1)
    return loss.masked_fill(~counts, 0.0).sum()


class LinearCrossEntropy(torch.autograd.Function):
    """Sum over all positions of the cross-entropy of x W^T + b against labels."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, wants_gradient: bool
    ) -> Tensor:
        """x (N, C) of the positions that count, W (V, C) -> the summed loss, with the gradients of x, W and b made on the way."""
        vocabulary = weight.size(0)
        total = torch.zeros((), dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
        grad_x = torch.empty_like(x) if wants_gradient else None
        grad_w = torch.zeros_like(weight) if wants_gradient else None
        grad_b = torch.zeros_like(bias) if wants_gradient and bias is not None else None
        step = max(1, CHUNK_ELEMENTS // vocabulary)
        for start in range(0, x.size(0), step):
            chunk = slice(start, start + step)
            logits = F.linear(x[chunk], weight, bias)
            log_p = logits.log_softmax(dim=-1, dtype=total.dtype)
            label_log_p = log_p.gather(1, labels[chunk, None])
            total -= (1 - smoothing) * label_log_p.sum()
            if smoothing:
                total -= smoothing * log_p.mean(dim=-1).sum()
            if grad_x is not None and grad_w is not None:
                # d loss / d logits = softmax - target; made in place of log_p, which no one needs any more.
                grad = log_p.exp_()
                if smoothing:
                    grad.sub_(smoothing / vocabulary)
                grad.scatter_add_(1, labels[chunk, None], torch.full_like(label_log_p, smoothing - 1.0))
                grad = grad.to(logits.dtype)
                grad_x[chunk] = grad @ weight.to(grad.dtype)
                if grad_w.dtype == grad.dtype == x.dtype:
                    # In place: a second table a chunk would be a fifth of the time spent here.
                    grad_w.addmm_(grad.T, x[chunk])
                else:
                    grad_w += grad.T @ x[chunk].to(grad.dtype)
                if grad_b is not None:
                    grad_b += grad.sum(0)
        ctx.save_for_backward(grad_x, grad_w, grad_b)
        return total

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """The gradients that were made, times what comes upstream."""
        refuse_second_derivative()
        return (*(None if g is None else g * grad_total.to(g.dtype) for g in ctx.saved_tensors), None, None, None)


def linear_cross_entropy(
    x: Float[Tensor, "B T C"],
    weight: Float[Tensor, "V C"],
    labels: Int[Tensor, "B T"],
    *,
    bias: Float[Tensor, "V"] | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Summed over the positions whose label is not IGNORE; the caller knows what to divide by."""
    if is_symbolic():
        return cross_entropy(x, weight, labels, bias=bias, smoothing=smoothing)
    counts = labels != IGNORE
    labels_that_count = labels[counts]
    if labels_that_count.device.type == "cpu" and labels_that_count.numel():
        low, high = (int(v) for v in labels_that_count.aminmax())
        if low < 0 or high >= weight.size(0):
            wrong = low if low < 0 else high
            raise ValueError(f"label {wrong} is outside the {weight.size(0)} classes of the output layer")
    wants_gradient = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    return LinearCrossEntropy.apply(x[counts], weight, bias, labels_that_count, smoothing, wants_gradient)  # type: ignore[no-any-return]
