"""Low-rank adaptation (LoRA; Hu et al. 2021): a trained matrix is frozen and learns an update of low rank beside it.

    W' = W + (alpha / rank) B A        A: rank x in, small and random; B: out x rank, zero at first

So training begins with the model as it was and learns a hundredth of its parameters. Afterwards the update can be merged into W,
and the layer is a linear layer again. Whoever asks such a layer for its `weight` gets W'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float
from torch import Tensor, nn

LORA_TENSORS = ("lora_a", "lora_b", "lora_scale")


class LoRALinear(nn.Linear):
    """A linear layer whose own weight is frozen and whose low-rank update learns. `add_lora` makes one of a linear layer."""

    lora_a: Tensor
    lora_b: Tensor
    lora_scale: Tensor

    @property
    def weight(self) -> Float[Tensor, "out inner"]:  # type: ignore[override]
        """W + (alpha / rank) B A"""
        return self._parameters["weight"] + self.lora_scale * (self.lora_b @ self.lora_a)  # type: ignore[operator]


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns, in which a star stands for anything.

    >>> matches("decoder.0.cross.query", ["decoder.*.query"]), matches("encoder.0.mlp.up", ["decoder.*"])
    (True, False)
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def add_lora(model: nn.Module, rank: int, alpha: float, targets: Sequence[str]) -> list[str]:
    """Gives every linear layer whose name matches a low-rank update (A from torch's global random state), and freezes its weight.
    The names of the layers."""
    adapters = []
    for name, module in model.named_modules():
        if type(module) is nn.Linear and matches(name, targets):
            weight = module.weight
            module.__class__ = LoRALinear
            module.register_parameter("lora_a", nn.Parameter(weight.new_empty(rank, weight.size(1))))
            module.register_parameter("lora_b", nn.Parameter(weight.new_zeros(weight.size(0), rank)))
            module.register_buffer("lora_scale", torch.tensor(alpha / rank, device=weight.device))
            nn.init.kaiming_uniform_(module.get_parameter("lora_a"), a=math.sqrt(5))
            adapters.append(name)
    return adapters


def merge_lora(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by name with every LoRA update merged into its weight, and none left; without updates, the same tensors."""
    out = {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] not in LORA_TENSORS}
    for name in tensors:
        layer, _, part = name.rpartition(".")
        if part == "lora_a":
            update = tensors[f"{layer}.lora_b"] @ tensors[name]
            out[f"{layer}.weight"] = tensors[f"{layer}.weight"] + tensors[f"{layer}.lora_scale"] * update
    return out


def adapter_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The adapter: the LoRA tensors alone."""
    return {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] in LORA_TENSORS}
