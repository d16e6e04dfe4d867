"""`glassformer verify-resume`, as a person calls it: what is equal, what differs, and that it takes its child along."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glassformer_lab.verify_resume import compare
from tests.faults.processes import ROOT, TINY, Runner
from tests.faults.test_screen import ENVIRONMENT

pytestmark = pytest.mark.slow
KILLED = -9


def test_verify_resume(tmp_path: Path) -> None:
    """Three processes of its own, nothing forked, nothing preloaded: 0 bits differ."""
    command = [sys.executable, "-m", "glassformer", "verify-resume", "copy", *TINY, "train.ema=0.9", "--steps", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 bits differ" in done.stdout
    for part in ("parameters", "optimizer", "moving average", "random state", "place in the data", "final weights"):
        assert part in done.stdout
    assert "going on from step 6" in done.stderr


def test_two_runs_that_differ_are_told_apart(tmp_path: Path) -> None:
    """What it would say if a resume were wrong: here the order of epoch 0 is replayed, and the rows say where it shows."""
    settings = ["train.steps=60", "train.validate_every=60"]
    straight, stopped = (Runner(tmp_path / kind, settings) for kind in ("straight", "stopped"))
    assert straight.train().code == 0
    assert stopped.train({"at": "step", "nth": 58, "do": "kill"}).code == KILLED
    assert stopped.resume({"variant": "epoch-0-order"}).code == 0
    parts = {part.name: part for part in compare(straight.run, stopped.run)}
    assert parts["parameters"].bits > 0 and "bits; at most" in parts["parameters"].differences[0].what
    assert parts["optimizer"].bits > 0 and parts["log, line by line"].bits > 0
    assert len(parts["log, line by line"].differences) == 6  # five losses and a validation
    same = compare(straight.run, straight.run)
    assert sum(part.bits for part in same) == 0 and all(part.compared and not part.differences for part in same)


def test_verify_resume_takes_its_child_along(tmp_path: Path) -> None:
    """However it ends: SIGTERM, and SIGKILL, after which nobody can tidy up."""
    marker = f"train.noam_factor={random.randint(10**6, 10**7)}"
    for number in (signal.SIGTERM, signal.SIGKILL):
        command = [sys.executable, "-m", "glassformer", "verify-resume", "copy", *TINY, marker, "--steps", "5000"]
        environment = ENVIRONMENT | {"TMPDIR": str(tmp_path)}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
        children: list[str] = []
        while not children and process.poll() is None:
            time.sleep(0.05)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        time.sleep(0.5)
        process.send_signal(number)
        process.wait(60)
        until = time.monotonic() + 60
        while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(Path(f"/proc/{child}").exists() for child in children), number
        if number == signal.SIGTERM:
            assert list(tmp_path.iterdir()) == [], "temporary folders are gone, too"
