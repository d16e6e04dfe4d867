"""How much memory can be had.

A process may be held to less than the machine has (a container's limit), so what is available is the smaller of the two.
Where the system tells nothing (it need not be Linux), the answer is None, and nobody guesses.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch

CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def container_room() -> int | None:
    """Bytes left under the container's limit, or None where there is none."""
    for limit, used in CGROUPS:
        with contextlib.suppress(OSError, ValueError):
            return max(0, int(limit.read_text()) - int(used.read_text()))
    return None


def available(device: torch.device) -> int | None:
    """Bytes that could still be taken."""
    if device.type == "cuda":
        # What torch holds and does not use counts as free: the next tensor may have it.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + held)
    found = []
    try:
        facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(int(facts["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    room = container_room()
    return min(found + ([room] if room is not None else []), default=None)
