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

from glassformer.nn.attention import (
    MultiHeadAttention,
    attention,
    fused_attention,
    masked_attention,
    sliding_window_attention,
)
from glassformer.nn.masks import AttentionMask
from glassformer_lab.alternatives.convolution import Convolution
from glassformer_lab.alternatives.linear_attention import linear_attention
from glassformer_lab.alternatives.recurrent import Recurrent, lstm

HEAD_SIZE = 32
KERNEL = 3
WINDOW = 64


class Alone(nn.Module):
    """Attention without projections: x is query, key and value at once."""

    def __init__(self, kernel: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """Every head's output, side by side again."""
        heads = x.unflatten(-1, (-1, HEAD_SIZE)).transpose(1, 2)
        return self.kernel(heads).transpose(1, 2).flatten(-2)


class Masked(nn.Module):
    """A layer that takes a mask, with a causal one."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """The layer's output."""
        return self.layer(x, AttentionMask(causal=True))  # type: ignore[no-any-return]


def explicit(width: int) -> nn.Module:
    """The equation, with all n x n weights."""
    return Alone(lambda q: masked_attention(q, q, q, AttentionMask(causal=True)))


def fused(width: int) -> nn.Module:
    """torch's kernel, which never holds them."""
    return Alone(lambda q: fused_attention(q, q, q, AttentionMask(causal=True)))


def windowed(width: int, window: int = WINDOW) -> nn.Module:
    """Each query sees the last `window` keys, block by block (nn/attention.py)."""
    return Alone(lambda q: fused_attention(q, q, q, AttentionMask(causal=True, window=window)))


def linear(width: int) -> nn.Module:
    """Attention without the softmax."""
    return Alone(lambda q: linear_attention(q, q, q, causal=True))


def whole_layer(width: int) -> nn.Module:
    """Multi-head attention with its four projections."""
    return Masked(MultiHeadAttention(width, width // HEAD_SIZE, head_size=HEAD_SIZE))


def recurrent(width: int) -> nn.Module:
    """torch's LSTM."""
    return Masked(Recurrent(width))


def convolution(width: int) -> nn.Module:
    """A convolution over KERNEL tokens."""
    return Masked(Convolution(width, kernel_size=KERNEL))


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
    LayerKind("attention alone, explicit", "attention", explicit, "O(n² d)", (2, 2), (1, 1), 2, "O(1)", "O(1)"),
    LayerKind("attention alone, fused", "attention", fused, "O(n² d)", (2, 2), (1, 1), 1, "O(1)", "O(1)"),
    LayerKind(
        "self-attention, whole layer", "attention", whole_layer, "O(n² d + n d²)", (1, 2), (1, 2), 1, "O(1)", "O(1)"
    ),
    LayerKind("recurrent (LSTM)", "recurrent", recurrent, "O(n d²)", (1, 1), (2, 2), 1, "O(n)", "O(n)"),
    LayerKind(
        "convolution", "convolution", convolution, f"O(k n d²), k = {KERNEL}", (1, 1), (2, 2), 1, "O(1)", "O(n / k)"
    ),
    LayerKind("window", "window", windowed, f"O(r n d), r = {WINDOW}", (1, 1), (1, 1), 1, "O(1)", "O(n / r)"),
    LayerKind(
        "linear attention", "linear", linear, f"O(n d D), D = {HEAD_SIZE}", (1, 1), (1, 1), 1, "O(n / 64)", "O(1)"
    ),
)


def equations(width: int = 8) -> dict[str, Callable[[Tensor], Tensor]]:
    """Each kind of layer as its equation, of rows (1, n, width)."""
    torch.manual_seed(0)
    weights = tuple(torch.randn(*s, requires_grad=True) for s in ((4 * width, width), (4 * width, width), (4 * width,)))
    layer = Convolution(width)

    def masked(x: Tensor) -> Tensor:
        return attention(x, x, x, torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril())

    return {
        "attention": masked,
        "recurrent": lambda x: lstm(x, weights),  # type: ignore[arg-type]
        "convolution": lambda x: layer(x, AttentionMask(causal=True)),
        "window": lambda x: sliding_window_attention(x[None], x[None], x[None], 4)[0],
        "linear": lambda x: linear_attention(x, x, x, causal=True),
    }
