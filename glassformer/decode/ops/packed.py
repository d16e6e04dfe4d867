"""The operations of decoding on a CPU: the reference, with the weights laid out as a product of a few rows wants them.

A product of some rows with a transposed weight (in, out) takes between a half and four fifths of the time of one with (out,
in), and one product of several weights side by side less than several. A single row gains nothing: it reads every weight
once, in whatever order, so it uses the model's own (and a driver of a single row has the reference do it all). Packed weights
are copies, made when they are first needed and again when the model's have changed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glassformer.decode.ops.torch import LinearWeights, TorchOps


class TransposedWeights:
    """Weights of linear layers with one input, and the same side by side and transposed, once asked for."""

    def __init__(self, parts: LinearWeights) -> None:
        self.parts = list(parts)
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None

    def pack(self) -> Tensor:
        """Lay the weights out: side by side and transposed, (in, out)."""
        biases = [bias.detach() for _, bias in self.parts if bias is not None]
        self.bias = torch.cat(biases) if biases else None
        self.weight = torch.cat([weight.detach() for weight, _ in self.parts]).t().contiguous()
        return self.weight


class PackedOps(TorchOps):
    """For a CPU."""

    holds_copies = True

    def pack(self, parts: LinearWeights) -> TransposedWeights:
        """Weights that are laid out when they are first used."""
        return TransposedWeights(parts)

    def linear(
        self, x: Float[Tensor, "R in"], weights: TransposedWeights, activation: Any = None, *, to_residual: bool = False
    ) -> Float[Tensor, "R out"]:
        """The reference's product, by the transposed weights."""
        if x.size(0) == 1:
            return super().linear(x, weights.parts, activation)  # type: ignore[no-any-return]
        weight = weights.weight if weights.weight is not None else weights.pack()
        y = torch.mm(x, weight) if weights.bias is None else torch.addmm(weights.bias, x, weight)
        if activation is F.relu:
            return y.relu_()
        return y if activation is None else activation(y)  # type: ignore[no-any-return]
