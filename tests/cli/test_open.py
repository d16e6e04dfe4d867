"""`glassformer open`: the live page of all runs in a folder, for this machine, until it is told to end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.commands import ENVIRONMENT, call
from tests.small_runs import small_run


@pytest.mark.slow
def test_a_folder_of_runs_is_opened(tmp_path: Path) -> None:
    """The address that is told answers; the run is there with texts of its own; Ctrl-C ends it in good order."""
    small_run(tmp_path / "runs", "pairs", name="numbers")
    arguments = [sys.executable, "-m", "glassformer", "open", str(tmp_path / "runs"), "--no-browser"]
    running = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert running.stderr is not None
    try:
        told = next(
            found for line in running.stderr if (found := re.search(r"open (http://127\.0\.0\.1:\d+)/open", line))
        )
        with urllib.request.urlopen(f"{told[1]}/open", timeout=60) as page:
            assert b"live.js" in page.read()
        with urllib.request.urlopen(f"{told[1]}/open/numbers/examples", timeout=60) as answer:
            assert json.load(answer)["examples"]
        running.send_signal(signal.SIGINT)
        running.stderr.read()
        assert running.wait(60) == 0
    finally:
        running.kill()


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    done = call("open", str(tmp_path))
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and str(tmp_path) in done.stderr
