"""`glassformer …` in processes of their own, without paying for the import of torch each time.

A helper process imports the package once and forks for every command: the child has its own folder, its own streams and
an exit code, exactly as if it had been started by hand. (`python -m glassformer` itself is called where that is the point.)
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.programs import command

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


@cache
def helper() -> subprocess.Popen[str]:
    started = subprocess.Popen(
        command("command_server"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    atexit.register(started.kill)
    return started


def call(*arguments: Any, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`glassformer ARGUMENTS` in `cwd`, with nothing on its stdin and no terminal."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        words = [str(a) for a in arguments]
        order = {"cwd": str(cwd), "out": str(out), "err": str(err), "arguments": words}
        process = helper()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        return subprocess.CompletedProcess(
            words, code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        )


def call_by_hand(*arguments: Any, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`python -m glassformer ARGUMENTS`, with everything that belongs to it."""
    command = [sys.executable, "-m", "glassformer", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT, check=False, timeout=180, encoding="utf-8"
    )
