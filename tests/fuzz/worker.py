"""Commands by the hundred: one process imports the package and forks for each. A command has its own folder and streams, a
limit of processor time, and is measured: seconds of processor time, and memory beyond what it was forked with."""

from __future__ import annotations

import atexit
import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.commands import ENVIRONMENT
from tests.programs import command

MOST_SECONDS = 10.0  # of processor time, where a sound command does not take half of that itself
MOST_MEMORY = 1 << 30
PATIENCE = 150  # seconds of the clock, on a machine that may be busy, before a command counts as hanging


@dataclass(frozen=True)
class Outcome:
    """How a command ended, what it said, and what it took."""

    code: int
    out: str
    err: str
    seconds: float
    memory: int
    hung: bool

    def complaint(self, most_seconds: float = MOST_SECONDS) -> str | None:
        """What no command may do, whatever it is given."""
        if self.hung:
            return "it hangs"
        if self.code not in (0, 1, 2, 75):
            return f"exit code {self.code}"
        if "Traceback (most recent call last)" in self.err + self.out:
            return "a traceback"
        if self.seconds > most_seconds:
            return f"{self.seconds:.0f} seconds of processor time"
        if self.memory > MOST_MEMORY:
            return f"{self.memory / 2**30:.1f} GB more memory"
        if self.code == 2 and not self.err.strip():
            return "exit code 2 without a word"
        return None


@cache
def server() -> subprocess.Popen[str]:
    started = subprocess.Popen(
        command("measuring_server"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    atexit.register(started.kill)
    return started


def run(arguments: list[Any], folder: Path) -> Outcome:
    """`glassformer ARGUMENTS` in `folder`, with nothing on its stdin; its words are kept beside the folder."""
    out, err = folder.with_name(f"{folder.name}.out"), folder.with_name(f"{folder.name}.err")
    for path in (out, err):
        path.unlink(missing_ok=True)
    order = {"cwd": str(folder), "out": str(out), "err": str(err), "arguments": [str(a) for a in arguments]}
    process = server()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(order | {"patience": PATIENCE}) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    words = [path.read_text(encoding="utf-8", errors="replace") if path.exists() else "" for path in (out, err)]
    return Outcome(answer["code"], words[0], words[1], answer["seconds"], answer["memory"], answer["hung"])
