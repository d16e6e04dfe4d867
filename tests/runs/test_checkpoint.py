"""Checkpoints on disk: whole or not there, verified before use, pruned in one instant, put in order after a crash. What needs
processes and kills is in tests/faults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from glassformer.config import Recipe, TrainConfig
from glassformer.config.changes import changes, check_changes
from glassformer.errors import UserError
from glassformer.files import durable
from glassformer.files.durable import write_atomically
from glassformer.models.weights import load_model_tensors, model_tensors
from glassformer.runs.checkpoint import Checkpoints, Damaged, problem, read_checkpoint, recover, write_checkpoint


def weights(seed: int = 0) -> dict[str, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "model": {"a": torch.randn(3, 4, generator=generator), "b": torch.arange(5)},
        "training": {"c": torch.zeros(())},
    }


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Bit for bit, whatever the kind: not-a-numbers, minus zero, bytes, bfloat16, no elements, no dimensions."""
    odd = {
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
        "bytes": torch.arange(256, dtype=torch.uint8),
        "half": torch.randn(7).bfloat16(),
        "empty": torch.zeros(0, 3),
        "one": torch.tensor(2.5, dtype=torch.float64),
        "turned": torch.arange(6.0).view(2, 3).T,
    }
    write_checkpoint(tmp_path / "saves" / "one", {"model": odd}, {"step": 3, "text": "é漢", "none": None})
    tensors, state = read_checkpoint(tmp_path / "saves" / "one")
    assert state == {"step": 3, "text": "é漢", "none": None}
    for name, tensor in odd.items():
        found = tensors["model"][name]
        assert found.dtype == tensor.dtype and found.shape == tensor.shape
        assert found.contiguous().view(-1).view(torch.uint8).equal(tensor.contiguous().view(-1).view(torch.uint8))


def test_one_group_is_read_without_the_others(tmp_path: Path) -> None:
    """A damaged optimizer does not keep anyone from using the weights; damaged weights do."""
    folder = tmp_path / "saves" / "one"
    write_checkpoint(folder, weights(), {"step": 1})
    (folder / "training.safetensors").write_bytes(b"")
    assert read_checkpoint(folder, ["model"])[0].keys() == {"model"}
    with pytest.raises(Damaged, match=r"training\.safetensors has 0 bytes"):
        read_checkpoint(folder)


def test_the_manifest_is_of_what_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that swallows a byte without a word is found out. The broken variant hashes what it reads back."""
    real = os.write

    def swallowing(descriptor: int, data: Any) -> int:
        return real(descriptor, data[:-1]) + 1 if len(data) > 200 else real(descriptor, data)

    monkeypatch.setattr(os, "write", swallowing)
    write_checkpoint(tmp_path / "saves" / "one", weights(), {})
    assert problem(tmp_path / "saves" / "one") is not None


def test_a_write_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may take less than it is given."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    write_checkpoint(tmp_path / "saves" / "one", weights(), {"step": 1})
    assert problem(tmp_path / "saves" / "one") is None


def test_folders_above_are_not_made(tmp_path: Path) -> None:
    """If the run's folder is gone, a save must not make half a run in its place."""
    with pytest.raises(UserError, match="could not be written"):
        write_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000001", weights(), {})
    assert list(tmp_path.iterdir()) == []


class Crash(Exception):
    pass


def crash_at(name: str, nth: int) -> Any:
    seen = 0

    def moment(here: str) -> None:
        nonlocal seen
        seen += here == name
        if here == name and seen == nth:
            raise Crash

    return moment


