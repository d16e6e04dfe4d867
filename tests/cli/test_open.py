"""`glassformer open`: the live page of all runs in a folder, for this machine, until it is told to end."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ENVIRONMENT, call
from tests.small_runs import small_run


class Opened:
    """`glassformer open` while it runs: its address, and the token that it printed with it."""

    def __init__(self, address: str, token: str) -> None:
        self.address, self.token = address, token

    def ask(self, path: str, body: bytes | None = None, token: str | None = None) -> Any:
        """The body of an answer, JSON where it is."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token or self.token}"}
        request = urllib.request.Request(self.address + path, body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read()
            return json.loads(content) if "json" in answer.headers["Content-Type"] else content


@contextmanager
def opened(folder: Path) -> Iterator[Opened]:
    """Ends in good order with the block; one address is printed."""
    arguments = [sys.executable, "-m", "glassformer", "open", str(folder), "--no-browser"]
    running = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert running.stderr is not None
    try:
        pattern = r"open (http://127\.0\.0\.1:\d+)/open\?token=(\S+) in a browser"
        before = [""]
        while not (told := re.search(pattern, before[-1])):
            before.append(running.stderr.readline())
            assert before[-1], before
        yield Opened(told[1], told[2])
        running.send_signal(signal.SIGINT)
        assert "http://" not in "".join(before[:-1]) + running.stderr.read()
        assert running.wait(60) == 0
    finally:
        running.kill()


@pytest.mark.slow
def test_a_folder_of_runs_is_opened(tmp_path: Path) -> None:
    """The address that is told answers; the run is there with texts of its own, and so is one that has no weights yet; Ctrl-C
    ends it in good order."""
    run = small_run(tmp_path / "runs", "pairs", name="numbers").path
    young = run.with_name("young")
    shutil.copytree(run, young, ignore=shutil.ignore_patterns("final", "checkpoints"))
    with opened(run.parent) as page:
        assert b"start.js" in page.ask("/open")
        assert page.ask("/open/numbers/examples")["examples"]
        runs = page.ask("/open/runs", b"{}")["runs"]
        told = {one["name"]: (one["served"], one["ended"], bool(one["metrics"])) for one in runs}
        assert told == {"numbers": (True, True, True), "young": (False, False, True)}
        # Whoever else has an account on the machine has no token. Broken variant: on loopback no key is asked for.
        for path, body in (("/open/numbers/examples", None), ("/open/runs", b"{}"), ("/open/train", b"{}")):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                page.ask(path, body, token="guessed-and-wrong")


@pytest.mark.slow
def test_a_run_without_weights_is_opened(tmp_path: Path) -> None:
    run = small_run(tmp_path, "pairs", name="numbers").path
    shutil.rmtree(run / "final")
    shutil.rmtree(run / "checkpoints")
    with opened(run) as page:
        assert page.ask("/v1/models")["data"] == []


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    done = call("open", str(tmp_path))
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and str(tmp_path) in done.stderr
