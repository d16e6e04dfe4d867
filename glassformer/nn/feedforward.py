"""The position-wise feed-forward network: the sublayer in which no token sees another. Project up, activate, project down.

    MLP(x) = down(activation(up(x)))                     Vaswani et al. 2017 (relu), GPT-2 (gelu_tanh), BERT (gelu)
    GatedMLP(x) = down(activation(gate(x)) * up(x))      Shazeer 2020: swiglu (silu), geglu (gelu)

relu2 is max(0, x)^2 (So et al. 2021). GELU's tanh form is 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.nn.taps import Tapped


def relu2(x: Tensor) -> Tensor:
    """max(0, x)^2"""
    return F.relu(x).square()


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh form, as GPT-2 has it."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "relu2": relu2,
    "silu": F.silu,
}
GATES: dict[str, Callable[[Tensor], Tensor]] = {"swiglu": F.silu, "geglu": F.gelu, "geglu_tanh": gelu_tanh}


class MLP(Tapped):
    """down(activation(up(x))), at every position alike: n_embd -> n_hidden -> n_embd."""

    tap_names = ("hidden", "activation", "out")

    def __init__(self, n_embd: int, n_hidden: int, *, activation: str = "relu", bias: bool = True) -> None:
        super().__init__()
        self.activate = ACTIVATIONS[activation]
        self.up = nn.Linear(n_embd, n_hidden, bias=bias)
        self.down = nn.Linear(n_hidden, n_embd, bias=bias)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """(B, T, C) -> (B, T, C)"""
        hidden = self.tap("hidden", self.up(x))
        active = self.tap("activation", self.activate(hidden))
        return self.tap("out", self.down(active))


class GatedMLP(Tapped):
    """down(activation(gate(x)) * up(x)): a gated linear unit, in which the gate decides how much of the other half passes."""

    tap_names = ("hidden", "activation", "out")

    def __init__(self, n_embd: int, n_hidden: int, *, activation: str = "swiglu", bias: bool = True) -> None:
        super().__init__()
        self.activate = GATES[activation]
        self.gate = nn.Linear(n_embd, n_hidden, bias=bias)
        self.up = nn.Linear(n_embd, n_hidden, bias=bias)
        self.down = nn.Linear(n_hidden, n_embd, bias=bias)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """(B, T, C) -> (B, T, C)"""
        hidden = self.tap("hidden", self.gate(x))
        active = self.tap("activation", self.activate(hidden) * self.up(x))
        return self.tap("out", self.down(active))
