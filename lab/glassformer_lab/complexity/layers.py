"""What is compared: the layers of the paper's Table 1 and two more, each as a function of rows of numbers (B, n, d).

All of them are causal, as in a decoder. Attention has heads of one size, so that a wider layer has more heads (d = h D): then
the softmax, whose cost goes with the heads, grows with d as the products do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.language import _
from glassformer.nn.attention import MultiHeadAttention, fused_attention, masked_attention
from glassformer.nn.masks import AttentionMask
from glassformer_lab.alternatives.convolution import Convolution
from glassformer_lab.alternatives.linear_attention import linear_attention
from glassformer_lab.alternatives.recurrent import Recurrent

HEAD_SIZE = 32
KERNEL = 3
WINDOW = 64

Run = Callable[[Float[Tensor, "B n d"]], Float[Tensor, "B n d"]]
"""From rows to rows of the same shape."""


class Alone(nn.Module):
    """Attention without projections: x is query, key and value at once."""

    def __init__(self, kernel: Callable[[Tensor], Tensor], size: int) -> None:
        super().__init__()
        self.kernel, self.size = kernel, size

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """Every head's output, side by side again."""
        heads = x.unflatten(-1, (-1, self.size)).transpose(1, 2)
        return self.kernel(heads).transpose(1, 2).flatten(-2)


class Masked(nn.Module):
    """A layer that takes a mask, with a causal one."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """The layer's output."""
        return self.layer(x, AttentionMask(causal=True))  # type: ignore[no-any-return]


def explicit(width: int, size: int = HEAD_SIZE) -> nn.Module:
    """The equation, with all n x n weights."""
    return Alone(lambda q: masked_attention(q, q, q, AttentionMask(causal=True)), size)


def fused(width: int, size: int = HEAD_SIZE) -> nn.Module:
    """torch's kernel, which never holds them."""
    return Alone(lambda q: fused_attention(q, q, q, AttentionMask(causal=True)), size)


def windowed(width: int, size: int = HEAD_SIZE, window: int = WINDOW) -> nn.Module:
    """Each query sees the last `window` keys, block by block (nn/attention.py)."""
    return Alone(lambda q: fused_attention(q, q, q, AttentionMask(causal=True, window=window)), size)


def linear(width: int, size: int = HEAD_SIZE) -> nn.Module:
    """Attention without the softmax."""
    return Alone(lambda q: linear_attention(q, q, q, causal=True), size)


def whole_layer(width: int, size: int = HEAD_SIZE) -> nn.Module:
    """Multi-head attention with its four projections."""
    return Masked(MultiHeadAttention(width, width // size, head_size=size))


def recurrent(width: int) -> nn.Module:
    """torch's LSTM."""
    return Masked(Recurrent(width))


def convolution(width: int, kernel: int = KERNEL) -> nn.Module:
    """A convolution over `kernel` tokens."""
    return Masked(Convolution(width, kernel_size=kernel))


@dataclass(frozen=True)
class LayerKind:
    """A row of the table: how it is made, and what the paper (or its author) says of it. Exponents are those of n and d; a
    range where two terms share the cost."""

    name: str
    kind: str  # of chains and reach
    make: Callable[[int], nn.Module] = field(repr=False)
    time: str  # a layer's, as written
    in_n: tuple[int, int]
    in_d: tuple[int, int]
    memory_in_n: int
    sequential: str
    path: str


LAYERS = (
    LayerKind(_("attention alone, explicit"), "attention", explicit, "O(n² d)", (2, 2), (1, 1), 2, "O(1)", "O(1)"),
    LayerKind(_("attention alone, fused"), "attention", fused, "O(n² d)", (2, 2), (1, 1), 1, "O(1)", "O(1)"),
    LayerKind(
        _("self-attention, whole layer"), "attention", whole_layer, "O(n² d + n d²)", (1, 2), (1, 2), 1, "O(1)", "O(1)"
    ),
    LayerKind(_("recurrent (LSTM)"), "recurrent", recurrent, "O(n d²)", (1, 1), (2, 2), 1, "O(n)", "O(n)"),
    LayerKind(
        _("convolution"), "convolution", convolution, f"O(k n d²), k = {KERNEL}", (1, 1), (2, 2), 1, "O(1)", "O(n / k)"
    ),
    LayerKind(_("window"), "window", windowed, f"O(r n d), r = {WINDOW}", (1, 1), (1, 1), 1, "O(1)", "O(n / r)"),
    LayerKind(
        _("linear attention"), "linear", linear, f"O(n d D), D = {HEAD_SIZE}", (1, 1), (1, 1), 1, "O(n / 64)", "O(1)"
    ),
)


def rows(length: int, width: int, device: torch.device, batch: int = 1) -> Float[Tensor, "B n d"]:
    """Random rows whose gradient is asked for."""
    return torch.randn(batch, length, width, device=device, requires_grad=True)
