"""Going on with other settings, with another version, with the same command: what is shown, confirmed and refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from glassformer.runs import STOPPED
from glassformer.runs.facts import seal_of
from glassformer.runs.folder import RunFolder
from tests.faults.processes import Ended, Runner, differences, everything

pytestmark = pytest.mark.slow
KILLED = -9


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("settings") / "stopped")
    assert runner.train({"at": "step", "nth": 12, "do": "kill"}).code == KILLED
    return runner


@pytest.fixture
def copied(stopped: Runner, tmp_path: Path) -> Runner:
    shutil.copytree(stopped.folder, tmp_path / "run")
    return Runner(tmp_path / "run")


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2 and "Traceback" not in ended.said, ended.said
    assert all(word in ended.said for word in words), ended.said


def test_a_change_is_shown_and_must_be_confirmed(copied: Runner) -> None:
    before = (copied.folder / "run.json").read_bytes()
    wish = ("train.steps=20", "train.learning_rate=0.001", "model.dropout=0")
    refused(
        copied.resume(extra=wish),
        "--accept-changes",
        "train.steps: 30 → 20",
        "train.learning_rate: 0.003 → 0.001",
        "model.dropout: 0.1 → 0.0",
    )
    assert (copied.folder / "run.json").read_bytes() == before and copied.run.checkpoints.steps() == [5, 10]
    ended = copied.resume(extra=(*wish, "--accept-changes"))
    assert ended.code == 0 and "from here on with train.steps: 30 → 20" in ended.said
    run = RunFolder(copied.folder)
    assert run.sealed and run.recipe.train.steps == 20 and run.finished() == 20
    assert run.metrics()[-1]["step"] == 20


def test_what_was_confirmed_once_stays_confirmed(copied: Runner) -> None:
    """Killed before the next checkpoint, the run goes on unattended with the new settings: they are under the seal."""
    wish = ("train.learning_rate=0.001", "--accept-changes")
    assert copied.resume({"at": "step", "nth": 2, "do": "kill"}, extra=wish).code == KILLED
    assert copied.resume().code == 0
    assert RunFolder(copied.folder).recipe.train.learning_rate == 0.001


@pytest.mark.parametrize(
    "wish", ["model.n_embd=32", "data.tokenizer=char", "data.size=50", "train.seed=2", "train.optimizer=muon"]
)
def test_what_cannot_change_is_refused(wish: str, copied: Runner) -> None:
    before = (copied.folder / "run.json").read_bytes()
    refused(copied.resume(extra=(wish, "--accept-changes")), wish.split("=")[0], "cannot go on")
    assert (copied.folder / "run.json").read_bytes() == before


def test_other_batches_go_on_as_far_through_the_epoch(copied: Runner) -> None:
    ended = copied.resume(extra=("data.batch_tokens=32", "--accept-changes"))
    assert ended.code == 0 and "batches in place of 22" in ended.said


def test_an_average_and_another_measure_can_begin_later(copied: Runner) -> None:
    """The moving average starts with the weights as they are; a best score in another measure does not count."""
    wish = ("train.ema=0.9", "train.metric=exact_match", "train.validate_examples=4", "--accept-changes")
    assert copied.resume(extra=wish).code == 0
    state = copied.run.checkpoints.state(30)
    assert 0 <= state["best_score"] <= 100 and state["best_step"] > 10


def test_the_same_command_again_and_again(tmp_path: Path) -> None:
    """As a queue gives it to a machine that may be taken away: it starts, goes on, and at the end does nothing."""
    straight, runner = Runner(tmp_path / "straight"), Runner(tmp_path / "run")
    assert straight.train().code == 0
    command = ["train", "copy", *runner.tiny, "--out", str(runner.folder), "--resume"]
    assert runner.command(command, {"at": "batch", "nth": 7, "do": "term"}).wait().code == STOPPED
    assert runner.command(command, {"at": "step", "nth": 9, "do": "kill"}).wait().code == KILLED
    assert runner.command(command).wait().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []
    ended = runner.command(command).wait()
    assert ended.code == 0 and "nothing to go on with" in ended.said
    refused(runner.command([*command, "train.steps=50"]).wait(), "train.steps: 30 → 50")


def test_another_number_of_threads_is_told(copied: Runner) -> None:
    """Sums are then made in another order: the run goes on, and a sentence says what to expect and how to avoid it."""
    ended = copied.resume(extra=("train.threads=2", "--accept-changes"))
    assert ended.code == 0 and "trained with 1 threads so far and with 2 from here on" in ended.said, ended.said
    assert "train.threads=1 keeps them" in ended.said
    same = copied.resume(extra=("train.steps=32", "--accept-changes"))
    assert same.code == 0 and "threads so far" not in same.said


def test_without_resume_a_run_is_never_touched(copied: Runner) -> None:
    before = {p: p.read_bytes() for p in copied.folder.rglob("*") if p.is_file()}
    refused(copied.command(["train", str(copied.folder)]).wait(), "--resume")
    refused(copied.train(), "holds a run already")
    assert {p: p.read_bytes() for p in copied.folder.rglob("*") if p.is_file()} == before


def test_a_run_of_another_version(copied: Runner) -> None:
    path = copied.folder / "run.json"
    facts = json.loads(path.read_text()) | {"format": 99, "glassformer": "9.9"}
    path.write_text(json.dumps(facts | {"seal": seal_of(facts)}))
    refused(copied.resume(), "format 99", "9.9", "install")


def test_a_checkpoint_of_another_version(copied: Runner) -> None:
    """A manifest in a newer format, properly sealed: not read, and the one before is used."""
    folder = copied.run.checkpoints.path(10)
    manifest = json.loads((folder / "manifest.json").read_text()) | {"format": 99}
    content = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(content)
    (folder / "SEAL").write_text(hashlib.sha256(content).hexdigest() + "\n")
    ended = copied.resume()
    assert ended.code == 0 and "format 99, newer than the format" in ended.said


def test_no_run_to_resume(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "run")
    runner.folder.mkdir()
    refused(runner.resume(), "no run.json")
    refused(runner.command(["doctor", str(runner.folder)]).wait(), "no run.json")
