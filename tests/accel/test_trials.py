"""What a machine is asked and told: instructions as torch finds them, and trials that are kept, shared and made anew."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer import machine
from glassformer.accel import trials
from glassformer.files.cache import cache_folder

X86 = {
    "architecture": "x86_64",
    "cpu_name": "Some Xeon",
    "avx2": True,
    "avx512_f": True,
    "amx_int8": True,
    "sse4a": False,
}
ARM = {"architecture": "aarch64", "neon": True, "dot": True, "i8mm": False, "sve_max_length": 16}


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache folder of its own, and nothing remembered."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trials, "KNOWN", {})
    yield
    for cached in (machine.cpu_flags, machine.cpu_name):
        cached.cache_clear()


def test_an_arm_processor_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught: `Unknown`, as torch calls it."""
    told = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
    monkeypatch.setattr(Path, "read_text", lambda path, **how: told)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: ARM | {"cpu_name": "Unknown"})
    machine.cpu_name.cache_clear()
    assert machine.cpu_name() == "Neoverse V2"


@pytest.mark.parametrize(
    ("told", "name", "there", "missing"),
    [
        (X86, "Some Xeon", "matrix products of 8 bits", "scalable vectors (SVE)"),
        (ARM, "", "dot products of 8 bits", "matrix products of 8 bits"),
        ({}, "", "", "matrix products of 8 bits"),
    ],
)
def test_instructions_are_those_that_torch_has_found(
    told: dict[str, Any], name: str, there: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caught: what torch names and says is not there taken for there; a length taken for an instruction."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: told)
    machine.cpu_flags.cache_clear()
    machine.cpu_name.cache_clear()
    capabilities = machine.cpu_capabilities()
    assert name in machine.cpu_name()
    assert not there or capabilities[there]
    assert not capabilities[missing] and "sve_max_length" not in machine.cpu_flags()
    assert machine.describe()


def test_instructions_are_those_of_the_system() -> None:
    """What torch says of this machine, beside what its kernel does."""
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpuinfo.exists():
        pytest.skip("Linux on x86-64 writes them there by these names")
    machine.cpu_flags.cache_clear()
    listed = next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")).split()
    for torch_name, kernel_name in (("avx2", "avx2"), ("avx512_f", "avx512f"), ("avx512_vnni", "avx512_vnni")):
        assert (torch_name in machine.cpu_flags()) == (kernel_name in listed)


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil tells of the machine alone. Caught: a container's limit not asked for."""
    limit, used = tmp_path / "limit", tmp_path / "used"
    monkeypatch.setattr(machine, "CGROUPS", ((limit, used),))
    free = machine.available_memory(torch.device("cpu"))
    assert free > 10_000_000
    limit.write_text("3000\n")
    used.write_text("1000\n")
    assert machine.available_memory(torch.device("cpu")) == 2000
    limit.write_text("max\n")
    assert machine.available_memory(torch.device("cpu")) > 10_000_000


def test_a_race_is_won_by_the_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of ours. Caught: the ratio upside down."""
    now = 0.0

    def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(trials.time, "thread_time", lambda: now)
    uneven = chain([5.0], repeat(1.0))  # its first turn sets something up
    threads = torch.get_num_threads()
    assert trials.speedup(lambda: spend(next(uneven)), lambda: spend(2.0)) == pytest.approx(2.0)
    assert torch.get_num_threads() == threads


def test_a_trial_is_made_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask() -> dict[str, float]:
        asked.append(1)
        return {"8": 1.5, "24": 1.2}

    first = trials.gains("some path", ask)
    trials.KNOWN.clear()  # another process
    assert trials.gains("some path", ask) == first == {"8": 1.5, "24": 1.2}
    assert len(asked) == 1
    monkeypatch.setattr(machine, "identity", lambda: "another machine")
    trials.gains("some path", ask)
    assert len(asked) == 2


NOT_OURS = (b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100000)
NO_GAINS = (b"{}", b'{"8": "fast"}', b'{"8": -1}', b'{"8": NaN}', b'{"8": true}')


@pytest.mark.parametrize("content", [*NOT_OURS, *(b'{"gains": %b}' % gains for gains in NO_GAINS)])
def test_a_damaged_result_is_made_anew(content: bytes) -> None:
    trials.gains("some path", lambda: {"8": 1.5})
    (path,) = (cache_folder() / "trials").iterdir()
    path.write_bytes(content)
    trials.KNOWN.clear()
    assert trials.gains("some path", lambda: {"8": 1.25}) == {"8": 1.25}
    assert json.loads(path.read_bytes())["gains"] == {"8": 1.25}


def test_of_two_processes_the_first_decides() -> None:
    """Caught: each its own answer, so that a resumed training computes otherwise than the one that was stopped."""

    def ask() -> dict[str, float]:
        trials.gains("some path", lambda: {"8": 1.5})  # meanwhile, elsewhere
        trials.KNOWN.clear()
        return {"8": 0.9}

    assert trials.gains("some path", ask) == {"8": 1.5}


def test_nothing_need_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "file"))
    assert trials.gains("some path", lambda: {"8": 1.5}) == {"8": 1.5}


@pytest.mark.parametrize(
    ("found", "limit"),
    [({"8": 1.5, "24": 1.2}, 24), ({"8": 1.5, "24": 1.0}, 8), ({"8": 0.6, "24": 1.2}, 0), ({"24": 1.2, "8": 1.5}, 24)],
)
def test_taken_up_to_the_first_size_that_is_not_worth_it(found: dict[str, float], limit: int) -> None:
    assert trials.largest_size_worth(found) == limit


def test_with_the_cache_off_a_trial_is_made_once_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    made = [trials.gains("nothing kept", lambda: {"1": 2.0}) for _ in range(2)]
    assert made == [{"1": 2.0}] * 2 and not list(tmp_path.iterdir())