@pytest.mark.parametrize("name", durable.FAULT_POINTS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_anywhere_leaves_the_old_or_the_new(
    name: str, nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One checkpoint replaced, one written, one pruned, with a crash at each moment; what has a name is whole, and after
    `recover` (even a second time) nothing half done is left, and nothing that was whole is lost but what was to be pruned."""
    found = Checkpoints(tmp_path / "saves")
    for step in (1, 2, 3):
        write_checkpoint(found.path(step), weights(step), {"step": step})
    monkeypatch.setattr(durable, "fault_point", crash_at(name, nth))
    try:
        write_checkpoint(found.path(3), weights(33), {"step": 3, "version": 2})
        write_checkpoint(found.path(4), weights(4), {"step": 4})
        found.prune(2)
    except Crash:
        pass
    monkeypatch.setattr(durable, "fault_point", durable.no_fault)
    assert all(wrong is None for wrong in found.problems().values())
    for _ in range(2):
        recover(found.folder)
        assert not [p for p in found.folder.iterdir() if p.name.startswith(".")]
        assert all(wrong is None for wrong in found.problems().values())
        assert 3 in found.steps() and set(found.steps()) <= {1, 2, 3, 4}
        assert read_checkpoint(found.path(3))[1]["step"] == 3


@pytest.mark.parametrize("how", ["prune", "write", "crash", "set aside"])
def test_a_checkpoint_linked_from_another_disk_loses_its_link_and_no_file(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved to a larger disk and linked back. Broken: its files are removed there, through the link."""
    found = Checkpoints(tmp_path / "saves")
    for step in (1, 2, 3):
        write_checkpoint(found.path(step), weights(step), {"step": step})
    disk, linked = tmp_path / "disk", found.path(1)
    linked.rename(disk)
    linked.symlink_to(disk, target_is_directory=True)
    assert found.problem(1) is None, "it can be used from there"
    if how == "write":
        write_checkpoint(linked, weights(11), {"step": 1})
    elif how == "set aside":
        for _ in range(2):  # the second time what was set aside at the first goes
            found.move_aside_after(0)
            write_checkpoint(linked, weights(11), {"step": 1})
    else:
        if how == "crash":
            monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: (_ for _ in ()).throw(OSError(5, "")))
        found.prune(1)
        monkeypatch.undo()
        recover(found.folder)
        assert found.steps() == [3]
    assert problem(disk) is None and read_checkpoint(disk)[1] == {"step": 1}
    assert torch.equal(read_checkpoint(disk)[0]["model"]["a"], weights(1)["model"]["a"])
    assert not [p for p in found.folder.iterdir() if p.name.startswith(".") or p.is_symlink()]


def test_an_error_between_the_renames_puts_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "saves" / "final"
    write_checkpoint(folder, weights(1), {"step": 1})
    real = os.replace

    def failing(source: Any, target: Any) -> None:
        if Path(source).name.startswith(".tmp-"):
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(UserError, match="Input/output error"):
        write_checkpoint(folder, weights(2), {"step": 2})
    assert read_checkpoint(folder)[1] == {"step": 1}
    assert [p.name for p in folder.parent.iterdir()] == ["final"]


def test_a_small_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["run.json"]


@given(
    steps=st.sets(st.integers(0, 10**9), max_size=8),
    keep_last=st.integers(1, 4),
    keep=st.sets(st.integers(0, 10**9), max_size=2),
)
@settings(max_examples=30, deadline=None)
def test_pruning_keeps_the_latest_and_the_chosen(
    steps: set[int], keep_last: int, keep: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = Checkpoints(tmp_path_factory.mktemp("prune"))
    for step in steps:
        found.path(step).mkdir()
    found.prune(keep_last, keep)
    assert found.steps() == sorted(set(sorted(steps)[-keep_last:]) | (steps & keep))


def test_later_ones_are_set_aside_and_not_counted(tmp_path: Path) -> None:
    """A damaged checkpoint that kept its name would be counted among the last few to keep, in place of a good one."""
    found = Checkpoints(tmp_path / "saves")
    for step in (10, 15, 20):
        write_checkpoint(found.path(step), weights(), {"step": step})
    (found.path(20) / "SEAL").unlink()
    assert (
        [p.name for p in found.move_aside_after(15)]
        == ["damaged-step-00000020"]
        == [p.name for p in found.moved_aside()]
    )
    assert found.steps() == [10, 15]
    write_checkpoint(found.path(20), weights(), {"step": 20})
    (found.path(20) / "SEAL").unlink()
    found.move_aside_after(15)
    assert len(found.moved_aside()) == 1


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 3)
        self.out = nn.Linear(3, 4, bias=False)
        self.out.weight = self.table.weight
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("waves", torch.ones(9), persistent=False)


def test_a_model_is_its_parameters_once_and_its_lasting_buffers() -> None:
    assert model_tensors(Tied()).keys() == {"table.weight", "mean"}


def test_weights_of_another_model_change_nothing() -> None:
    model = Tied()
    before = model.table.weight.detach().clone()
    right = {name: torch.full_like(tensor, 7.0) for name, tensor in model_tensors(model).items()}
    for wrong in (
        {**right, "mean": torch.zeros(4)},
        {**right, "extra": torch.zeros(1)},
        {"table.weight": right["table.weight"]},
    ):
        with pytest.raises(UserError):
            load_model_tensors(model, wrong)
        assert torch.equal(model.table.weight, before)
    load_model_tensors(model, right)
    assert bool((model.out.weight == 7).all())


def test_state_that_is_no_object_is_no_state(tmp_path: Path) -> None:
    found = Checkpoints(tmp_path)
    found.path(1).mkdir()
    for content in ("", "[1]", "{"):
        (found.path(1) / "state.json").write_text(content)
        assert found.state(1) == {}


def test_every_setting_may_change_or_may_not() -> None:
    """What is free and what is not is decided for each setting by its name; a typo in that list would free nothing."""
    from glassformer.config import PARTS
    from glassformer.config.changes import FREE

    for part, names in FREE.items():
        assert names <= {f.name for f in PARTS[part].__dataclass_fields__.values()}
    assert not FREE["train"] & {"seed", "optimizer"}
    old = Recipe(train=TrainConfig(steps=10))
    found = changes(old, Recipe(train=TrainConfig(steps=20, clip=None)))
    assert [str(c) for c in found] == ["train.steps: 10 → 20", "train.clip: 1.0 → none"]
    with pytest.raises(UserError, match="accept-changes"):
        check_changes(found, accepted=False)
    check_changes(found, accepted=True)
    check_changes([], accepted=False)
    with pytest.raises(UserError, match=r"train\.seed"):
        check_changes(changes(old, Recipe(train=TrainConfig(steps=10, seed=5))), accepted=True)
