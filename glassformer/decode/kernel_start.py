"""How a kernel of decoding starts: on devices that know it (compute capability 9 and up), while the one before it still runs.

It fetches what that one cannot change, its weights or the keys of earlier words; then it waits (`begin`). A step is some sixty
kernels of a few microseconds, so the start of each is a good part of its time.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

early_start = True  # may be switched off to measure what it gives


@lru_cache
def knows_early_start() -> bool:
    return torch.cuda.is_available() and torch.version.hip is None and torch.cuda.get_device_capability()[0] >= 9


def starting() -> dict[str, Any]:
    """How every kernel is launched."""
    return {"EARLY": True, "launch_pdl": True} if early_start and knows_early_start() else {"EARLY": False}


@triton.jit
def begin(EARLY: tl.constexpr):
    """Wait for the kernel before this one. Only then may the next one start: so what it fetches ahead of its own wait is
    safe if it was written by a kernel before this one. (The library's kernels keep to this too.)"""
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
