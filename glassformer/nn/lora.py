"""Low-rank adaptation (LoRA; Hu et al. 2021): a trained matrix stays as it is and learns a correction of low rank beside it.

    W' = W + (alpha / rank) B A        A: rank x in, small and random; B: out x rank, zero at first

So training begins with the model as it was, learns a hundredth of its numbers, and can be added into W afterwards, after which
nothing is left of it but another W. Whoever asks such a layer for its `weight` gets W'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float
from torch import Tensor, nn

PARTS = ("lora_a", "lora_b", "lora_scale")


class LowRankLinear(nn.Linear):
    """A linear layer whose own weight is fixed and whose correction learns. Made of one that is there, by `add_low_rank`."""

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


def add_low_rank(model: nn.Module, rank: int, alpha: float, targets: Sequence[str]) -> list[str]:
    """Gives every linear layer whose name matches a correction of this rank (from torch's global random state), and freezes
    its weight. The names of the layers."""
    found = []
    for name, module in model.named_modules():
        if type(module) is nn.Linear and matches(name, targets):
            weight = module.weight
            module.__class__ = LowRankLinear
            module.register_parameter("lora_a", nn.Parameter(weight.new_empty(rank, weight.size(1))))
            module.register_parameter("lora_b", nn.Parameter(weight.new_zeros(weight.size(0), rank)))
            module.register_buffer("lora_scale", torch.tensor(alpha / rank, device=weight.device))
            nn.init.kaiming_uniform_(module.get_parameter("lora_a"), a=math.sqrt(5))
            found.append(name)
    return found


def merged(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by name with every correction added into its weight, and none left; without corrections, the same tensors."""
    out = {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] not in PARTS}
    for name in tensors:
        layer, _, part = name.rpartition(".")
        if part == "lora_a":
            change = tensors[f"{layer}.lora_b"] @ tensors[name]
            out[f"{layer}.weight"] = tensors[f"{layer}.weight"] + tensors[f"{layer}.lora_scale"] * change
    return out


def adapter_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The corrections alone."""
    return {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] in PARTS}
