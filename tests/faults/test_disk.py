"""A disk that is full, breaks, refuses or goes away: one sentence, exit code 2, and what was there is still there."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from glassformer.checkpoint import problem
from tests.faults.processes import Ended, Runner, differences, everything

pytestmark = pytest.mark.slow
KILLED = -9

# A save makes so many calls of each kind; the second save of a run is the one that fails.
CALLS = [
    *[("write", nth, errno.ENOSPC) for nth in range(6, 11)],  # three files, the manifest, the seal
    *[("fsync", nth, errno.EIO) for nth in range(9, 16)],  # the same, the folder, the folder above
    ("replace", 2, errno.EIO),
    ("mkdir", 3, errno.EACCES),
    ("open", 9, errno.EDQUOT),
]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("disk") / "straight")
    assert runner.train().code == 0
    return runner


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("disk") / "stopped")
    assert runner.train({"at": "step", "nth": 12, "do": "kill"}).code == KILLED
    return runner


def assert_one_sentence(ended: Ended, *words: str) -> None:
    assert ended.code == 2, ended.said
    assert "Traceback" not in ended.said
    last = [line for line in ended.said.splitlines() if line.startswith("glassformer: ")]
    assert len(last) == 1 and all(word in last[0] for word in words), ended.said


def test_each_call_of_a_save_fails_in_turn(straight: Runner, tmp_path: Path) -> None:
    """Whichever it is, the checkpoint before is whole, nothing half written is left, and the run can go on."""
    for call, nth, number in CALLS:
        runner = Runner(tmp_path / f"{call}-{nth}")
        ended = runner.train({"call": call, "nth": nth, "errno": number})
        assert_one_sentence(ended, os.strerror(number), "checkpoints")
        # The last fsync is of the folder above: by then the new one has its name, and may be used.
        newest = runner.run.checkpoints.latest_good()
        assert newest == 5 or (call, newest) == ("fsync", 10), (call, nth)
        assert all(wrong is None for wrong in runner.run.checkpoints.problems().values())
        assert runner.run.leftovers() == []
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_the_kernel_says_a_file_is_too_large(stopped: Runner, straight: Runner, tmp_path: Path) -> None:
    """No injection: the process may write no file beyond 20,000 bytes, and the weights have more."""
    shutil.copytree(stopped.folder, tmp_path / "run")
    runner = Runner(tmp_path / "run")
    ended = runner.resume({"file_size": 20_000})
    assert_one_sentence(ended, "step-00000015", os.strerror(errno.EFBIG))
    assert runner.run.checkpoints.latest_good() == 10 and runner.run.leftovers() == []
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_no_room_for_the_log(stopped: Runner, straight: Runner, tmp_path: Path) -> None:
    shutil.copytree(stopped.folder, tmp_path / "run")
    runner = Runner(tmp_path / "run")
    ended = runner.resume({"file_size": runner.run.checkpoints.state(10)["metrics_bytes"] + 200})
    assert_one_sentence(ended, os.strerror(errno.EFBIG), "--resume")
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_no_room_to_prepare_the_data(straight: Runner, tmp_path: Path) -> None:
    runner = Runner(tmp_path / "run")
    assert_one_sentence(runner.train({"file_size": 4_000}), os.strerror(errno.EFBIG), "--resume")
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_the_folder_vanishes(straight: Runner, tmp_path: Path) -> None:
    """Moved away while it is trained: the run ends with a sentence and makes no second folder; what was moved is whole."""
    runner = Runner(tmp_path / "run", ["train.steps=3000"])
    running = runner.begin()
    while not runner.run.checkpoints.steps():
        time.sleep(0.01)
    os.rename(runner.folder, tmp_path / "elsewhere")
    ended = running.wait()
    assert_one_sentence(ended, str(runner.folder))
    assert not runner.folder.exists()
    moved = Runner(tmp_path / "elsewhere")
    newest = moved.run.checkpoints.latest_good()
    assert newest is not None and problem(moved.run.checkpoints.path(newest)) is None
    assert moved.resume({"at": "step", "nth": 3, "do": "kill"}).code == KILLED


def test_a_place_where_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    wanted = str(tmp_path / "file" / "run")
    ended = Runner(tmp_path / "run").command(["train", "copy", "--out", wanted]).wait()
    assert_one_sentence(ended, wanted, os.strerror(errno.ENOTDIR))
