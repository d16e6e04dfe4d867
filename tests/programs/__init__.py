"""Programs that tests run in processes of their own: where types and shapes are not checked at every call, where something else
has been imported, or nothing has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def command(name: str, *arguments: Any) -> list[str]:
    """What starts a program of this folder."""
    return [sys.executable, str(FOLDER / f"{name}.py"), *map(str, arguments)]


def run_program(name: str, *arguments: Any, timeout: float = 900, **environment: str) -> str:
    """What a program of this folder prints; one that fails is a failure of the test, with what it said."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", **environment}
    done = subprocess.run(
        command(name, *arguments),
        cwd=ROOT,
        env=given,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout
