"""How a kernel of decoding starts: by programmatic dependent launch (PDL, compute capability 9 and up), while the kernel
before it still runs.

It loads what that one cannot change, its weights or the keys of earlier tokens; then it waits (`wait_for_previous`). A step
is some sixty kernels of a few microseconds, so the start of each is a good part of its time.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

from glassformer import machine


def launch_options() -> dict[str, Any]:
    """How every kernel is launched: with PDL where the device has it."""
    device = machine.gpu()
    overlaps = device is not None and device.overlaps_launches
    return {"PDL": True, "launch_pdl": True} if overlaps else {"PDL": False}


def multiprocessors() -> int:
    """How many blocks a device runs side by side at least; of no device, those of a middling one."""
    device = machine.gpu()
    return 64 if device is None else device.multiprocessors


@triton.jit
def wait_for_previous(PDL: tl.constexpr):
    """Wait for the kernel before this one. Only then may the next one start: so what it fetches ahead of its own wait is
    safe if it was written by a kernel before this one. (The library's kernels keep to this too.)"""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
