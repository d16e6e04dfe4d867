"""Bytes that changed on the disk: found before a tensor reaches the model, named, and the checkpoint before is used."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from glassformer.errors import UserError
from glassformer.runs.checkpoint import Checkpoints, Damaged, read_checkpoint
from glassformer.runs.folder import RunFolder
from tests.faults.processes import Runner, differences, everything

pytestmark = pytest.mark.slow
KILLED = -9
OLDER, NEWER = 20, 25


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("damage") / "straight")
    assert runner.train().code == 0
    return runner


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Killed at step 28, with checkpoints of steps 20 (the best so far) and 25. Never resumed in place: copy it."""
    runner = Runner(tmp_path_factory.mktemp("damage") / "stopped")
    assert runner.train({"at": "step", "nth": 28, "do": "kill"}).code == KILLED
    assert runner.run.checkpoints.steps() == [OLDER, NEWER]
    return runner


@pytest.fixture
def copied(stopped: Runner, tmp_path: Path) -> Runner:
    shutil.copytree(stopped.folder, tmp_path / "run")
    return Runner(tmp_path / "run")


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


@contextmanager
def damaged(path: Path, content: bytes | None) -> Iterator[None]:
    """The file with other content, or without one; and then as it was."""
    before = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def assert_found(checkpoints: Checkpoints, path: Path) -> None:
    said: list[str] = []
    assert checkpoints.latest_good(said.append) == OLDER, path
    assert len(said) == 1 and str(checkpoints.path(NEWER)) in said[0]
    with pytest.raises(Damaged, match="cannot be used"):
        read_checkpoint(checkpoints.path(NEWER))


def test_a_thousand_flipped_bits(copied: Runner) -> None:
    """Anywhere in any file of the newest checkpoint; every one of them is found, and the older one is used."""
    checkpoints, draw = copied.run.checkpoints, random.Random(0)
    files = files_of(checkpoints.path(NEWER))
    for _ in range(1000):
        path = draw.choice(files)
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        with damaged(path, bytes(content)):
            assert_found(checkpoints, path)
    assert checkpoints.latest_good() == NEWER


