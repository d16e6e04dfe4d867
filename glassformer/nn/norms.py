"""Keeping activations at a steady size.

LayerNorm (Ba et al. 2016):  y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and variance over the *features*
of one token. It knows nothing of other tokens, other sentences or other layers.

RMSNorm (Zhang and Sennrich 2019):  y = x / sqrt(mean(x^2) + eps) * weight: the same without centring.

BatchNorm (Ioffe and Szegedy 2015) takes mean and variance over the *tokens*, a feature at a time. It is here for the
comparison: in training mode the real tokens of a batch see each other through the statistics, across sentences and
across time, so a model with it is neither causal nor independent of its neighbours. Padding is left out of them.

All are called as norm(x, real), where `real` marks what is not padding; only BatchNorm looks at it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glassformer.nn.modes import has_saved_tensor_hooks, is_symbolic, is_transformed


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """The equation: (x - mean) / sqrt(var + eps) * weight + bias over the last dimension."""
    centred = x - x.mean(dim=-1, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps) * weight
    return y if bias is None else y + bias


def fused_layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """The same by torch's kernel, which is right, and whose first and second derivatives are. In its third, and in the
    derivative of its forward-mode derivative, mean and variance stand still (pytorch issues 175754 and 196700)."""
    return F.layer_norm(x, weight.shape, weight, bias, eps)


class EquationGradient:
    """A hook on the kernel's backward: where the gradient will be differentiated again, it is the equation's. The usual backward
    pass, whose gradient is not, lets go of what was kept for this, as torch does of its own; one after it (retain_graph) finds
    the kernel's gradient, right to the second order."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> None:
        self.given: tuple[Tensor, Tensor, Tensor | None] | None = (x, weight, bias)
        self.eps = eps

    def __call__(self, gradients: tuple[Tensor | None, ...], upstream: tuple[Tensor | None, ...]) -> Any:
        """What goes back to x, weight and bias; None: what the kernel made."""
        if not torch.is_grad_enabled():
            self.given = None
        if self.given is None or upstream[0] is None:
            return None
        x, weight, bias = self.given
        x, weight, bias = (
            x.view_as(x),
            weight.view_as(weight),
            None if bias is None else bias.view_as(bias),
        )  # each alone
        y = layer_norm(x, weight, bias, self.eps)
        wanted = [t for t, g in zip((x, weight, bias), gradients) if t is not None and g is not None]
        found = iter(torch.autograd.grad(y, wanted, upstream[0], create_graph=True))
        return tuple(None if g is None else next(found) for g in gradients)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the features of each token."""

    def __init__(self, size: int, *, bias: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None

    def forward(self, x: Float[Tensor, "*any C"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "*any C"]:
        """(..., C) -> (..., C)"""
        if is_symbolic():
            by_equation = not torch.compiler.is_compiling() and is_transformed()
            norm = layer_norm if by_equation else fused_layer_norm
            return norm(x, self.weight, self.bias, self.eps).type_as(x)
        y = fused_layer_norm(x, self.weight, self.bias, self.eps)
        if y.grad_fn is not None and not has_saved_tensor_hooks():
            y.grad_fn.register_hook(EquationGradient(x.to(y.dtype), self.weight, self.bias, self.eps))
        return y.type_as(x)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the features of each token."""

    def __init__(self, size: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Float[Tensor, "*any C"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "*any C"]:
        """(..., C) -> (..., C)"""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps).type_as(x)


class BatchNorm(nn.Module):
    """Each feature by its mean and variance over the real tokens of a batch; by running ones in evaluation."""

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, size: int, *, bias: bool = True, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_variance", torch.ones(size))

    def forward(self, x: Float[Tensor, "B T C"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T C"]:
        """(B, T, C) -> (B, T, C); while training it also moves the running mean and variance."""
        if self.training:
            counted = torch.ones_like(x[..., :1]) if real is None else real[..., None].to(x.dtype)
            count = counted.sum().clamp(min=1)
            mean = (x * counted).sum((0, 1)) / count
            variance = ((x - mean).square() * counted).sum((0, 1)) / count
            with torch.no_grad():
                unbiased = variance * count / (count - 1).clamp(min=1)
                self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
                self.running_variance.lerp_(unbiased.to(self.running_variance), self.momentum)
        else:
            mean, variance = self.running_mean, self.running_variance
        y = (x - mean) * torch.rsqrt(variance + self.eps) * self.weight
        return y if self.bias is None else y + self.bias


class NoNorm(nn.Module):
    """The identity, so that what a norm does can be seen by leaving it out."""

    def forward(self, x: Float[Tensor, "*any C"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "*any C"]:
        """x as it is."""
        return x
