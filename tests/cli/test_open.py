"""`glassformer open`: the live page of all runs in a folder, for this machine, until it is told to end."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import ENVIRONMENT, call
from tests.small_runs import small_run


@contextmanager
def opened(folder: Path) -> Iterator[str]:
    """The address of `glassformer open`, which ends in good order with the block."""
    arguments = [sys.executable, "-m", "glassformer", "open", str(folder), "--no-browser"]
    running = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert running.stderr is not None
    try:
        told = next(
            found for line in running.stderr if (found := re.search(r"open (http://127\.0\.0\.1:\d+)/open", line))
        )
        yield told[1]
        running.send_signal(signal.SIGINT)
        running.stderr.read()
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
    with opened(run.parent) as address:
        with urllib.request.urlopen(f"{address}/open", timeout=60) as page:
            assert b"start.js" in page.read()
        with urllib.request.urlopen(f"{address}/open/numbers/examples", timeout=60) as answer:
            assert json.load(answer)["examples"]
        request = urllib.request.Request(f"{address}/open/runs", b"{}", {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = {
                one["name"]: (one["served"], one["ended"], bool(one["metrics"])) for one in json.load(answer)["runs"]
            }
        assert told == {"numbers": (True, True, True), "young": (False, False, True)}


@pytest.mark.slow
def test_a_run_without_weights_is_opened(tmp_path: Path) -> None:
    run = small_run(tmp_path, "pairs", name="numbers").path
    shutil.rmtree(run / "final")
    shutil.rmtree(run / "checkpoints")
    with opened(run) as address, urllib.request.urlopen(f"{address}/v1/models", timeout=60) as answer:
        assert json.load(answer)["data"] == []


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    done = call("open", str(tmp_path))
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and str(tmp_path) in done.stderr
