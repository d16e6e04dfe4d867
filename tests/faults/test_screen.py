"""The screen taken away: a reader of stderr that leaves, stderr closed or full, at the start or in the middle. Training goes
on to the undisturbed weights, a stop still saves, and what was said is in the run's own log. The broken variant prints, and
dies of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import ENVIRONMENT, ROOT
from tests.counts import count
from tests.faults.processes import TINY, Runner, differences, everything

pytestmark = pytest.mark.slow
STOPPED = 75


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("screen") / "straight")
    assert runner.train().code == 0
    return runner


def start(folder: Path, stderr: object, *extra: str, resume: bool = False) -> subprocess.Popen[bytes]:
    what = [str(folder), "--resume"] if resume else ["copy", *TINY, *extra, "--out", str(folder)]
    command = [sys.executable, "-m", "glassformer", "train", *what]
    return subprocess.Popen(command, stdout=stderr, stderr=stderr, cwd=ROOT, env=ENVIRONMENT)  # type: ignore[call-overload, no-any-return]


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    while (not path.exists() or not path.stat().st_size) and process.poll() is None:
        time.sleep(0.02)


def test_full_and_closed(straight: Runner, tmp_path: Path) -> None:
    """> /dev/full 2>&1, and both closed: numbers 1 and 2 then belong to files of the run, which must not be written into."""
    with open("/dev/full", "wb") as full:
        assert start(tmp_path / "full", full).wait(120) == 0
    line = f'exec "$0" -m glassformer train copy {" ".join(TINY)} --out "$1" >&- 2>&-'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable, str(tmp_path / "closed")], cwd=ROOT, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 0
    for name in ("full", "closed"):
        runner = Runner(tmp_path / name)
        assert differences(everything(straight.run), everything(runner.run)) == [], name
        assert "validation" in (runner.folder / "train.log").read_text()


@pytest.mark.parametrize("number", range(count(fast=1, soak=10)))
def test_the_reader_leaves_and_then_a_stop_is_asked_for(number: int, straight: Runner, tmp_path: Path) -> None:
    """`train 2>&1 | tee log` and Ctrl-C, which ends tee as well: the stop saves, and --resume ends in the same weights."""
    runner, draw = Runner(tmp_path / "run"), random.Random(number)
    read, write = os.pipe()
    process = start(runner.folder, write)
    os.close(write)
    wait_for(runner.folder / "metrics.jsonl", process)
    os.close(read)
    time.sleep(draw.uniform(0, 0.3))
    process.send_signal(draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
    code = process.wait(120)
    assert code in (0, STOPPED)
    if code == STOPPED:
        assert (runner.run.checkpoints.latest_good() or 0) == runner.logged_steps()
        assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []
