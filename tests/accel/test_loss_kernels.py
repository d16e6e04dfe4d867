"""The loss kernels against the torch code that says what they compute, by Triton's interpreter, which needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A process of its own: the interpreter is chosen when kernels are defined, and the checks of shapes cannot be compiled.
SCRIPT = ROOT / "tests" / "programs" / "loss_kernels.py"


@pytest.mark.slow
def test_kernels_compute_the_formula() -> None:
    """Loss and gradient; smoothing, IGNORE, words that do not exist, more columns than a block takes at a time, a last tile
    that is not full; 8 bits in both orders; and the output layer that is built on them, compiled without a break. Broken:
    the score of the label read after the gradient has taken its place; padding in the maximum; rows and columns of the
    turned gradient exchanged."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0 and "held" in done.stdout, done.stdout + done.stderr
