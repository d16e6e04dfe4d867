"""GELU's tanh form by one exponential, for compiled models on a CUDA device:

    0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))

where a device's tanh is a longer piece of code. The derivative is written out, so that x alone is kept.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def gelu_gate(x: Tensor) -> Tensor:
    return torch.sigmoid(2 * math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x))


class SigmoidGELU(torch.autograd.Function):
    """gelu_tanh by its other formula; x alone is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * gelu_gate(wide)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        gate = gelu_gate(wide)
        slope = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * wide * wide)
        return (grad * (gate + wide * gate * (1 - gate) * slope)).to(x.dtype)


def fast_gelu_tanh(x: Tensor) -> Tensor:
    """gelu_tanh; by the sigmoid while it is compiled for a CUDA device."""
    if x.is_cuda and torch.compiler.is_compiling():
        return SigmoidGELU.apply(x)  # type: ignore[no-any-return]
    return F.gelu(x, approximate="tanh")
