"""A disk that is full, breaks, refuses or goes away: one sentence, exit code 2, and what was there is still there."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from glassformer.runs.folder import RunFolder
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
    """What cannot be logged is lost, and nothing else: the same weights, until there is no room for those either."""
    shutil.copytree(stopped.folder, tmp_path / "run")
    runner = Runner(tmp_path / "run")
    ended = runner.resume({"file_size": runner.run.checkpoints.state(10)["metrics_bytes"] + 200})
    assert_one_sentence(ended, os.strerror(errno.EFBIG), "--resume")
    assert "metrics.jsonl cannot be written" in ended.said
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_no_room_to_prepare_the_data(straight: Runner, tmp_path: Path) -> None:
    runner = Runner(tmp_path / "run")
    assert_one_sentence(runner.train({"file_size": 4_000}), os.strerror(errno.EFBIG), "--resume")
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_the_folder_is_moved(tmp_path: Path) -> None:
    """While it is trained, and another training starts in its place: each goes on in its own folder, and both end as if
    nothing had happened. The broken variant knows its folder by name: it writes into the other's and prunes there."""
    runner = Runner(tmp_path / "run", ["train.steps=60"])
    running = runner.begin()
    while not runner.run.checkpoints.steps():
        time.sleep(0.01)
    os.rename(runner.folder, tmp_path / "elsewhere")
    second = Runner(tmp_path / "run", ["train.steps=40"])
    assert second.train().code == 0
    ended = running.wait()
    assert ended.code == 0, ended.said
    moved = RunFolder(tmp_path / "elsewhere")
    assert f"is in {moved.path} now" in (moved.path / "train.log").read_text()
    assert moved.finished() == 60 and second.run.finished() == 40 and moved.id != second.run.id
    assert [s for s in second.run.checkpoints.steps() if s > 40] == []
    for run in (moved, second.run):
        assert all(wrong is None for wrong in run.checkpoints.problems().values())


def test_the_folder_is_removed(tmp_path: Path) -> None:
    """The run ends with a sentence, and nothing is written into what stands in its place."""
    runner = Runner(tmp_path / "run", ["train.steps=3000"])
    running = runner.begin()
    while not runner.run.checkpoints.steps():
        time.sleep(0.01)
    os.rename(runner.folder, tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone", ignore_errors=True)
    runner.folder.mkdir()
    ended = running.wait()
    assert_one_sentence(ended, str(runner.folder), "removed or replaced")
    assert list(runner.folder.iterdir()) == []


def test_a_checkpoint_of_another_run_or_of_another_step(straight: Runner, tmp_path: Path) -> None:
    """Whole to the last byte, and not the one its name says: named and not used."""
    runner = Runner(tmp_path / "run")
    assert runner.train({"at": "step", "nth": 12, "do": "kill"}).code == KILLED
    checkpoints = runner.run.checkpoints
    shutil.copytree(straight.run.checkpoints.path(25), checkpoints.path(25))
    shutil.copytree(checkpoints.path(10), checkpoints.path(20))
    ended = runner.resume()
    assert ended.code == 0 and "a checkpoint of another run" in ended.said and "of step 10 under another" in ended.said
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_extended_and_killed_before_the_first_new_checkpoint(straight: Runner, tmp_path: Path) -> None:
    """It goes on to its new end, as the run does that was extended and never killed."""
    ends = []
    for name, faults in (("killed", [{"at": "step", "nth": 2, "do": "kill"}]), ("undisturbed", [])):
        runner = Runner(tmp_path / name)
        shutil.copytree(straight.folder, runner.folder)
        ended = runner.resume(*faults, extra=("train.steps=40", "--accept-changes"))
        assert ended.code == (KILLED if faults else 0), ended.said
        if faults:
            assert runner.run.checkpoints.steps()[-1] == 30
            looked = runner.command(["doctor", str(runner.folder)]).wait()
            assert "goes on from step 30 of 40" in looked.said
            assert runner.resume().code == 0
        assert runner.run.finished() == 40
        ends.append(everything(runner.run))
    assert differences(*ends) == []


def test_no_log_and_no_picture_is_a_reason_to_fail(straight: Runner, tmp_path: Path) -> None:
    """metrics.jsonl torn and flipped, curves.png a folder, samples.jsonl and train.log in the way: the weights are the same."""
    runner = Runner(tmp_path / "run")
    assert runner.train({"at": "step", "nth": 12, "do": "kill"}).code == KILLED
    content = bytearray(runner.run.metrics_file.read_bytes())
    content[30] ^= 64
    runner.run.metrics_file.write_bytes(bytes(content))
    for name in ("curves.png", "samples.jsonl", "train.log"):
        (runner.folder / name).unlink(missing_ok=True)
        (runner.folder / name).mkdir()
    ended = runner.command(["train", str(runner.folder), "--resume"], draw=True).wait()
    assert ended.code == 0 and "Traceback" not in ended.said and "could not be drawn" in ended.said, ended.said
    same = {k: v for k, v in everything(straight.run).items() if not k.startswith(("metrics/", "state/samples"))}
    assert differences(same, {k: v for k, v in everything(runner.run).items() if k in same}) == []


def test_a_place_where_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    wanted = str(tmp_path / "file" / "run")
    ended = Runner(tmp_path / "run").command(["train", "copy", "--out", wanted]).wait()
    assert_one_sentence(ended, wanted, os.strerror(errno.ENOTDIR))
