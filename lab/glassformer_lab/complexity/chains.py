"""Sequential operations, measured: the longest chain of operations each of which needs the result of the one before, in the
graph that autograd keeps of the written-out equation. An operation of torch counts as one, however large it is: that is what
can be done at once, given enough processors (a sum of n terms would take log n of them; it is counted as one here, as in the
paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glassformer.nn.attention import attention, sliding_window_attention
from glassformer.nn.masks import AttentionMask
from glassformer_lab.alternatives.convolution import Convolution
from glassformer_lab.alternatives.linear_attention import linear_attention
from glassformer_lab.alternatives.recurrent import lstm


def longest_chain(result: Tensor) -> int:
    """Operations on the longest way from the inputs to `result`."""
    order: list[Any] = []
    stack: list[tuple[Any, bool]] = [(result.grad_fn, False)]
    seen: set[Any] = set()
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node is not None and node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(before, False) for before, _ in node.next_functions]
    depth: dict[Any, int] = {}
    for node in order:
        inner = [depth[before] for before, _ in node.next_functions if before in depth]
        leaf = type(node).__name__ == "AccumulateGrad"
        depth[node] = 0 if leaf else 1 + max(inner, default=0)
    return depth.get(result.grad_fn, 0)


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


def chain_lengths(lengths: Sequence[int]) -> dict[str, dict[int, int]]:
    """By the kind of layer: the longest chain for each number of tokens."""
    found: dict[str, dict[int, int]] = {}
    for name, equation in equations().items():
        found[name] = {n: longest_chain(equation(torch.randn(1, n, 8, requires_grad=True))) for n in lengths}
    return found
