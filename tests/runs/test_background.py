"""Saving while training goes on: in order, of the step it was asked for at, and a failure is told."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from glassformer import runs
from glassformer.files import durable
from glassformer.runs.checkpoint import read_checkpoint
from glassformer.runs.stop import BackgroundWriter, Stopped, copied
from tests.number_pairs import pairs, recipe, write_tsv


def test_one_after_the_other_and_all_of_them() -> None:
    """Broken variants: several threads; leaving the block without waiting."""
    done: list[int] = []

    def write(number: int) -> None:
        time.sleep(0.01 * (3 - number))
        done.append(number)

    with BackgroundWriter() as writer:
        for number in range(4):
            writer.submit(lambda n=number: write(n))  # type: ignore[misc]
    assert done == [0, 1, 2, 3]


def test_a_failed_write_is_told_at_the_next_look() -> None:
    """And only once: what follows the failure is not another one."""

    def fail() -> None:
        raise OSError("no room")

    writer = BackgroundWriter()
    writer.submit(fail)
    while writer.pending is not None and not writer.pending.done():
        time.sleep(0.001)
    with pytest.raises(OSError, match="no room"):
        writer.check()
    writer.check()
    writer.wait()


@pytest.mark.parametrize(("inside", "told"), [(None, OSError), (Stopped, OSError), (KeyError, KeyError)])
def test_what_is_told_at_the_end(inside: type[BaseException] | None, told: type[BaseException]) -> None:
    """A stop promises that all is saved, so the failed write is told; an error of another kind is told itself."""

    def fail() -> None:
        raise OSError("no room")

    def leave() -> None:
        with BackgroundWriter() as writer:
            writer.submit(fail)
            if inside is not None:
                raise inside

    with pytest.raises(told):
        leave()


def test_a_copy_does_not_move() -> None:
    """Broken variant: the tensor itself where it lies in the host's memory already."""
    tensor = torch.zeros(3, 2).t()
    kept = copied({"a": tensor})["a"]
    tensor += 1
    assert not kept.any() and kept.is_contiguous() and kept.shape == (2, 3)


def test_a_slow_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each checkpoint and the final weights are, to the bit, those of a run that waits for each write."""
    (tmp_path / "data").mkdir()
    write_tsv(tmp_path / "data" / "train.tsv", pairs(60))
    wanted = recipe(tmp_path / "data", save_every=2, keep_last=9, average_last=2, snapshot_every=1)

    def slow(name: str) -> None:
        if name == "after-write":
            assert threading.current_thread() is not threading.main_thread() or finishing
            time.sleep(0.03)
        elif name == "finishing":
            finishing.append(True)

    finishing: list[bool] = []
    with monkeypatch.context() as patched:
        patched.setattr(durable, "fault_point", slow)
        slowly = runs.train(wanted, tmp_path / "slow")
    with monkeypatch.context() as patched:
        patched.setattr(BackgroundWriter, "submit", lambda _self, write: write())
        waiting = runs.train(wanted, tmp_path / "waiting")
    assert slowly.checkpoints.steps() == waiting.checkpoints.steps() and slowly.snapshots.steps()
    folders = [(slowly.final, waiting.final)]
    folders += [(slowly.checkpoints.path(s), waiting.checkpoints.path(s)) for s in slowly.checkpoints.steps()]
    for one, other in folders:
        ours, theirs = read_checkpoint(one)[0], read_checkpoint(other)[0]
        for group, tensors in ours.items():
            assert all(torch.equal(t, theirs[group][name]) for name, t in tensors.items())
