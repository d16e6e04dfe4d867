"""How much memory is in use, and what to say when there is not enough. (How much there is: machine.py.)

Where the system tells nothing (it need not be Linux), the answer is None, and nobody guesses.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import torch

from glassformer.config import Recipe


def status_of_process(name: str) -> int | None:
    """A line of /proc/self/status in bytes: VmRSS is what is resident now, VmHWM the most there has been, RssAnon what is
    resident and is no page of a mapped file."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def resident() -> int | None:
    """Bytes of this process in memory now, or None where the system does not say."""
    return status_of_process("VmRSS")


def peak_resident() -> int | None:
    """The most since the process began, or since `forget_peak`."""
    return status_of_process("VmHWM")


def forget_peak() -> bool:
    """Begins `peak_resident` anew; False where the system does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    peak, now = peak_resident(), resident()
    return peak is not None and now is not None and peak < now + (16 << 20)


@contextlib.contextmanager
def highest_resident() -> Iterator[list[int]]:
    """The most bytes in memory while the block runs are in the list when it ends: as the system says, or, where it cannot
    forget an earlier peak, as seen by looking every few milliseconds. Empty where the system says nothing.

    >>> with highest_resident() as peak:
    ...     block = torch.ones(1_000_000)
    >>> len(peak)
    1
    """
    found: list[int] = []
    if forget_peak():
        yield found
        found += [peak] if (peak := peak_resident()) is not None else []
        return
    over, seen = threading.Event(), [resident() or 0]

    def look() -> None:
        while not over.wait(0.005):
            seen.append(max(seen.pop(), resident() or 0))

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()
    found += [max(seen[0], resident() or 0)] if seen[0] else []


def is_out_of_memory(error: BaseException) -> bool:
    """torch says it in its own class on CUDA, and as a RuntimeError with a certain sentence on a CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in said or "not enough memory" in said)


def less_memory(recipe: Recipe, share: float = 0.5) -> str:
    """Which settings to change, and to what, for micro-batches of this share of their size."""
    pieces = recipe.train.accumulate
    smaller = max(1, int(recipe.data.batch_tokens * share) // 16 * 16)
    more = max(pieces + 1, math.ceil(pieces / share))
    advice = f"set train.accumulate={more} (the same batch in more pieces) or data.batch_tokens={smaller}"
    return advice if recipe.train.checkpoint_activations else advice + " or train.checkpoint_activations=true"
