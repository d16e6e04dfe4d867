"""Matrix products on 8-bit and 4-bit weights, for the engine of engine.py.

int8   Each row of a weight is scaled to -127 ... 127 and rounded once. Inputs are quantised as they come, 8 bits over the
       range they happen to have, and multiplied as integers. The range is that of all rows together, so an answer depends a
       little on its neighbours: strict mode refuses this engine. With few rows torch's `fbgemm` kernels are faster, with
       many `onednn` is (it uses the matrix units of recent processors), so both packings are kept: two bytes a weight.

int4   For one row at a time, where reading the weights is all the work there is. Every 32 weights share a scale and have 15
       levels. Steps of more rows use int8. Two kernels exist: `kleidiai` on ARM (inputs in 8 bits), and torch's own in
       bfloat16 elsewhere; whether they beat int8 is a question of the processor.

Only matrices are quantised: embeddings, norms, attention and everything between stay in float32.
"""

from __future__ import annotations

import platform
import warnings
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.decode.engine import Linear
from glassformer.errors import ConfigError

FEW_ROWS = 16  # up to here the kernels for few rows are taken
GROUP = 32  # weights that share a scale, in 4 bits

Kernel4 = Literal["kleidiai", "bfloat16"]


def engine_names() -> list[str]:
    """torch's int8 backends that this processor can use: one for few rows, one for many, or one for both."""
    have = torch.backends.quantized.supported_engines
    few = [str(name) for name in ("fbgemm",) if name in have]
    many = [str(name) for name in ("onednn", "qnnpack") if name in have][:1]
    if not few + many:
        raise ConfigError('this build of torch has no 8-bit kernels; set decode.engine to "fast"')
    return (few + many) if len(few + many) == 2 else (few + many) * 2


def seven_bits() -> bool:
    """Old x86 processors add pairs of 8-bit products in 16 bits, which overflows unless inputs have 7."""
    return platform.machine().lower() in ("x86_64", "amd64") and not torch.cpu._is_vnni_supported()


def int8_linear(weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"] | None) -> Linear:
    weight = weight.detach().float()
    scales = (weight.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    rounded = (weight / scales[:, None]).round().to(torch.int8)
    names, packed, before = engine_names(), {}, torch.backends.quantized.engine
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # torch announces the end of its quantised tensors, and has nothing as fast yet
            zeros = torch.zeros(weight.size(0), dtype=torch.long)
            quantised = torch._make_per_channel_quantized_tensor(rounded, scales.double(), zeros, 0)
            for name in names:
                torch.backends.quantized.engine = name
                packed[name] = torch.ops.quantized.linear_prepack(quantised, None if bias is None else bias.detach())
    finally:
        torch.backends.quantized.engine = before
    few, many = (packed[name] for name in names)
    # The operator itself: what torch wraps around it looks through the arguments at every call, for several microseconds.
    multiply, reduced = torch.ops.quantized.linear_dynamic.default._op, seven_bits()
    return lambda x: multiply(x, few if x.size(0) <= FEW_ROWS else many, reduced)


def four_bits(weight: Float[Tensor, "out in"]) -> tuple[Tensor, Float[Tensor, "out groups"]]:
    """Levels 0 ... 15, of which 8 means zero, and the scale of each group."""
    grouped = weight.detach().float().unflatten(1, (-1, GROUP))
    scales = (grouped.abs().amax(dim=2) / 7).clamp(min=torch.finfo(torch.float32).tiny)
    levels = (grouped / scales[:, :, None] + 8).round().clamp(0, 15).to(torch.uint8)
    return levels.flatten(1), scales


def kernel4() -> Kernel4:
    return "kleidiai" if torch.backends.kleidiai.is_available() else "bfloat16"


def int4_linear(
    weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"] | None, kernel: Kernel4 | None = None
) -> Linear:
    """4-bit weights for a single row, 8-bit ones for more. A matrix that does not divide into groups has 8 bits alone."""
    outputs, inputs = weight.shape
    eight = int8_linear(weight, bias)
    kernel = kernel or kernel4()
    if inputs % GROUP or (kernel == "bfloat16" and outputs % 16):
        return eight
    levels, scales = four_bits(weight)
    if kernel == "kleidiai":
        pairs = (levels[:, 1::2] << 4) | levels[:, ::2]
        added = None if bias is None else bias.detach().float()
        packed = torch.ops.aten._dyn_quant_pack_4bit_weight(pairs, scales, added, GROUP, inputs, outputs)
        multiply = torch.ops.aten._dyn_quant_matmul_4bit.default
        return lambda x: multiply(x, packed, GROUP, inputs, outputs) if x.size(0) == 1 else eight(x)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.int(), 1)
    zeros = torch.zeros_like(scales)
    scales_and_zeros = torch.stack([scales, zeros], dim=-1).transpose(0, 1).to(torch.bfloat16).contiguous()
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu.default
    shift = torch.zeros(outputs) if bias is None else bias.detach()

    def product(x: Tensor) -> Tensor:
        if x.size(0) > 1:
            return eight(x)
        return multiply(x.to(torch.bfloat16), packed, GROUP, scales_and_zeros).float().add_(shift)

    return product
