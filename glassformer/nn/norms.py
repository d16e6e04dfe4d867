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

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glassformer.nn.modes import is_transformed


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, *, eps: float = 1e-5) -> Tensor:
    """The equation: (x - mean) / sqrt(var + eps) * weight + bias over the last dimension."""
    x = x.to(weight.dtype)
    centred = x - x.mean(dim=-1, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps) * weight
    return y if bias is None else y + bias


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the features of each token."""

    def __init__(self, size: int, *, bias: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None

    def forward(self, x: Float[Tensor, "*any C"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "*any C"]:
        """(..., C) -> (..., C)"""
        if is_transformed():  # where torch's kernel can be wrong: modes.py
            return layer_norm(x, self.weight, self.bias, eps=self.eps).type_as(x)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps).type_as(x)


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
