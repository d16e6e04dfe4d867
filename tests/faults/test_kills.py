"""SIGKILL, again and again: at random times, and at the worst moments of a save. Every one resumes unattended to the same
final weights, and no more than one save interval is ever lost."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from glassformer.files.durable import FAULT_POINTS
from glassformer.runs import STOPPED
from tests.counts import count
from tests.faults.processes import Ended, Runner, differences, everything, seconds

pytestmark = pytest.mark.slow
KILLED = -9
SAVE_EVERY = 5
# Room for ten kills in one run: averaging makes snapshots, the best is kept apart, so all kinds of saves and prunings occur.
SETTINGS = [
    *(f"train.save_every={SAVE_EVERY}", "train.average_last=2", "train.keep_last=2", "train.steps=60"),
    "train.history=true",  # weights of steps 0, 10 and 30 are kept apart, so kills strike in their saves as well
]
KILLS_IN_A_RUN = 10


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("kills") / "straight", SETTINGS)
    assert runner.train().code == 0
    return runner


@pytest.fixture(scope="module")
def whole(straight: Runner, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The seconds of an undisturbed run. (The first one is slower: it starts the process that the others are forked from.)"""
    return seconds(Runner(tmp_path_factory.mktemp("whole") / "run", SETTINGS).train)


def no_more_lost_than_an_interval(runner: Runner) -> None:
    """What reached the log was trained; what reached a checkpoint is kept."""
    saved = runner.run.checkpoints.latest_good() or 0
    # A step is logged before it is saved, so at the step of a save itself both may be one interval apart.
    assert runner.logged_steps() - saved <= 2 * SAVE_EVERY  # one interval, and one that the write under way may take
    assert all(wrong is None for wrong in runner.run.checkpoints.problems().values())


def to_the_end(runner: Runner, straight: Runner) -> None:
    ended = runner.resume()
    assert ended.code == 0, ended.said
    assert differences(everything(straight.run), everything(runner.run)) == []
    assert runner.run.leftovers() == []


def one_more(runner: Runner, *faults: dict[str, Any]) -> Ended:
    return runner.resume(*faults) if runner.run.is_run(runner.folder) else runner.train(*faults)


@pytest.mark.parametrize("number", range(count(fast=1, soak=10)))
def test_killed_inside_a_save(number: int, straight: Runner, tmp_path: Path) -> None:
    """After a temporary write, before fsync, before, between and after the renames, before and during pruning."""
    runner, draw = Runner(tmp_path / "run", SETTINGS), random.Random(number)
    # A save where something has the name already happens only to the final weights of a run that is trained on.
    moments = [m for m in FAULT_POINTS if m != "between-renames"]
    order = [*moments, *draw.choices(moments, k=KILLS_IN_A_RUN - len(moments))]
    draw.shuffle(order)
    for moment in order:
        # The first process fsyncs the small files of the preparation too, at the same moments.
        ended = one_more(runner, {"at": moment, "nth": draw.randint(1, 4), "do": "kill"})
        assert ended.code == KILLED, f"{moment}: {ended.said}"
        no_more_lost_than_an_interval(runner)
    to_the_end(runner, straight)


