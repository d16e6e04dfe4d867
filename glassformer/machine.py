"""What this machine has: the instructions of its processor, as torch has found them; the memory that is left, as psutil tells
it; and what its GPU says of itself.

Nothing is decided here. Whoever decides asks for a capability ("has it dot products of 8 bits?", "how many multiprocessors?")
and never for a name; names are for people to read (`glassformer info --machine`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

# psutil knows the machine's memory, and not a container's limit: what the kernel says of it, in both its versions.
CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
# What torch calls each capability, on x86-64 and on ARM.
INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    "16 numbers at once (AVX-512)": ("avx512_f",),
    "8 numbers at once (AVX2)": ("avx2",),
    "4 numbers at once (NEON)": ("neon",),
    "scalable vectors (SVE)": ("sve", "sve2"),
    "dot products of 8 bits": ("avx512_vnni", "avx_vnni", "dot"),
    "matrix products of 8 bits": ("amx_int8", "i8mm"),
    "products of bfloat16": ("avx512_bf16", "bf16"),
    "matrix products of bfloat16": ("amx_bf16", "bf16"),
}


ARM_PARTS = {
    "0xd0c": "Neoverse N1",
    "0xd40": "Neoverse V1",
    "0xd49": "Neoverse N2",
    "0xd4f": "Neoverse V2",
    "0xd84": "Neoverse V3",
    "0xd8e": "Neoverse N3",
}
"""Arm's own numbers of its server processors, which Linux tells in the place of a name."""


def asked_of_torch() -> Mapping[str, Any]:
    """What torch has found out about this processor, by name; empty where this torch does not say."""
    ask = getattr(torch.cpu, "get_capabilities", dict)
    return dict(ask())


@cache
def cpu_flags() -> frozenset[str]:
    """The names of the instructions this processor has, as torch calls them."""
    return frozenset(name for name, value in asked_of_torch().items() if value is True)


@cache
def cpu_name() -> str:
    """What people call this processor."""
    told = str(asked_of_torch().get("cpu_name", ""))
    return told if told not in ("", "Unknown") else arm_name() or platform.processor() or platform.machine()


def arm_name() -> str | None:
    """The name of an Arm server's processor; None on others, and where the system does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("CPU part"):
                return ARM_PARTS.get(line.partition(":")[2].strip())
    return None


def cpu_capabilities() -> dict[str, bool]:
    """Each capability of `INSTRUCTIONS` with whether this processor has it."""
    have = cpu_flags()
    return {name: any(flag in have for flag in flags) for name, flags in INSTRUCTIONS.items()}


def vector_lanes() -> int:
    """How many float32 numbers torch's own loops take at once."""
    capability = torch.backends.cpu.get_cpu_capability().upper()
    return 16 if "AVX512" in capability else 8 if "AVX2" in capability else 4


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Gpu:
    """What a CUDA device says of itself."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_memory: int  # bytes that one block may have
    memory: int  # bytes

    @property
    def overlaps_launches(self) -> bool:
        """May a kernel begin while the one before it still runs (programmatic dependent launch)?"""
        return self.capability >= (9, 0) and torch.version.hip is None

    @property
    def has_bfloat16(self) -> bool:
        """Has it matrix units for bfloat16?"""
        return self.capability >= (8, 0)

    @property
    def has_float8(self) -> bool:
        """Has it matrix units for 8-bit floats?"""
        return self.capability >= (8, 9) and hasattr(torch, "_scaled_mm")


@cache
def gpu(index: int | None = None) -> Gpu | None:
    """The CUDA device of this number (the current one), or None where there is none."""
    if not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    shared = getattr(found, "shared_memory_per_block_optin", 0) or getattr(found, "shared_memory_per_block", 48 * 1024)
    return Gpu(found.name, (found.major, found.minor), found.multi_processor_count, shared, found.total_memory)


def container_room() -> int | None:
    """Bytes left under the container's limit, or None where there is none."""
    for limit, used in CGROUPS:
        with contextlib.suppress(OSError, ValueError):
            return max(0, int(limit.read_text()) - int(used.read_text()))
    return None


def available_memory(device: torch.device) -> int:
    """Bytes that could still be taken: the smaller of what the machine and a container's limit leave."""
    if device.type == "cuda":
        # What torch holds and does not use counts as free: the next tensor may have it.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + held)
    import psutil

    room, available = container_room(), int(psutil.virtual_memory().available)
    return available if room is None else min(available, room)


def rows_at_once(device: torch.device) -> int:
    """How many rows of a product keep a device busy: with more, a step that reads every weight once brings nothing but memory. On
    a GPU a tile of 64 for each multiprocessor. On a CPU 256: that is 128 operations for each byte of a weight, more than any
    processor computes while it reads one."""
    found = gpu(device.index) if device.type == "cuda" else None
    return 256 if found is None else 64 * found.multiprocessors


@cache
def has_triton() -> bool:
    """Is Triton there, which comes with torch where torch knows a CUDA device?"""
    return importlib.util.find_spec("triton") is not None


@cache
def package_version() -> str:
    """The installed version of this package; a checkout that was never installed has none."""
    try:
        return importlib.metadata.version("glassformer")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def identity() -> str:
    """A short name for all that a measurement depends on: processor, cores, GPU, torch, this package."""
    device = gpu()
    system = (platform.system(), platform.machine(), cpu_name(), *sorted(cpu_flags()), str(cores()))
    parts = (*system, str(device), torch.__version__, package_version())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def processor_identity() -> str:
    """A short name for what the last digits of a computation on a CPU depend on: its instructions, and torch."""
    parts = (platform.machine(), cpu_name(), *sorted(cpu_flags()), torch.__version__)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def describe() -> list[tuple[str, str]]:
    """This machine in lines for people: what, and how it answers."""
    have = [name for name, there in cpu_capabilities().items() if there]
    lines = [
        ("processor", f"{cpu_name()} ({platform.machine()})"),
        ("cores", f"{cores()}, torch uses {torch.get_num_threads()}"),
        ("it has", ", ".join(have) or "nothing that torch tells of"),
        ("torch", f"{torch.__version__}, its loops written for {torch.backends.cpu.get_cpu_capability()}"),
    ]
    device = gpu()
    if device is None:
        return [*lines, ("GPU", "none that torch can use")]
    major, minor = device.capability
    return [
        *lines,
        ("GPU", f"{device.name}, compute capability {major}.{minor}"),
        ("its size", f"{device.multiprocessors} multiprocessors, {device.memory / 2**30:.0f} GiB"),
        ("a block's shared memory", f"{device.shared_memory // 1024} KiB"),
        ("Triton", "there" if has_triton() else "not installed"),
    ]
