"""Path length, measured: how many tokens back the gradient of the last output reaches through one layer, two, four …, and how
much of it is left there. Where one layer does not reach far enough, the way goes through several; where it reaches, it may still
be long (a recurrent layer hands on from token to token, and each time something is lost)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glassformer_lab.complexity.layers import (
    HEAD_SIZE,
    KERNEL,
    convolution,
    explicit,
    linear,
    recurrent,
    whole_layer,
    windowed,
)

SMALL_WINDOW = 8


@dataclass(frozen=True)
class Reach:
    """Through how many layers: the furthest token whose gradient is not zero, and how large it is there and at the first token
    of the row, as a share of that of the nearest other token."""

    layers: int
    distance: int
    far: float  # at the first token of the row; 0 where it is not reached


def gradient_reach(kind: str, layers: int, length: int, width: int = HEAD_SIZE) -> Reach:
    """In float64, through freshly made layers; averaged over a few rows."""
    torch.manual_seed(0)
    make = {
        "attention": whole_layer,
        "attention alone": explicit,
        "recurrent": recurrent,
        "convolution": lambda d: convolution(d, KERNEL),
        "window": lambda d: windowed(d, window=SMALL_WINDOW),
        "linear": linear,
    }[kind]
    stack = [make(width).double() for _ in range(layers)]
    x = torch.randn(4, length, width, dtype=torch.float64, requires_grad=True)
    out = x
    for layer in stack:
        out = layer(out)
    (grad,) = torch.autograd.grad((out[:, -1] * torch.randn(4, width, dtype=torch.float64)).sum(), x)
    sizes = grad.norm(dim=-1).mean(0)
    reached = int(sizes.nonzero().min()) if sizes.any() else length - 1
    return Reach(layers, length - 1 - reached, float(sizes[0] / sizes[-2].clamp(min=1e-300)))


KINDS = ("attention", "recurrent", "convolution", "window", "linear")


def reaches(length: int, layers: Sequence[int]) -> dict[str, list[Reach]]:
    """By the kind of layer, through each number of layers."""
    return {kind: [gradient_reach(kind, k, length) for k in layers] for kind in KINDS}


def layers_needed(kind: str, length: int) -> int:
    """The fewest layers through which the last output sees the first token; doubled, then halved to the exact number."""
    high = 1
    while gradient_reach(kind, high, length).distance < length - 1:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if gradient_reach(kind, middle, length).distance < length - 1:
            low = middle
        else:
            high = middle
    return high