@pytest.mark.parametrize("number", range(count(fast=1, soak=10)))
def test_killed_at_random_times(number: int, straight: Runner, whole: float, tmp_path: Path) -> None:
    """From the first line of the process to its last: preparing, training, validating, saving, finishing. Between the kills
    a signal asks for a stop now and then, and a disk is full."""
    runner, draw = Runner(tmp_path / "run", SETTINGS), random.Random(number)
    kills, wanted, pace = 0, count(fast=5, soak=KILLS_IN_A_RUN), whole
    for again in range(6 * wanted):
        if kills == wanted:
            break
        how = draw.choice(["kill", "kill", "kill", "signal", "disk"])
        faults = [{"file_size": draw.randint(2_000, 60_000)}] if how == "disk" else []
        running = runner.go_on(*faults) if runner.run.is_run(runner.folder) else runner.begin(*faults)
        if how != "disk":
            time.sleep(draw.uniform(0.1, 0.6) * pace)
            running.signal(9 if how == "kill" else draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
        ended = running.wait()
        # Before there is a run, or after its end, nobody listens, and a signal does what signals do.
        stopped = (STOPPED, -signal.SIGTERM, -signal.SIGHUP, 130, 1)
        assert ended.code in {"kill": (KILLED, 0), "signal": (*stopped, 0), "disk": (2, 0)}[how], (how, ended.said)
        kills += ended.code == KILLED
        no_more_lost_than_an_interval(runner)
        if ended.code == 0:
            # It got to the end before the kill: that one is compared, and another begins; the machine is faster than it was.
            pace *= 0.8
            assert differences(everything(straight.run), everything(runner.run)) == []
            runner = Runner(tmp_path / f"run-{again}", SETTINGS)
    assert kills == wanted, "so many tries, and so few of them were killed in time"
    if runner.run.is_run(runner.folder):
        to_the_end(runner, straight)


def test_killed_between_the_renames(tmp_path: Path) -> None:
    """The final weights of a run that was trained on are replaced: killed where the old ones have lost their name and the new
    ones have none yet."""
    short, straight = Runner(tmp_path / "short", ["train.steps=10"]), Runner(tmp_path / "straight", ["train.steps=10"])
    longer = ("train.steps=20", "--accept-changes")
    for runner in (short, straight):
        assert runner.train().code == 0
    assert straight.resume(extra=longer).code == 0
    assert short.resume({"at": "between-renames", "nth": 1, "do": "kill"}, extra=longer).code == KILLED
    assert not short.run.final.exists()
    assert short.resume().code == 0
    assert differences(everything(straight.run), everything(short.run)) == []


def test_a_power_cut_after_the_rename_loses_nothing(tmp_path: Path) -> None:
    """At the moment a checkpoint has its name, a disk that forgets whatever was not fsynced still has all of it, and of the
    log all that the checkpoint counts on."""
    straight, runner = Runner(tmp_path / "straight"), Runner(tmp_path / "run")
    assert straight.train().code == 0
    assert runner.train({"at": "after-rename", "nth": 2, "do": "power-cut"}).code == KILLED
    assert runner.run.checkpoints.latest_good() == 10
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_the_power_cut_shows_a_save_without_fsync(tmp_path: Path) -> None:
    """The broken variant: no fsync. The rename survives, the bytes do not; the damage is found, and a save is lost."""
    runner = Runner(tmp_path / "run")
    fault = {"at": "after-rename", "nth": 2, "do": "power-cut"}
    assert runner.train(fault, {"variant": "no-fsync"}).code == KILLED
    assert runner.run.checkpoints.steps()[-1] == 10
    assert runner.run.checkpoints.latest_good() in (None, 5)


def test_the_kill_shows_a_save_that_deletes_first(tmp_path: Path) -> None:
    """The broken variant: the old checkpoints are removed before the new one has its name. Nothing is left to go on from,
    where the real one still has step 5."""
    kill = {"at": "before-rename", "nth": 2, "do": "kill"}
    right, wrong = Runner(tmp_path / "right"), Runner(tmp_path / "wrong")
    assert right.train(kill).code == wrong.train(kill, {"variant": "delete-before-rename"}).code == KILLED
    assert right.run.checkpoints.latest_good() == 5
    assert wrong.run.checkpoints.latest_good() is None


def test_two_processes_in_one_folder(tmp_path: Path) -> None:
    """The second is refused while the first lives, and a killed first one does not keep the place."""
    runner = Runner(tmp_path / "run", ["train.steps=2000", "train.save_every=2"])
    first = runner.begin()
    while not runner.run.checkpoints.steps():
        time.sleep(0.02)
    second = Runner(runner.folder).command(["train", str(runner.folder), "--resume"])
    ended = second.wait()
    assert ended.code == 2 and "another process is training" in ended.said
    first.signal(9)
    assert first.wait().code == KILLED
    assert runner.resume({"at": "step", "nth": 1, "do": "kill"}).code == KILLED
