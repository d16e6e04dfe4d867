"""What this machine has: the instructions of its processor and the memory that is left, read from the operating system, and
what its GPU says of itself.

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
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")
CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)
# What each capability is called by the operating system: Linux on x86-64, Linux on ARM, macOS.
INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    "16 numbers at once (AVX-512)": ("avx512f",),
    "8 numbers at once (AVX2)": ("avx2",),
    "4 numbers at once (NEON)": ("asimd", "advsimd"),
    "scalable vectors (SVE)": ("sve", "sve2"),
    "dot products of 8 bits": ("avx512_vnni", "avx_vnni", "asimddp", "feat_dotprod"),
    "matrix products of 8 bits": ("amx_int8", "i8mm", "feat_i8mm"),
    "products of bfloat16": ("avx512_bf16", "bf16", "feat_bf16"),
    "matrix products of bfloat16": ("amx_bf16", "svebf16", "feat_bf16"),
}


def read_cpuinfo() -> dict[str, str]:
    """The first processor's entries, as Linux tells them; empty elsewhere."""
    try:
        first = CPUINFO.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def ask_macos(*names: str) -> str:
    """What `sysctl` answers; empty where it does not."""
    try:
        found = subprocess.run(["/usr/sbin/sysctl", *names], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout


@cache
def cpu_flags() -> frozenset[str]:
    """The names of the instructions this processor has, in lower case, as its operating system calls them."""
    if platform.system() == "Darwin":
        lines = (line.partition(":") for line in ask_macos("hw.optional").splitlines())
        return frozenset(name.rpartition(".")[2].lower() for name, _, value in lines if value.strip() == "1")
    found = read_cpuinfo()
    flags = set(f"{found.get('flags', '')} {found.get('features', '')}".lower().split())
    # torch has looked for itself, where the system says nothing.
    return frozenset(flags | {torch.backends.cpu.get_cpu_capability().lower().replace("avx512", "avx512f")})


@cache
def cpu_name() -> str:
    """What people call this processor."""
    if platform.system() == "Darwin":
        return ask_macos("-n", "machdep.cpu.brand_string").strip() or platform.machine()
    found = read_cpuinfo()
    if name := found.get("model name") or found.get("hardware"):
        return name
    parts = [found[key] for key in ("cpu implementer", "cpu part") if key in found]
    return " ".join([platform.machine(), *parts])


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


def available_memory(device: torch.device) -> int | None:
    """Bytes that could still be taken: the smaller of what the machine and a container's limit leave. Where the system tells
    nothing (it need not be Linux), None, and nobody guesses."""
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


def describe() -> list[tuple[str, str]]:
    """This machine in lines for people: what, and how it answers."""
    have = [name for name, there in cpu_capabilities().items() if there]
    lines = [
        ("processor", f"{cpu_name()} ({platform.machine()})"),
        ("cores", f"{cores()}, torch uses {torch.get_num_threads()}"),
        ("it has", ", ".join(have) or "nothing that its operating system tells of"),
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
