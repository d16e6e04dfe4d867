"""A process of a training that hangs is noticed: one that does not beat, and one that beats and does not end its step."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from glassformer.training.processes import LOOKS, Watch
from tests.faults.processes import differences, everything
from tests.ranks import Ranks, codes

KILLED, LOST = -9, 71
SETTINGS = ["train.hang_seconds=4", "train.save_every=2", "train.steps=8"]


def looks(watch: Watch, count: int) -> list[str]:
    return [wrong for _ in range(count) if (wrong := watch.look()) is not None]


def test_beats_that_cease() -> None:
    """Broken variant: the last beat, read again and again, taken for a new one."""
    watch = Watch(range(1, 3))
    for beats in range(5 * LOOKS):
        for rank in (1, 2):
            watch.note(rank, str(beats).encode())
        assert watch.look() is None
    for _ in range(LOOKS - 1):
        watch.note(1, b"another" if watch.seen[1] != b"another" else b"and another")
        watch.note(2, watch.seen[2])
        assert watch.look() is None
    watch.note(1, b"one more")
    (wrong,) = looks(watch, 1)
    assert "rank 2" in wrong


def test_rank_0_may_take_its_time_between_steps() -> None:
    """Validating and saving are no steps. Broken variant: a timeout of whatever waits for rank 0."""
    watch = Watch(range(1, 1))
    assert looks(watch, 100 * LOOKS) == []


def test_a_step_may_last_as_long_as_the_longest_and_no_more_than_that_beyond() -> None:
    watch = Watch(range(1, 1))
    for _ in range(2):
        with watch.step():
            assert looks(watch, LOOKS) == []
    with watch.step():
        assert looks(watch, 2 * LOOKS) == []
        assert "does not end" in looks(watch, 1)[0]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_stopped_ends_all(rank: int, tmp_path: Path) -> None:
    """By SIGSTOP, after which it neither computes nor ends. The other says so, ends with an exit code of its own, and the run
    goes on to the bit. Broken variant: a timeout of thirty days."""
    straight, runner = Ranks(tmp_path / "straight", SETTINGS), Ranks(tmp_path / "run", SETTINGS)
    assert codes(straight.ended(2)) == [0, 0]
    stop = {"at": "step", "nth": 5, "do": "stop"}
    running = runner.several(2, {rank: [stop]})
    other = running[1 - rank].wait()
    assert other.code == LOST and f"rank {rank} of this training does not answer" in other.said, other.said
    assert "--resume" in other.said
    running[rank].signal(signal.SIGKILL)
    assert running[rank].wait().code == KILLED
    assert codes(runner.ended(2)) == [0, 0]
    assert differences(everything(straight.run), everything(runner.run)) == []


@pytest.mark.slow
def test_a_rank_that_beats_and_hangs_ends_all(tmp_path: Path) -> None:
    """Its main thread waits for what never comes, and the step of the other does not end."""
    runner = Ranks(tmp_path / "run", SETTINGS)
    running = runner.several(2, {1: [{"at": "step", "nth": 5, "do": "hang"}]})
    ended = [one.wait() for one in running]
    assert codes(ended) == [LOST, LOST] and "a step of this training does not end" in ended[0].said, ended[0].said
    assert runner.run.checkpoints.latest_good() == 4
