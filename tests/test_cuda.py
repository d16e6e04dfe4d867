"""On a CUDA device: every operation against the reference, the captured step against the plain model, and the captured training
step and 8-bit training against their eager forms. Skipped where there is none.

A process of its own for each: what checks shapes in tests wraps functions, and Triton compiles their source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [*(ROOT / "tests" / "cuda").glob("*.py"), *(ROOT / "lab" / "tests" / "cuda").glob("*.py")]


@pytest.mark.cuda
@pytest.mark.parametrize("script", sorted(SCRIPTS), ids=lambda path: path.name)
def test_on_the_device(script: Path) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=900)
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
