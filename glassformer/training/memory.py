"""How much memory is in use, and what to say when there is not enough. (How much there is: machine.py.)"""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import torch

from glassformer.config import Recipe
from glassformer.language import _


def resident() -> int:
    """Bytes of this process in memory now."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_resident() -> int | None:
    """The most since the process began, or since `forget_peak`; None on a system without /proc, where nobody guesses. (psutil
    does not know it.)"""
    try:
        match = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def forget_peak() -> bool:
    """Begins `peak_resident` anew; False where the system does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    peak = peak_resident()
    return peak is not None and peak < resident() + (16 << 20)


@contextlib.contextmanager
def highest_resident() -> Iterator[list[int]]:
    """The most bytes in memory while the block runs are in the list when it ends: as the system says, or, where it cannot
    forget an earlier peak, as seen by looking every few milliseconds.

    >>> with highest_resident() as peak:
    ...     block = torch.ones(1_000_000)
    >>> len(peak)
    1
    """
    highest: list[int] = []
    if forget_peak():
        yield highest
        highest.append(peak_resident() or resident())
        return
    over, seen = threading.Event(), [resident()]

    def look() -> None:
        while not over.wait(0.005):
            seen.append(max(seen.pop(), resident()))

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield highest
    finally:
        over.set()
        watching.join()
    highest.append(max(seen[0], resident()))


def is_out_of_memory(error: BaseException) -> bool:
    """torch says it in its own class on CUDA, and as a RuntimeError with a certain sentence on a CPU; a library that is needed
    for the first time when there is no room for it any more says it as an ImportError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    signs = ("can't allocate memory", "not enough memory", "failed to map segment", "annot allocate memory")
    return isinstance(error, RuntimeError | ImportError) and any(sign in str(error) for sign in signs)


def less_memory(recipe: Recipe, share: float = 0.5) -> str:
    """Which settings to change, and to what, for micro-batches of this share of their size."""
    pieces = recipe.train.accumulate
    smaller = max(1, int(recipe.data.batch_tokens * share) // 16 * 16)
    more = max(pieces + 1, math.ceil(pieces / share))
    advice = _(
        "set train.accumulate={more} (the same batch in more pieces) or data.batch_tokens={smaller}", more, smaller
    )
    return advice if recipe.train.checkpoint_activations else _("{advice} or train.checkpoint_activations=true", advice)
