"""The kernels of decoding without a GPU: whole steps by Triton's interpreter against torch's own operations, and every kernel,
those of the loss too, by the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import call_program
from tests.counts import SOAK, count
from tests.programs import run_program

ROOT = Path(__file__).parents[2]


def run(command: list[str], **environment: str) -> str:
    """In a process of its own: the interpreter is chosen when kernels are defined, and checks of shapes cannot be compiled."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", **environment}
    done = subprocess.run([sys.executable, *command], env=given, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_kernels_compute_what_torch_computes() -> None:
    """Caught: a column of keys that is no beam's past, read; a norm put off that nobody made, as of a short source."""
    models, steps = count(fast=1, soak=7), count(fast=2, soak=3)  # the second step reads what the first has written
    found = run([str(ROOT / "tests/cuda/operations.py"), str(models), str(steps)], TRITON_INTERPRET="1")
    assert len(found.splitlines()) == models


@pytest.mark.slow
def test_the_beam_by_a_kernel_is_the_search() -> None:
    """Caught: a beam's filler rows counted among its candidates; a pool that reads a row after it was overwritten."""
    out = run_program("beam_kernel", TRITON_INTERPRET="1", PYTHONWARNINGS="ignore")
    assert out.count("same") == (3 if SOAK else 2)


@pytest.mark.slow
def test_kernels_compile_for_a_device(tmp_path: Path) -> None:
    """Caught: a number of 32 bits before a loop and of 64 inside it; a field of a tuple with a name that Triton uses."""
    environment = {name: "" for name in ("TRITON_INTERPRET",) if name in os.environ}
    done = call_program("compiled_kernels", TRITON_CACHE_DIR=str(tmp_path), **environment)
    assert done.returncode == 0 and done.stdout.startswith("compiled"), done.stderr[-3000:]
