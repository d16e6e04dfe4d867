"""`glassformer doctor`, as a person calls it."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from glassformer.runs.doctor import examine
from glassformer.runs.folder import RunFolder
from tests.counts import count
from tests.faults.processes import Runner

pytestmark = pytest.mark.slow
KILLED = -9


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("doctor") / "run", ["train.average_last=4"])
    # Checkpoints of steps 5 and 10, then snapshots and checkpoints in turn: at the snapshot of step 25.
    assert runner.train({"at": "before-rename", "nth": 7, "do": "kill"}).code == KILLED
    return runner


def test_the_doctor_looks_and_changes_nothing(killed: Runner) -> None:
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in killed.folder.rglob("*")}
    looked = killed.command(["doctor", str(killed.folder), "--json"]).wait()
    assert looked.code == 0, looked.said
    found = json.loads(looked.said)
    assert not found["damaged"] and "goes on from step 20" in found["outlook"]
    conditions = {f["name"]: f["condition"] for f in found["findings"]}
    assert conditions["run.json"] == conditions["checkpoints/step-00000020"] == conditions["tokenizer.json"] == "good"
    assert conditions["snapshots/.tmp-step-00000025"] == "note"
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in killed.folder.rglob("*")} == before


def test_the_doctor_names_each_damage(killed: Runner, tmp_path: Path) -> None:
    """One file after the other: what is damaged is named, and what it means for going on."""
    outlooks = {
        "run.json": "cannot be resumed",
        "tokenizer.json": "cannot be resumed",
        "data/train.target.tokens": "cannot be resumed",
        "checkpoints/step-00000020/state.json": "goes on from step 15",
        "checkpoints/step-00000015/model.safetensors": "goes on from step 20",
        "snapshots/step-00000020/model.safetensors": "goes on from step 20",
    }
    assert set(outlooks) <= {p.relative_to(killed.folder).as_posix() for p in killed.folder.rglob("*")}
    for name, outlook in outlooks.items():
        folder = tmp_path / name.replace("/", "-")
        shutil.copytree(killed.folder, folder)
        (folder / name).write_bytes((folder / name).read_bytes()[:-3])
        found = examine(folder)
        wrong = [f.name for f in found.findings if f.condition == "damaged"]
        assert len(wrong) == 1 and name.startswith(wrong[0]), name
        assert outlook in found.outlook, (name, found.outlook)


def test_the_doctor_on_runs_at_every_stage(tmp_path: Path) -> None:
    unprepared, fresh, done = (Runner(tmp_path / name, ["train.steps=6"]) for name in ("unprepared", "fresh", "done"))
    unprepared.train({"at": "preparing", "nth": 1, "do": "kill"})
    fresh.train({"at": "step", "nth": 2, "do": "kill"})
    assert done.train().code == 0
    assert "prepares the data again" in examine(unprepared.folder).outlook
    assert "nothing has been saved yet" in examine(fresh.folder).outlook
    assert "trained to its end, step 6" in examine(done.folder).outlook
    assert not any(examine(runner.folder).damaged for runner in (unprepared, fresh, done))


def test_the_doctor_beside_a_training(tmp_path: Path) -> None:
    """Checkpoints come and go while it looks, a hundred a second: none of them is called damaged."""
    runner = Runner(tmp_path / "run", ["train.steps=100000", "train.save_every=1", "train.validate_every=100000"])
    running = runner.begin()
    try:
        while not runner.run.checkpoints.steps():
            time.sleep(0.02)
        for _ in range(count(fast=15, soak=300)):
            found = examine(runner.folder)
            assert not found.damaged, [f for f in found.findings if f.condition == "damaged"]
            assert found.outlook == "a process is training it now"
    finally:
        running.signal(9)
    assert running.wait().code == KILLED


def test_the_doctor_sees_that_a_run_is_being_trained(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    assert Runner(run.path).train({"at": "step", "nth": 6, "do": "kill"}).code == KILLED
    with run.exclusive_lock():
        assert examine(run.path).outlook == "a process is training it now"
    assert "goes on from step 5" in examine(run.path).outlook
