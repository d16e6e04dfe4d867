"""The display of long work on a real terminal: one job inside another, and what is printed meanwhile."""

from __future__ import annotations

import os
import pty
import select
import sys
import time

from tests.commands import ENVIRONMENT, ROOT

NESTED = """
import sys, time
from glassformer.files.streams import unbreakable_screen
from glassformer.screen import Progress, at_work

with Progress("outer", 10, after=0) as outer:
    outer.update(1)
    with unbreakable_screen(), Progress("inner", 4, after=0, keep=True) as inner:
        for step in range(1, 5):
            inner.update(step, f"fact {step}")
            time.sleep(0.3)
        inner.message("a message stays")
        print("somebody prints", file=sys.stderr)
        with at_work("of unknown length", line=False):
            time.sleep(0.3)
    outer.update(10, "all of it")
    time.sleep(0.3)
print("the end", flush=True)
"""


def on_terminal(program: str, seconds: float = 60.0) -> tuple[int | None, str]:
    """What a Python program writes to a terminal, and its exit code; None where it does not end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-c", program], ENVIRONMENT | {"TERM": "xterm"})
    written, end, code = b"", time.monotonic() + seconds, None
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                block = os.read(terminal, 65536)
            except OSError:  # the other side is closed
                block = b""
            if not block:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                break
            written += block
    else:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    os.close(terminal)
    return code, written.decode("utf-8", "replace")


def test_a_job_inside_another_shares_its_place() -> None:
    """Broken variant: a display each, whose streams write into one another without end."""
    code, written = on_terminal(NESTED)
    assert code == 0, written[-500:]
    for text in ("outer", "inner", "fact 4", "a message stays", "somebody prints", "of unknown length", "the end"):
        assert text in written
    last = written[written.rindex("somebody prints") :]
    assert last.index("fact 4") < last.index("the end")  # what is kept stands there in the end