def test_a_flipped_bit_would_go_unnoticed_without_the_checksum(copied: Runner) -> None:
    """The broken variant: a reader that trusts the file. The format itself has no checksum, so a flip in a weight loads."""
    path = copied.run.checkpoints.path(NEWER) / "model.safetensors"
    before, content = load_file(path), bytearray(path.read_bytes())
    content[-7] ^= 1 << 6
    with damaged(path, bytes(content)):
        after = {name: tensor.clone() for name, tensor in load_file(path).items()}
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_truncated_at_64_places(copied: Runner) -> None:
    checkpoints = copied.run.checkpoints
    files = files_of(checkpoints.path(NEWER))
    whole = sum(p.stat().st_size for p in files)
    places = sorted({0, whole - 1, *(whole * k // 62 for k in range(62))})
    assert len(places) >= 62
    for place in places:
        for path in files:
            if place < path.stat().st_size:
                break
            place -= path.stat().st_size
        with damaged(path, path.read_bytes()[:place]):
            assert_found(checkpoints, path)


def test_each_file_deleted_in_turn(copied: Runner) -> None:
    checkpoints = copied.run.checkpoints
    files = files_of(checkpoints.path(NEWER))
    assert {p.name for p in files} == {
        "SEAL",
        "manifest.json",
        "model.safetensors",
        "state.json",
        "training.safetensors",
    }
    for path in files:
        with damaged(path, None):
            assert_found(checkpoints, path)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("how", ["flipped", "truncated", "deleted"])
def test_resume_goes_on_from_the_one_before(how: str, copied: Runner, straight: Runner) -> None:
    """Unattended, in a fresh process, to the same end; the damaged one is named and set aside, not thrown away."""
    path = copied.run.checkpoints.path(NEWER) / "training.safetensors"
    if how == "flipped":
        flip(path)
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:1000])
    else:
        path.unlink()
    looked = copied.command(["doctor", str(copied.folder)]).wait()
    assert looked.code == 1 and f"goes on from step {OLDER}" in looked.said
    ended = copied.resume()
    assert ended.code == 0 and f"step-{NEWER:08d} cannot be used" in ended.said
    assert differences(everything(straight.run), everything(copied.run)) == []
    assert [p.name for p in copied.run.checkpoints.moved_aside()] == [f"damaged-step-{NEWER:08d}"]


def test_not_one_checkpoint_is_whole(copied: Runner) -> None:
    """Then nothing is decided for the person: in particular the run does not begin again from nothing."""
    for step in (OLDER, NEWER):
        flip(copied.run.checkpoints.path(step) / "model.safetensors")
    ended = copied.resume()
    assert ended.code == 2 and "not one checkpoint" in ended.said and "Traceback" not in ended.said
    assert copied.run.checkpoints.steps() == [OLDER, NEWER]
    assert copied.command(["doctor", str(copied.folder)]).wait().code == 1


def test_the_best_one_is_damaged(copied: Runner) -> None:
    """It can be neither used nor made again; the run says so and goes on, and the best is looked for from here on."""
    flip(copied.run.checkpoints.path(OLDER) / "model.safetensors")
    ended = copied.resume()
    assert ended.code == 0 and f"the best checkpoint, of step {OLDER}, cannot be used" in ended.said
    assert json.loads((copied.run.final / "state.json").read_text())["weights"]["step"] == 30


def test_the_best_outlives_a_damaged_successor(tmp_path: Path) -> None:
    """A better checkpoint was saved and then damaged: the one before must still find what it calls the best. The broken
    variant keeps only the best of the newest, and prunes what the older one points to."""
    runner = Runner(tmp_path / "run", ["train.validate_every=15", "train.keep_last=2", "train.steps=45"])
    assert runner.train({"at": "step", "nth": 31, "do": "kill"}).code == KILLED
    assert runner.run.checkpoints.state(30)["best_step"] == 30
    assert runner.run.checkpoints.state(25)["best_step"] == 15
    assert runner.run.checkpoints.steps() == [15, 25, 30]


@pytest.mark.parametrize("name", ["data/train.source.tokens", "tokenizer.json"])
def test_prepared_files_that_changed(name: str, copied: Runner) -> None:
    flip(copied.folder / name)
    ended = copied.resume()
    assert ended.code == 2 and name in ended.said and "Traceback" not in ended.said
    looked = copied.command(["doctor", str(copied.folder)]).wait()
    assert looked.code == 1 and name in looked.said


def test_flipped_bits_in_run_json(copied: Runner) -> None:
    """Each one makes it unreadable or breaks its seal; none passes for what was written."""
    path, draw = copied.folder / "run.json", random.Random(0)
    for _ in range(300):
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        with damaged(path, bytes(content)):
            run = RunFolder(copied.folder)
            with suppress(UserError):
                assert not run.sealed
    assert RunFolder(copied.folder).sealed


def test_a_setting_changed_by_hand_must_be_confirmed(copied: Runner) -> None:
    path = copied.folder / "run.json"
    path.write_text(path.read_text().replace('"learning_rate": 0.003', '"learning_rate": 0.001'))
    ended = copied.resume()
    assert ended.code == 2 and "train.learning_rate: 0.003 → 0.001" in ended.said
    assert copied.command(["doctor", str(copied.folder)]).wait().code == 1
    assert copied.resume(extra=("--accept-changes",)).code == 0
    assert RunFolder(copied.folder).sealed


def test_the_log_is_cut_back_to_the_checkpoint(copied: Runner, straight: Runner) -> None:
    """Lines after the checkpoint, even half of one, are written again and not twice."""
    with copied.run.metrics_file.open("a") as file:
        file.write('{"step": 29, "lo')
    assert copied.resume().code == 0
    steps = [line["step"] for line in copied.run.metrics() if "loss" in line]
    assert steps == list(range(1, 31))
    assert differences(everything(straight.run), everything(copied.run)) == []
