"""The output layer and its loss for a compiled step.

The compiler is given the plain formula: it fuses the conversion and the softmax into its kernels, so no float32 logits
stand in memory, and the larger product runs faster than the chunks of nn/loss.py. `compiled_cross_entropy`, installed as a
model's `cross_entropy` (see install.py), takes the place of `linear_cross_entropy`, to which it leaves whatever is not compiled.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.nn.loss import IGNORE, linear_cross_entropy
from glassformer.nn.modes import refuse_second_derivative


def row_losses(logits: Tensor, labels: Tensor, vocab_size: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss of each row of logits, and its log-sum-exp. Columns from `vocab_size` on are padding and do not count."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    is_token = torch.arange(logits.size(1), device=logits.device) < vocab_size
    masked = exact.masked_fill(~is_token, -torch.inf)
    # Written out and not as logsumexp: this form the compiler knows to take in one pass over the logits.
    largest = masked.amax(dim=-1, keepdim=True)
    log_sum_exp = largest[:, 0] + (masked - largest).exp().sum(dim=-1).log()
    counts = labels != IGNORE
    label_logit = logits.gather(1, labels.masked_fill(~counts, 0)[:, None])[:, 0].to(exact.dtype)
    loss = log_sum_exp - (1 - smoothing) * label_logit
    if smoothing:
        loss = loss - smoothing / vocab_size * exact.masked_fill(~is_token, 0.0).sum(dim=-1)
    return loss.masked_fill(~counts, 0.0), log_sum_exp


class SoftmaxLoss(torch.autograd.Function):
    """Cross-entropy of logits that stand in memory in their own type: what is kept for the backward pass is the logits and
    one number a row, the log-sum-exp."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, vocab_size: int, smoothing: float) -> Tensor:
        """Logits (rows, columns), of which the first `vocab_size` columns are tokens -> the summed loss."""
        losses, log_sum_exp = row_losses(logits, labels, vocab_size, smoothing)
        ctx.save_for_backward(logits, labels, log_sum_exp)
        ctx.vocab_size, ctx.smoothing = vocab_size, smoothing
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """grad_total (softmax - smoothed target), from the kept logits and the log-sum-exp of each row."""
        refuse_second_derivative()
        logits, labels, log_sum_exp = ctx.saved_tensors
        column = torch.arange(logits.size(1), device=logits.device)
        probabilities = (logits.to(log_sum_exp.dtype) - log_sum_exp[:, None]).exp()
        one_hot = (column == labels[:, None]).to(probabilities.dtype)
        target = one_hot * (1 - ctx.smoothing) + ctx.smoothing / ctx.vocab_size
        counts = (labels != IGNORE)[:, None] & (column < ctx.vocab_size)
        grad = torch.where(counts, (probabilities - target) * grad_total, 0.0)
        return grad.to(logits.dtype), None, None, None


def padded_cross_entropy(
    x: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, smoothing: float
) -> Float[Tensor, ""]:
    """The plain formula over a padded vocabulary.

    Matrix units and memory like aligned sizes: rows of 50,257 logits, each starting off a memory boundary, cost three times
    what rows of 50,304 cost. So the weight is padded, which is fused with its conversion to bfloat16, and the logits of the
    padding do not count."""
    vocab_size = weight.size(0)
    padding = -vocab_size % 128
    table = F.pad(weight, (0, 0, 0, padding)) if padding else weight
    logits = F.linear(x, table).flatten(0, 1)
    if bias is not None:
        logits = logits + F.pad(bias, (0, padding)).to(logits.dtype)
    return SoftmaxLoss.apply(logits, labels.flatten(), vocab_size, smoothing)  # type: ignore[no-any-return]


def compiled_cross_entropy(
    x: Float[Tensor, "B T C"],
    weight: Float[Tensor, "V C"],
    labels: Int[Tensor, "B T"],
    *,
    bias: Float[Tensor, "V"] | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """As `linear_cross_entropy`: summed over the positions whose label is not IGNORE."""
    if torch.compiler.is_compiling():
        return padded_cross_entropy(x, weight, labels, bias, smoothing)
    return linear_cross_entropy(x, weight, labels, bias=bias, smoothing=smoothing)
