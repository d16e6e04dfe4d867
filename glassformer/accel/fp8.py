"""Matrix products in 8 bits: twice the rate of bfloat16 on devices that have them, for training only.

A number of 8 bits has either 4 bits for its size and 3 behind the point (e4m3, up to 448: what is multiplied going forward)
or 5 and 2 (e5m2, up to 57344: gradients, which need the range more than the digits); Micikevicius et al. 2022. The sum of
a product is kept in more, and comes out as bfloat16. Before it is rounded, a tensor is multiplied by a scale that brings it
to where the 8 bits are, and the product is divided by it again.

A scale that is looked for in the tensor costs a reading of it, and the rounding could not be done where the tensor is
made. So, of a layer y = x W^T:

    x    4, always. It comes from a norm, an activation or an average of values: its typical size is 1, up to 112 is kept
    W    448 / its largest element, looked for each step: weights are small beside activations
    dy   64 x positions, rounded to a power of two. The loss is a mean over about as many positions, so this undoes the
         mean; the gradient of one position may be from 0.000001 to 900 in size (of several micro-batches a step, so many
         times less: the mean is over all of them)
    d loss / d logits  2^15, always: it lies between -1 and 1 (loss_kernels.py)

What is larger is cut to the largest. In 8 bits are the feed-forward layers, queries, keys and values, and the output layer
with its loss; not what joins the heads, a product too small to gain by it. Going forward and the gradient of x are in 8 bits;
the gradient of W is so in the output layer alone, whose product is large: it runs over the positions, so it wants both its
factors transposed, and elsewhere that costs as much as is won. Rounding W, x and dy is no change to the definition of the
gradient: it is taken as if rounding were not there (straight through).

A product wants both factors in the order in which it sums: `a` row-major, `b` column-major, all sizes multiples of 16. Where
there is no CUDA device the same numbers are multiplied in float32, so that the rounding can be tested anywhere.

Weights stay float32 and layers keep their names: a model is told to round (`use_float8`), and rounds while it trains. An
evaluating model computes as ever. Not here: the loss (output_loss.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.accel.fused_qkv import FusedQKVAttention
from glassformer.language import _
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.feedforward import MLP, GatedMLP

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ACTIVATION_SCALE = 4.0
GRADIENT_SCALE = 64.0
LOSS_SCALE = 2.0**15
ALIGNMENT = 16  # every size of a product is a multiple of this


def to_float8(x: Tensor, scale: Tensor | float, dtype: torch.dtype) -> Tensor:
    """x times scale, clamped to the range of an 8-bit dtype and rounded to it; row-major, however x lies in memory."""
    largest = torch.finfo(dtype).max
    return (x.to(torch.float32) * scale).clamp(-largest, largest).to(dtype).contiguous()


def weight_to_float8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The rounded weights, and the inverse of their scale, which gives them back."""
    largest = weight.detach().abs().amax().to(torch.float32).clamp(min=1e-12)
    return to_float8(weight, torch.finfo(E4M3).max / largest, E4M3), largest / torch.finfo(E4M3).max


def column_major(x: Tensor) -> Tensor:
    """The same matrix in column-major order: the elements of a column follow each other in memory."""
    return x.t().contiguous().t()


def gradient_scale(positions: int) -> float:
    """What a gradient over so many positions is multiplied by before it is rounded: a power of two."""
    return GRADIENT_SCALE * 2.0 ** round(math.log2(max(1, positions)))


def scaled_mm(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    inverse_a: Tensor | float,
    inverse_b: Tensor | float,
    dtype: torch.dtype,
    *,
    bias: Tensor | None = None,
    fast: bool = True,
) -> Float[Tensor, "M N"]:
    """(a inverse_a) (b inverse_b) + bias, of 8-bit factors. Not `fast`: sums of many thousands are kept in more bits."""
    scales = [
        inverse if isinstance(inverse, Tensor) else torch.full((), inverse, dtype=torch.float32, device=a.device)
        for inverse in (inverse_a, inverse_b)
    ]
    if not a.is_cuda:
        found = (a.to(torch.float32) @ b.to(torch.float32)) * (scales[0] * scales[1])
        return (found if bias is None else found + bias).to(dtype)
    return torch._scaled_mm(a, b, scale_a=scales[0], scale_b=scales[1], bias=bias, out_dtype=dtype, use_fast_accum=fast)


