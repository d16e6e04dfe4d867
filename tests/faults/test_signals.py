"""SIGTERM and Ctrl-C: the step is finished, a checkpoint saved, and the process ends with a code of its own; what is resumed
is the run that was never stopped. A second one ends it at once, and harms nothing."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.runs.stop import STOPPED, Stopped, StopRequest
from tests.counts import count
from tests.faults.processes import Runner, differences, everything, seconds

pytestmark = pytest.mark.slow
SETTINGS = ["train.ema=0.9", "train.average_last=2", "train.steps=30"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("signals") / "straight", SETTINGS)
    assert runner.train().code == 0
    return runner


def test_at_random_moments(straight: Runner, tmp_path: Path) -> None:
    """While data is prepared, in a step, in a validation, in a save; again and again until the run has ended. The process
    ends within a step and a save of the signal."""
    draw, signals, runs = random.Random(0), 0, 0
    whole = seconds(Runner(tmp_path / "trial", SETTINGS).train)
    while signals < count(fast=6, soak=50):
        runner = Runner(tmp_path / f"run-{runs}", SETTINGS)
        runs += 1
        code = STOPPED
        while code != 0:
            running = runner.go_on() if runner.run.is_run(runner.folder) else runner.begin()
            time.sleep(draw.uniform(0.05, 0.5) * whole)
            before = runner.logged_steps()
            running.signal(draw.choice([signal.SIGTERM, signal.SIGINT]))
            ended = running.wait()
            code = ended.code
            # Before there is a run, or after its end, nobody listens, and the signal does what signals do.
            unheard = code in (-signal.SIGTERM, 130, 1) and "stopping after this step" not in ended.said
            assert code in (0, STOPPED) or unheard, (code, ended.said)
            assert all(wrong is None for wrong in runner.run.checkpoints.problems().values())
            if code == STOPPED:
                signals += 1
                # One step may have been under way, and one more logged between the look at the log and the signal.
                assert runner.logged_steps() <= before + 3
                assert runner.logged_steps() == (runner.run.checkpoints.latest_good() or 0)
        assert runner.run.finished() is not None
        assert differences(everything(straight.run), everything(runner.run)) == []


CASES = {  # moment and how often it has come: the step that must be saved then
    ("preparing", 1): 0,
    ("batch", 1): 1,
    ("batch", 8): 8,
    ("validating", 1): 10,
    ("validating", 2): 20,
    ("before-rename", 1): 5,  # these come while the steps go on, so that a later one may be the last
    ("before-rename", 4): 20,
    ("during-prune", 1): 15,
}


@pytest.mark.parametrize(("moment", "nth"), CASES)
def test_at_a_named_moment(moment: str, nth: int, straight: Runner, tmp_path: Path) -> None:
    runner = Runner(tmp_path / "run", SETTINGS)
    ended = runner.train({"at": moment, "nth": nth, "do": "term"})
    assert ended.code == STOPPED, ended.said
    assert "--resume" in ended.said and "Traceback" not in ended.said
    saved = runner.run.checkpoints.latest_good() or 0
    assert saved >= CASES[moment, nth] if moment in ("before-rename", "during-prune") else saved == CASES[moment, nth]
    assert saved == runner.logged_steps()
    if moment == "validating":
        # Dropped where it stood, and owed: no result of it was logged before the run went on.
        assert not any(line["step"] == CASES[moment, nth] and "val_loss" in line for line in runner.run.metrics())
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


@pytest.mark.parametrize(
    ("moment", "nth", "do"), [("batch", 8, "term"), ("batch", 8, "int"), ("before-rename", 4, "term")]
)
def test_twice(moment: str, nth: int, do: str, straight: Runner, tmp_path: Path) -> None:
    """The second one does not wait for the step or the save."""
    runner = Runner(tmp_path / "run", SETTINGS)
    ended = runner.train({"at": moment, "nth": nth, "do": do, "times": 2})
    assert ended.code == 128 + (signal.SIGTERM if do == "term" else signal.SIGINT), ended.said
    assert runner.run.checkpoints.latest_good() == (5 if moment == "batch" else 15)
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_a_stop_that_a_library_swallows_or_renames() -> None:
    """The exception of a signal may come up anywhere, even in a callback of compiled code, which makes another of it: it was
    seen as a ValueError while a tensor was read. The broken variant lets that one through, as an error of the program."""

    def dropped(work: Callable[[StopRequest], None]) -> None:
        stop = StopRequest()
        with pytest.raises(Stopped), stop.may_drop():
            work(stop)

    def swallowing(stop: StopRequest) -> None:
        with contextlib.suppress(BaseException):
            stop.handler(signal.SIGTERM, None)

    def renaming(stop: StopRequest) -> None:
        try:
            stop.handler(signal.SIGTERM, None)
        except BaseException:
            raise ValueError("something else") from None

    dropped(lambda stop: stop.handler(signal.SIGTERM, None))
    dropped(swallowing)
    dropped(renaming)
    with pytest.raises(ValueError, match="its own"), StopRequest().may_drop():
        raise ValueError("its own")


def test_while_the_final_weights_are_made(straight: Runner, tmp_path: Path) -> None:
    """There is nothing left to stop: the run ends as it would have."""
    runner = Runner(tmp_path / "run", SETTINGS)
    assert runner.train({"at": "finishing", "nth": 1, "do": "term"}).code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []
