"""The package tells its types: mypy, as a user runs it, knows what `load` gives and refuses what cannot be."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_wheel_says_that_it_is_typed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "py.typed" in settings["package-data"]["glassformer"] and (ROOT / "glassformer" / "py.typed").exists()


@pytest.mark.slow
def test_what_mypy_knows_of_the_public_api() -> None:
    """Broken variants: a `load` that gives Any, a union on which nobody may call `translate`, `train` taken for a module."""
    programs = ROOT / "tests" / "programs"
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache")]
    files = [programs / "typed_calls.py", programs / "wrongly_typed_calls.py"]
    done = subprocess.run([*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=False)
    wrong = re.findall(r"(\w*typed_calls)\.py:(\d+): error", done.stdout)
    lines = files[1].read_text().splitlines()
    mistakes = {("wrongly_typed_calls", str(n)) for n, line in enumerate(lines, 1) if n > lines.index("") + 4 and line}
    assert set(wrong) == mistakes, done.stdout + done.stderr
    assert len(mistakes) == 4
