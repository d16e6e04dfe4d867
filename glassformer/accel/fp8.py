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
    d loss / d scores  2^15, always: it lies between -1 and 1 (loss_kernels.py)

What is larger is cut to the largest. Going forward and the gradient of x are in 8 bits; the gradient of W is so in the output
layer, whose product is large, and by default not elsewhere: it runs over the positions, so it wants both its factors turned,
and turning costs as much as is won (part "weights" does it). Rounding W, x and dy is no change to the definition of the
gradient: it is taken as if rounding were not there (straight through).

A product wants both factors in the order in which it sums: `a` by rows, `b` by columns, all sizes multiples of 16. Where
there is no CUDA device the same numbers are multiplied in float32, so that the rounding can be tested anywhere.

Weights stay float32 and layers keep their names: a model is told to round (`use_float8`), and rounds while it trains. An
evaluating model computes as ever. Not here: the loss (output_loss.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.accel.projection import JoinedAttention
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.feedforward import MLP, GatedMLP

PARTS = ("output", "output-weights", "mlp", "attention", "attention-out", "weights")
"""What can be in 8 bits: the output layer, the gradient of its weights too; feed-forward layers; queries, keys and values;
what joins the heads; the gradients of the weights of those three too."""
DEFAULT_PARTS = ("output", "output-weights", "mlp", "attention")
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ACTIVATION_SCALE = 4.0
GRADIENT_SCALE = 64.0
LOSS_SCALE = 2.0**15
SIZES = 16  # every size of a product is a multiple of this


def to_float8(x: Tensor, scale: Tensor | float, kind: torch.dtype) -> Tensor:
    """Rounded, and by rows: the gradient of a layer may arrive in any order."""
    most = torch.finfo(kind).max
    return (x.to(torch.float32) * scale).clamp(-most, most).to(kind).contiguous()


def weight_to_float8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The rounded weights, and what to multiply them by to have them back."""
    largest = weight.detach().abs().amax().to(torch.float32).clamp(min=1e-12)
    return to_float8(weight, torch.finfo(E4M3).max / largest, E4M3), largest / torch.finfo(E4M3).max


def by_columns(x: Tensor) -> Tensor:
    """The same matrix, the elements of a column following each other in memory."""
    return x.t().contiguous().t()


def gradient_scale(positions: int) -> float:
    """What a gradient over so many positions is multiplied by before it is rounded: a power of two."""
    return GRADIENT_SCALE * 2.0 ** round(math.log2(max(1, positions)))


def scaled_product(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    back_a: Tensor | float,
    back_b: Tensor | float,
    dtype: torch.dtype,
    *,
    bias: Tensor | None = None,
    fast: bool = True,
) -> Float[Tensor, "M N"]:
    """(a back_a) (b back_b) + bias, of 8-bit factors. Not `fast`: sums of many thousands are kept in more bits."""
    scales = [
        back if isinstance(back, Tensor) else torch.full((), back, dtype=torch.float32, device=a.device)
        for back in (back_a, back_b)
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


class Float8Product(torch.autograd.Function):
    """x W^T + b by `scaled_product`, and the gradient of x too; that of W where `weights` says so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, weights: bool) -> Tensor:
        """x (M, K) and W (N, K) rounded to e4m3 -> (M, N) in x's type."""
        w8, back_w = weight_to_float8(weight)
        x8 = to_float8(x, ACTIVATION_SCALE, E4M3)
        ctx.save_for_backward(x8 if weights else x, w8, back_w)
        ctx.weights, ctx.dtype, ctx.has_bias = weights, weight.dtype, bias is not None
        return scaled_product(x8, w8.t(), 1 / ACTIVATION_SCALE, back_w, x.dtype, bias=bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """dy rounded to e5m2; dx by an 8-bit product, dW by one only where `weights` was set."""
        refuse_second_derivative()
        x, w8, back_w = ctx.saved_tensors
        scale = gradient_scale(grad.size(0))
        grad8 = to_float8(grad, scale, E5M2)
        grad_x = scaled_product(grad8, by_columns(w8), 1 / scale, back_w, grad.dtype)
        if ctx.weights:
            turned = grad8.t().contiguous()
            grad_w = scaled_product(turned, by_columns(x), 1 / scale, 1 / ACTIVATION_SCALE, ctx.dtype, fast=False)
        else:
            grad_w = (grad.t() @ x).to(ctx.dtype)
        return grad_x, grad_w, grad.sum(0) if ctx.has_bias else None, None


def working_type(x: Tensor) -> torch.dtype:
    """What a product of x would come out as."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def float8_linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, weights: bool = False) -> Tensor:
    """x W^T + b with its products in 8 bits, for x of any number of dimensions."""
    dtype = working_type(x)
    flat = x.flatten(0, -2).to(dtype)
    weights = weights and flat.size(0) % SIZES == 0
    y = Float8Product.apply(flat, weight, None if bias is None else bias.to(dtype), weights)
    return y.unflatten(0, x.shape[:-1])  # type: ignore[no-any-return]


class Float8Linear(nn.Linear):
    """nn.Linear in 8 bits while it trains; its weights stay as they are, and evaluation is exact."""

    weights = False

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)"""
        if not self.training:
            return F.linear(x, self.weight, self.bias)
        return float8_linear(x, self.weight, self.bias, weights=self.weights)


class Float8Attention(JoinedAttention):
    """Its joined projection, too, is in 8 bits; the attention itself is as ever."""

    weights = False

    def joined_product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """As JoinedAttention's, in 8 bits while it trains."""
        if not self.training:
            return super().joined_product(x, weight, bias)
        return float8_linear(x, weight, bias, weights=self.weights)


def linear_layers(model: nn.Module) -> dict[str, tuple[str, nn.Linear]]:
    """The linear layers of the blocks by name, each with the part it belongs to."""
    found: dict[str, tuple[str, nn.Linear]] = {}
    for path, module in model.named_modules():
        for name, layer in module.named_children():
            if isinstance(layer, nn.Linear):
                if isinstance(module, MLP | GatedMLP):
                    found[f"{path}.{name}"] = ("mlp", layer)
                elif isinstance(module, MultiHeadAttention):
                    found[f"{path}.{name}"] = ("attention-out" if name == "out" else "attention", layer)
    return found


def cannot(model: nn.Module, device: torch.device) -> str | None:
    """Why this model on this device cannot have products in 8 bits, if so."""
    if device.type != "cuda":
        return "it needs a CUDA device"
    if torch.cuda.get_device_capability(device) < (8, 9):
        return f"{torch.cuda.get_device_name(device)} has no products in 8 bits"
    return odd_size(model)


def odd_size(model: nn.Module) -> str | None:
    """Which layer has a side that 8-bit products cannot have, in words; None where all fit."""
    for name, (_, layer) in linear_layers(model).items():
        for size in (layer.in_features, layer.out_features):
            if size % SIZES or not size:
                return f"{name} has a side of {size}, and products in 8 bits want multiples of {SIZES}"
    return None


def use_float8(model: nn.Module, parts: Sequence[str] = DEFAULT_PARTS) -> None:
    """From here on the layers of these parts compute in 8 bits while the model trains. Weights and names stay."""
    if unknown := set(parts) - set(PARTS):
        raise ValueError(f"{sorted(unknown)} are no parts of a model; choose from: {', '.join(PARTS)}")
    for part, layer in linear_layers(model).values():
        if part in parts:
            layer.__class__ = Float8Linear
            layer.weights = "weights" in parts  # type: ignore[assignment]
    if "attention" in parts:
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.__class__ = Float8Attention
                module.weights = "weights" in parts  # type: ignore[assignment]
