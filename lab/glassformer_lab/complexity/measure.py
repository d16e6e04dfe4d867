"""Time and memory of a forward and a backward pass.

Time is the shortest of several passes: whatever else the machine does can only make one longer. On a CPU it is the processor
time of one thread, which other programs do not touch; on CUDA the time on the wall. Memory is the most that was
alive at once beyond what was there before: on CUDA as the allocator counts it, on a CPU the bytes of all tensors (scratch that
a kernel keeps to itself is not seen there).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer_lab.complexity.layers import LayerKind, rows


class LiveBytes(TorchDispatchMode):
    """Inside, the most bytes that tensors made here held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operation, below autograd: what it made, and what is gone since."""
        out = function(*args, **(kwargs or {}))
        self.known = {key: one for key, one in self.known.items() if not one[0].expired()}
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


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
    device = x.device
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    one_pass(layer, x)
    wait(device)
    best, spent, done = float("inf"), 0.0, 0
    while done < least or spent < seconds:
        began = clock()
        one_pass(layer, x)
        wait(device)
        took = clock() - began
        best, spent, done = min(best, took), spent + took, done + 1
    return best


def most_memory(layer: nn.Module, x: Tensor) -> int:
    """Bytes alive at once in a pass, the input and the weights not counted."""
    if x.device.type == "cuda":
        one_pass(layer, x)
        layer.zero_grad(set_to_none=True)
        x.grad = None
        wait(x.device)
        torch.cuda.reset_peak_memory_stats(x.device)
        before = torch.cuda.memory_allocated(x.device)
        one_pass(layer, x)
        wait(x.device)
        return int(torch.cuda.max_memory_allocated(x.device) - before)
    layer.zero_grad(set_to_none=True)
    x.grad = None
    with LiveBytes() as watch:
        layer(x).sum().backward()
    return watch.most


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
    found = []
    for length, width in sizes:
        torch.manual_seed(0)
        made, x = layer.make(width).to(device), rows(length, width, device)
        with one_thread(device):
            took = shortest_time(made, x, seconds)
        found.append(Point(layer.name, length, width, took, most_memory(made, x)))
    return found
