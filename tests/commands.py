"""`glassformer …` in processes of their own, without paying for the import of torch each time.

A helper process imports the package once and forks for every command: the child has its own folder, its own streams and
an exit code, exactly as if it had been started by hand. (`python -m glassformer` itself is called where that is the point.)
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.programs import command

ROOT = Path(__file__).parents[1]
PATHS = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS, "COLUMNS": "120"}


@cache
def helper() -> subprocess.Popen[str]:
    started = subprocess.Popen(
        command("command_server"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    atexit.register(started.kill)
    return started


def answered(order: dict[str, Any]) -> Any:
    """What the helper says to an order."""
    process = helper()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@dataclass
class Begun:
    """A command that is at work, to be sent signals."""

    number: int
    out: Path
    err: Path

    def send_signal(self, which: int) -> None:
        os.kill(self.number, which)

    def ended(self, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Once it has ended: its exit code and what it said."""
        deadline = time.monotonic() + timeout
        while (code := answered({"ended": self.number})) is None:
            if time.monotonic() > deadline:
                self.send_signal(signal.SIGKILL)
                raise AssertionError(f"it did not end: {self.err.read_text(encoding='utf-8')}")
            time.sleep(0.02)
        out, err = (path.read_text(encoding="utf-8") for path in (self.out, self.err))
        return subprocess.CompletedProcess([], code, out, err)


def begin(*arguments: Any, said: Path, cwd: Path = ROOT) -> Begun:
    """`glassformer ARGUMENTS` in `cwd`, not waited for; what it says goes to files in the folder `said`."""
    number = len(list(said.glob("out-*")))
    out, err = said / f"out-{number}", said / f"err-{number}"
    out.touch()
    order = {"cwd": str(cwd), "out": str(out), "err": str(err), "arguments": [str(a) for a in arguments]}
    return Begun(answered({**order, "begin": True}), out, err)


def call(
    *arguments: Any, cwd: Path = ROOT, stdin: bytes | None = None, drawn: bool = True
) -> subprocess.CompletedProcess[str]:
    """`glassformer ARGUMENTS` in `cwd`, with no terminal; on its stdin is nothing, or a pipe that this comes through. Without
    `drawn` a training draws no picture of its curves at its end, which takes longer than a small training does."""
    words, how = [str(a) for a in arguments], {"drawn": drawn}
    if stdin is None:
        return forked(words, cwd, how)
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(pipe := Path(folder) / "pipe")
        threading.Thread(target=feed, args=(pipe, stdin), daemon=True).start()
        return forked(words, cwd, how | {"in": str(pipe)})


def feed(pipe: Path, content: bytes) -> None:
    """Into a pipe that may be read to its end or not."""
    with suppress(BrokenPipeError), pipe.open("wb") as file:
        file.write(content)


def call_program(name: str, *arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of tests/programs as `run_program` runs it, whatever its exit code, but with torch imported already; the
    environment is there from the program's first line, and not from the start of its process."""
    program, *words = command(name, *arguments)[1:]
    return forked(words, ROOT, {"program": program, "environment": environment})


def forked(words: list[str], cwd: Path, more: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        order = {"cwd": str(cwd), "out": str(out), "err": str(err), "arguments": words, **more}
        code = answered(order)
        return subprocess.CompletedProcess(
            words, code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        )


def call_by_hand(*arguments: Any, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`python -m glassformer ARGUMENTS`, with everything that belongs to it."""
    command = [sys.executable, "-m", "glassformer", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT, check=False, timeout=180, encoding="utf-8"
    )
