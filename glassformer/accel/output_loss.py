"""The output layer and its loss for a compiled step, and in 8 bits.

The compiler is given the plain formula: it fuses the conversion and the softmax into its kernels, so no float32 logits
stand in memory, and the larger product runs faster than the chunks of nn/loss.py. Where Triton is, the gradient is
made with the loss, by the kernels of loss_kernels.py, and the products may be in 8 bits (fp8.py). A `LossBackend` says
which; installed as a model's `cross_entropy` (see install.py) it takes the place of `linear_cross_entropy`, to which it
leaves whatever is neither compiled nor in 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.accel.fp8 import (
    ACTIVATION_SCALE,
    ALIGNMENT,
    E4M3,
    E5M2,
    LOSS_SCALE,
    autocast_dtype,
    column_major,
    refuse_second_derivative,
    scaled_mm,
    to_float8,
    weight_to_float8,
)
from glassformer.machine import has_triton
from glassformer.nn.loss import IGNORE, linear_cross_entropy

KERNEL_DEVICES = ("cuda",)


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


def logit_gradient(
    logits: Tensor, labels: Tensor, log_sum_exp: Tensor, vocab_size: int, smoothing: float, factor: Tensor | float = 1.0
) -> Tensor:
    """d (factor x sum of row_losses) / d logits = factor (softmax - smoothed target), in the type of log_sum_exp."""
    column = torch.arange(logits.size(1), device=logits.device)
    probabilities = (logits.to(log_sum_exp.dtype) - log_sum_exp[:, None]).exp()
    one_hot = (column == labels[:, None]).to(probabilities.dtype)
    target = one_hot * (1 - smoothing) + smoothing / vocab_size
    counts = (labels != IGNORE)[:, None] & (column < vocab_size)
    return torch.where(counts, (probabilities - target) * factor, 0.0)


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
        """softmax - target, from the kept logits and the log-sum-exp of each row."""
        refuse_second_derivative()
        logits, labels, log_sum_exp = ctx.saved_tensors
        grad = logit_gradient(logits, labels, log_sum_exp, ctx.vocab_size, ctx.smoothing, grad_total)
        return grad.to(logits.dtype), None, None, None


class OutputLoss(torch.autograd.Function):
    """The output layer and the cross-entropy of its logits. The gradient of the logits is made with the loss and takes their
    memory; the upstream gradient of the loss, one number, is multiplied into the products."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        table: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        vocab_size: int,
        smoothing: float,
        kernel: bool,
    ) -> Tensor:
        """x (rows, C), table (columns, C) -> the summed loss; the logits' memory now holds their gradient."""
        dtype, table = table.dtype, table.to(x.dtype)
        logits = F.linear(x, table, bias)
        if kernel:
            losses = torch.ops.glassformer.softmax_gradient(logits, labels, vocab_size, smoothing)
        else:
            losses, log_sum_exp = row_losses(logits, labels, vocab_size, smoothing)
            logits = logit_gradient(logits, labels, log_sum_exp, vocab_size, smoothing).to(logits.dtype)
        ctx.save_for_backward(x, table, logits)
        ctx.has_bias, ctx.dtype = bias is not None, dtype
        return losses.sum()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Two products of the gradient that was made with the loss."""
        refuse_second_derivative()
        x, table, grad = ctx.saved_tensors
        grad_b = grad.sum(0) * factor if ctx.has_bias else None
        grad_w = (grad.t() @ x).to(ctx.dtype) * factor
        return (grad @ table) * factor, grad_w, grad_b, None, None, None, None


class Float8OutputLoss(torch.autograd.Function):
    """The same, its three products in 8 bits; the number of rows is a multiple of ALIGNMENT."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        table: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        vocab_size: int,
        smoothing: float,
        kernel: bool,
    ) -> Tensor:
        """As OutputLoss, with x and table rounded to e4m3 and the gradient to e5m2."""
        x8 = to_float8(x, ACTIVATION_SCALE, E4M3)
        table8, inverse_scale = weight_to_float8(table)
        logits = scaled_mm(x8, table8.t(), 1 / ACTIVATION_SCALE, inverse_scale, x.dtype, bias=bias)
        if kernel:
            losses, grad8, transposed8 = torch.ops.glassformer.softmax_gradient8(logits, labels, vocab_size, smoothing)
        else:
            losses, log_sum_exp = row_losses(logits, labels, vocab_size, smoothing)
            grad = logit_gradient(logits, labels, log_sum_exp, vocab_size, smoothing)
            grad8 = to_float8(grad, LOSS_SCALE, E5M2)
            transposed8 = grad8.t().contiguous()
        ctx.save_for_backward(x8, table8, inverse_scale, grad8, transposed8)
        ctx.has_bias, ctx.dtype = bias is not None, x.dtype
        return losses.sum()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Two 8-bit products of the gradient that was made with the loss."""
        refuse_second_derivative()
        x8, table8, inverse_scale, grad8, transposed8 = ctx.saved_tensors
        grad_x = scaled_mm(grad8, column_major(table8), 1 / LOSS_SCALE, inverse_scale, ctx.dtype, fast=False)
        grad_w = scaled_mm(
            transposed8, column_major(x8), 1 / LOSS_SCALE, 1 / ACTIVATION_SCALE, torch.float32, fast=False
        )
        grad_b = (grad8.to(torch.float32).sum(0) * (factor / LOSS_SCALE)).to(ctx.dtype) if ctx.has_bias else None
        return grad_x * factor, grad_w * factor, grad_b, None, None, None, None


@dataclass(frozen=True)
class LossBackend:
    """How the output layer of a training model and its loss are computed; called as `linear_cross_entropy` is.

    kernel    the gradient with the loss, where the device has the kernels (in full precision: compiled only)
    float8    the products in 8 bits, compiled or not
    """

    kernel: bool = False
    float8: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", self.kernel and has_triton())
        if self.kernel:
            from glassformer.accel import loss_kernels  # noqa: F401  defines torch.ops.glassformer

    def __call__(
        self,
        x: Float[Tensor, "B T C"],
        weight: Float[Tensor, "V C"],
        labels: Int[Tensor, "B T"],
        *,
        bias: Float[Tensor, "V"] | None = None,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """Summed over the positions whose label is not IGNORE."""
        if torch.compiler.is_compiling() or (self.float8 and torch.is_grad_enabled()):
            return self.padded_cross_entropy(x, weight, labels, bias, smoothing)
        return linear_cross_entropy(x, weight, labels, bias=bias, smoothing=smoothing)

    def padded_cross_entropy(
        self, x: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, smoothing: float
    ) -> Tensor:
        """The plain formula over a padded vocabulary.

        Matrix units and memory like aligned sizes: rows of 50,257 logits, each starting off a memory boundary, cost three times
        what rows of 50,304 cost. So the weight is padded, which is fused with its conversion to bfloat16, and the logits of the
        padding do not count."""
        vocab_size = weight.size(0)
        padding = -vocab_size % 128
        table = F.pad(weight, (0, 0, 0, padding)) if padding else weight
        dtype = autocast_dtype(x)
        kernel = self.kernel and x.device.type in KERNEL_DEVICES
        if (self.float8 or (kernel and dtype != torch.float64)) and torch.is_grad_enabled():
            flat, flat_labels = x.flatten(0, 1).to(dtype), labels.flatten()
            if self.float8 and (more := -flat.size(0) % ALIGNMENT):
                flat, flat_labels = F.pad(flat, (0, 0, 0, more)), F.pad(flat_labels, (0, more), value=IGNORE)
            padded_bias = None if bias is None else F.pad(bias, (0, padding)).to(dtype)
            args = (flat, table, padded_bias, flat_labels, vocab_size, smoothing, kernel)
            return (Float8OutputLoss if self.float8 else OutputLoss).apply(*args)  # type: ignore[no-any-return]
        logits = F.linear(x, table).flatten(0, 1)
        if bias is not None:
            logits = logits + F.pad(bias, (0, padding)).to(logits.dtype)
        return SoftmaxLoss.apply(logits, labels.flatten(), vocab_size, smoothing)  # type: ignore[no-any-return]