def refuse_second_derivative() -> None:
    """A gradient rounded to 8 bits, or made together with its loss, cannot be differentiated again."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "a second derivative was asked of a model that is accelerated for training (8 bits, or a compiled loss); "
            "build the model anew and leave accelerate() out"
        )


class Float8LinearFunction(torch.autograd.Function):
    """x W^T + b by `scaled_mm`, and the gradient of x too; that of W exactly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x (M, K) and W (N, K) rounded to e4m3 -> (M, N) in x's type."""
        w8, inverse_w = weight_to_float8(weight)
        x8 = to_float8(x, ACTIVATION_SCALE, E4M3)
        ctx.save_for_backward(x, w8, inverse_w)
        ctx.dtype, ctx.has_bias = weight.dtype, bias is not None
        return scaled_mm(x8, w8.t(), 1 / ACTIVATION_SCALE, inverse_w, x.dtype, bias=bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """dx by an 8-bit product of dy rounded to e5m2; dW of the unrounded dy and x."""
        refuse_second_derivative()
        x, w8, inverse_w = ctx.saved_tensors
        scale = gradient_scale(grad.size(0))
        grad8 = to_float8(grad, scale, E5M2)
        grad_x = scaled_mm(grad8, column_major(w8), 1 / scale, inverse_w, grad.dtype)
        return grad_x, (grad.t() @ x).to(ctx.dtype), grad.sum(0) if ctx.has_bias else None


def autocast_dtype(x: Tensor) -> torch.dtype:
    """The dtype that a matrix product of x comes out as: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def float8_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b with its products in 8 bits, for x of any number of dimensions."""
    dtype = autocast_dtype(x)
    flat = x.flatten(0, -2).to(dtype)
    y = Float8LinearFunction.apply(flat, weight, None if bias is None else bias.to(dtype))
    return y.unflatten(0, x.shape[:-1])  # type: ignore[no-any-return]


class Float8Linear(nn.Linear):
    """nn.Linear in 8 bits while it trains; its weights stay as they are, and evaluation is exact."""

    stands_for = nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)"""
        if not self.training:
            return F.linear(x, self.weight, self.bias)
        return float8_linear(x, self.weight, self.bias)


class Float8Attention(FusedQKVAttention):
    """Its fused QKV projection, too, is in 8 bits; the attention itself is as ever."""

    stands_for = MultiHeadAttention

    def qkv_product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """As FusedQKVAttention's, in 8 bits while it trains."""
        if not self.training:
            return super().qkv_product(x, weight, bias)
        return float8_linear(x, weight, bias)


def float8_layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The linear layers of the blocks whose products are in 8 bits, by name: feed-forward layers; queries, keys and values."""
    for path, module in model.named_modules():
        for name, layer in module.named_children():
            projects = isinstance(module, MultiHeadAttention) and name != "out"
            if isinstance(layer, nn.Linear) and (projects or isinstance(module, MLP | GatedMLP)):
                yield f"{path}.{name}", layer


def unsupported_reason(model: nn.Module, device: torch.device) -> str | None:
    """Why this model on this device cannot have products in 8 bits, if so."""
    if device.type != "cuda":
        return _("it needs a CUDA device")
    if torch.cuda.get_device_capability(device) < (8, 9):
        return _("{device} has no products in 8 bits", torch.cuda.get_device_name(device))
    return misaligned_layer(model)


def misaligned_layer(model: nn.Module) -> str | None:
    """The first layer with a size that 8-bit products cannot have, in a sentence; None where all fit."""
    for name, layer in float8_layers(model):
        for size in (layer.in_features, layer.out_features):
            if size % ALIGNMENT or not size:
                return _(
                    "{name} has a side of {size}, and products in 8 bits want multiples of {alignment}",
                    name,
                    size,
                    ALIGNMENT,
                )
    return None


def use_float8(model: nn.Module) -> None:
    """From here on the blocks compute in 8 bits while the model trains. Weights and names stay."""
    for _unused, layer in float8_layers(model):
        layer.__class__ = Float8Linear
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.__class__ = Float8Attention
