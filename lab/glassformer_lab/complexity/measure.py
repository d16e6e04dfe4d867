"""What is measured of a layer: time and memory of a forward and a backward pass, and the exponents of their growth; the longest
chain of operations; how far back a gradient reaches.

Time is the shortest of several passes: whatever else the machine does can only make one longer. On a CPU it is the processor
time of one thread, which other programs do not touch; on CUDA the time on the wall. Memory is the most that was
alive at once beyond what was there before: on CUDA as the allocator counts it, on a CPU the bytes of all tensors (scratch that
a kernel keeps to itself is not seen there).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer_lab.complexity import layers
from glassformer_lab.complexity.layers import HEAD_SIZE, LayerKind, equations

LEAST = 4  # sizes that an exponent is fitted to
SMALL_WINDOW = 8
KINDS = ("attention", "recurrent", "convolution", "window", "linear")


# ---- time and memory


class LiveBytes(TorchDispatchMode):
    """Inside, the most bytes that tensors made here held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operation, below autograd: what it made, and what is gone since."""
        out = function(*args, **(kwargs or {}))
        self.known = {key: entry for key, entry in self.known.items() if not entry[0].expired()}
        given = {StorageWeakRef(t.untyped_storage()).cdata for t in args if isinstance(t, Tensor)}
        for made in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made, Tensor):
                reference = StorageWeakRef(made.untyped_storage())
                if reference.cdata not in given or reference.cdata in self.known:  # a view holds nothing of its own
                    self.known[reference.cdata] = (reference, made.untyped_storage().nbytes())
        self.most = max(self.most, sum(size for _, size in self.known.values()))
        return out


def one_pass(layer: nn.Module, x: Tensor) -> None:
    """Forward and backward."""
    layer.zero_grad(set_to_none=True)
    x.grad = None
    layer(x).sum().backward()


def settle() -> None:
    """Waits until a GPU has done what it was given; the times of a CPU are over when a call returns."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Inside, a CPU works with one thread."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def shortest_time(layer: nn.Module, x: Tensor, seconds: float, least: int = 3) -> float:
    """Seconds of the shortest of several passes, `seconds` of them but `least` at least, after one to warm up."""
    clock = time.process_time if x.device.type == "cpu" else time.perf_counter
    one_pass(layer, x)
    settle()
    times: list[float] = []
    while len(times) < least or sum(times) < seconds:
        began = clock()
        one_pass(layer, x)
        settle()
        times.append(clock() - began)
    return min(times)


def most_memory(layer: nn.Module, x: Tensor) -> int:
    """Bytes alive at once in a pass, the input and the weights not counted."""
    layer.zero_grad(set_to_none=True)
    x.grad = None
    if x.device.type == "cpu":
        with LiveBytes() as watch:
            layer(x).sum().backward()
        return watch.most
    settle()
    torch.cuda.reset_peak_memory_stats(x.device)
    before = torch.cuda.memory_allocated(x.device)
    one_pass(layer, x)
    settle()
    return int(torch.cuda.max_memory_allocated(x.device) - before)


@dataclass(frozen=True)
class Point:
    """One measurement."""

    layer: str
    length: int
    width: int
    seconds: float
    bytes: int


def measure(layer: LayerKind, sizes: Sequence[tuple[int, int]], device: torch.device, seconds: float) -> list[Point]:
    """A layer at each (length, width)."""
    points = []
    for length, width in sizes:
        torch.manual_seed(0)
        made, x = layer.make(width).to(device), torch.randn(1, length, width, device=device, requires_grad=True)
        with one_thread(device):
            shortest = shortest_time(made, x, seconds)
        points.append(Point(layer.name, length, width, shortest, most_memory(made, x)))
    return points


# ---- exponents


@dataclass(frozen=True)
class Exponent:
    """The power, its standard error, and how many points it rests on."""

    value: float
    error: float
    points: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def asymptotic(sizes: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The larger half of the sizes with their values, LEAST at least, in order."""
    ordered = sorted(zip(sizes, values, strict=True))
    kept = ordered[-max(LEAST, math.ceil(len(ordered) / 2)) :]
    return [size for size, _ in kept], [value for _, value in kept]


def fit_exponent(sizes: Sequence[float], values: Sequence[float]) -> Exponent:
    """p of y = a x^p, by least squares on the logarithms of the asymptotic part.

    A cost law holds where its largest term is all that counts, and what is fixed or grows more slowly weighs least at the larger
    half of the sizes. The standard error is that of a straight line's slope: from what the points stray from it, with n - 2
    degrees of freedom.

    >>> fit_exponent([1, 2, 4, 8], [3, 12, 48, 192]).value
    2.0
    """
    if len(set(sizes)) < 3 or min(values) <= 0:
        raise ValueError("an exponent is fitted to three sizes at least and to values above zero")
    kept, measured = asymptotic(sizes, values)
    x, y = np.log(kept), np.log(measured)
    (slope, start), unscaled = np.polyfit(x, y, 1, cov="unscaled")
    stray = y - start - slope * x
    error = math.sqrt(float((stray**2).sum()) / max(1, len(x) - 2) * unscaled[0, 0])
    return Exponent(round(float(slope), 12), error, len(x))


# ---- sequential operations


def longest_chain(result: Tensor) -> int:
    """Operations on the longest way from the inputs to `result`, each of which needs the result of the one before, in the graph
    that autograd keeps. An operation of torch counts as one, however large it is: that is what can be done at once, given enough
    processors (a sum of n terms would take log n of them; it is counted as one here, as in the paper)."""
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


def chain_lengths(lengths: Sequence[int]) -> dict[str, dict[int, int]]:
    """By the kind of layer: the longest chain of its written-out equation for each number of tokens."""
    return {
        name: {n: longest_chain(equation(torch.randn(1, n, 8, requires_grad=True))) for n in lengths}
        for name, equation in equations().items()
    }


# ---- path length


@dataclass(frozen=True)
class Reach:
    """Through how many layers: the furthest token whose gradient is not zero, and how large it is there and at the first token
    of the row, as a share of that of the nearest other token."""

    layers: int
    distance: int
    far: float  # at the first token of the row; 0 where it is not reached


def gradient_reach(kind: str, depth: int, length: int) -> Reach:
    """How many tokens back the gradient of the last output reaches through so many layers, and how much of it is left.

    Where one layer does not reach far enough, the way goes through several; where it reaches, it may still be long (a recurrent
    layer hands on from token to token, and each time something is lost). In float64, freshly made, averaged over a few rows."""
    torch.manual_seed(0)
    make = {
        "attention": layers.whole_layer,
        "recurrent": layers.recurrent,
        "convolution": layers.convolution,
        "window": lambda width: layers.windowed(width, SMALL_WINDOW),
        "linear": layers.linear,
    }[kind]
    stack = [make(HEAD_SIZE).double() for _ in range(depth)]
    x = torch.randn(4, length, HEAD_SIZE, dtype=torch.float64, requires_grad=True)
    out = x
    for layer in stack:
        out = layer(out)
    (grad,) = torch.autograd.grad((out[:, -1] * torch.randn(4, HEAD_SIZE, dtype=torch.float64)).sum(), x)
    sizes = grad.norm(dim=-1).mean(0)
    reached = int(sizes.nonzero().min()) if sizes.any() else length - 1
    return Reach(depth, length - 1 - reached, float(sizes[0] / sizes[-2].clamp(min=1e-300)))


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
