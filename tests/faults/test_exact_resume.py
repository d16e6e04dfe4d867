"""A run that was killed and resumed is the run that was never stopped: 0 bits differ, in parameters, optimizer, moving
average, snapshots, random state, progress, the rest of the data and everything logged. Fresh processes, SIGKILL, the
command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from glassformer.runs.metrics_log import has_record
from tests.faults.processes import Ended, Runner, differences, everything

pytestmark = pytest.mark.slow
KILLED = -9
EPOCH = 22  # micro-batches an epoch, with the settings of processes.TINY


def kill(at: str, nth: int) -> dict[str, Any]:
    return {"at": at, "nth": nth, "do": "kill"}


@dataclass(frozen=True)
class Case:
    settings: str
    kills: list[dict[str, Any]]  # one for each process, in turn
    resumed_from: list[tuple[int, int]]  # where in the data each of them went on: epoch and micro-batch


CASES = {
    "in the middle of an epoch": Case("", [kill("batch", 13)], [(0, 10)]),
    "at the end of an epoch": Case(f"train.save_every={EPOCH}", [kill("step", EPOCH + 2)], [(1, 0)]),
    "in the third epoch": Case("train.steps=50", [kill("step", 48)], [(2, 1)]),
    "twice in one epoch": Case("", [kill("step", 7), kill("batch", 8)], [(0, 5), (0, 10)]),
    "before the first checkpoint": Case("", [kill("step", 4)], []),
    "inside an accumulation": Case("train.accumulate=3", [kill("micro-batch", 3 * 16 + 2)], [(0, 15)]),
    "with workers": Case("data.workers=2", [kill("batch", 18), kill("step", 9)], [(0, 15), (0, 20)]),
    "with a moving average": Case("train.ema=0.9 train.steps=20", [kill("step", 12)], [(0, 10)]),
    "with snapshots to average": Case(
        "train.average_last=3 train.snapshot_every=4 train.ema=0.8",
        [kill("step", 19), kill("step", 11)],
        [(0, 15), (1, 3)],
    ),
    "with early stopping": Case(
        "train.patience=2 train.learning_rate=0.03 data.size=20 train.schedule=constant train.steps=90",
        [kill("step", 26)],
        [],
    ),
    "with the norms of layers": Case("train.log_layers=true train.steps=20", [kill("step", 14)], [(0, 10)]),
    "with muon": Case("train.optimizer=muon train.weight_decay=0.1 train.steps=20", [kill("step", 14)], [(0, 10)]),
    "with batch norm and recomputation": Case(
        "model.norm=batch train.checkpoint_activations=true train.steps=20", [kill("step", 14)], [(0, 10)]
    ),
}


def killed_and_resumed(runner: Runner, kills: list[dict[str, Any]], *always: dict[str, Any]) -> tuple[Ended, list[Any]]:
    """Starts, dies as often as asked, goes on, ends; and where in the data it went on each time."""
    places = []
    for number, fault in enumerate(kills):
        ended = runner.train(fault, *always) if number == 0 else runner.resume(fault, *always)
        assert ended.code == KILLED, ended.said
        if (step := runner.run.checkpoints.latest_good()) is not None:
            state = runner.run.checkpoints.state(step)
            places.append((state["epoch"], state["index"]))
    return runner.resume(*always), places


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runner]:
    """A run of such settings that was never stopped: one for all tests that compare with it, and none of them changes it."""

    @cache
    def of(settings: str) -> Runner:
        runner = Runner(tmp_path_factory.mktemp("straight") / "run", settings.split())
        ended = runner.train()
        assert ended.code == 0, ended.said
        return runner

    return of


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_is_the_run_that_was_never_stopped(
    name: str, never_stopped: Callable[[str], Runner], tmp_path: Path
) -> None:
    case = CASES[name]
    straight, stopped = never_stopped(case.settings), Runner(tmp_path / "stopped", case.settings.split())
    ended, places = killed_and_resumed(stopped, case.kills)
    assert ended.code == 0, ended.said
    if case.resumed_from:
        assert places == case.resumed_from
    if "early" in name:
        assert straight.run.checkpoints.steps()[-1] < straight.run.recipe.train.steps
    assert differences(everything(straight.run), everything(stopped.run)) == []


def test_text_with_a_gpt(tmp_path: Path) -> None:
    """Another family and another kind of data: blocks of a text, whose first token moves from epoch to epoch."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"In line {i} the number is {i * i % 97}." for i in range(60)))
    settings = f"model.family=gpt data.task=text data.train={text} data.tokenizer=char data.val_fraction=0.2".split()
    recipe = tmp_path / "text.toml"
    recipe.write_text("")
    straight, stopped = (Runner(tmp_path / kind, settings, recipe=str(recipe)) for kind in ("straight", "stopped"))
    assert straight.train().code == 0
    ended, _ = killed_and_resumed(stopped, [kill("step", 13), kill("batch", 9)])
    assert ended.code == 0, ended.said
    assert differences(everything(straight.run), everything(stopped.run)) == []


def test_the_comparison_sees_an_order_that_is_replayed(never_stopped: Callable[[str], Runner], tmp_path: Path) -> None:
    """The broken variant: a resume that goes on in the order of epoch 0, as several trainers have done. The weights differ,
    and so would this file's other tests say."""
    case = CASES["in the third epoch"]
    straight, stopped = never_stopped(case.settings), Runner(tmp_path / "stopped", case.settings.split())
    ended, _ = killed_and_resumed(stopped, case.kills, {"variant": "epoch-0-order"})
    assert ended.code == 0, ended.said
    found = differences(everything(straight.run), everything(stopped.run))
    assert any(name.startswith("model/") for name in found) and any(name.startswith("metrics/") for name in found)


def test_killed_after_its_final_weights_it_is_finished(tmp_path: Path) -> None:
    """Nothing is trained again, and the picture, the line of times and the last words come, once. Broken variant: "there is
    nothing to go on with"."""
    straight, runner = Runner(tmp_path / "straight"), Runner(tmp_path / "run")
    assert straight.train().code == 0
    saves = 30 // 5  # checkpoints, each renamed, and then the final weights
    assert runner.train(kill("after-rename", saves + 1)).code == KILLED
    assert runner.run.finished() == 30 and not has_record(runner.run.metrics_file)
    ended = runner.command(["train", str(runner.folder), "--resume"], draw=True).wait()
    assert ended.code == 0 and "the run is in" in ended.said and "next: glassformer" in ended.said
    assert has_record(runner.run.metrics_file) and (runner.folder / "curves.png").exists()
    assert differences(everything(straight.run), everything(runner.run)) == []
    before = runner.run.metrics_file.read_bytes()
    assert "nothing to go on with" in runner.resume().said and runner.run.metrics_file.read_bytes() == before


def test_a_finished_run_says_so_and_is_left_alone(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "run", ["train.steps=5"])
    assert runner.train().code == 0
    before = {p: p.stat().st_mtime_ns for p in runner.folder.rglob("*") if p.name != ".lock"}
    ended = runner.resume()
    assert ended.code == 0 and "trained to its end, step 5" in ended.said
    assert {p: p.stat().st_mtime_ns for p in runner.folder.rglob("*") if p.name != ".lock"} == before


def test_killed_after_training_and_before_the_final_weights(
    never_stopped: Callable[[str], Runner], tmp_path: Path
) -> None:
    straight, stopped = never_stopped(""), Runner(tmp_path / "stopped")
    assert stopped.train(kill("finishing", 1)).code == KILLED
    assert not stopped.run.final.exists()
    assert stopped.resume().code == 0
    assert differences(everything(straight.run), everything(stopped.run)) == []


@pytest.mark.parametrize("moment", ["preparing", "before-prepared"])
def test_killed_while_the_data_is_prepared(moment: str, never_stopped: Callable[[str], Runner], tmp_path: Path) -> None:
    """Until its data is prepared a run stands under a temporary name; tokenizers and half of the token files may be there.
    They are made again."""
    straight, stopped = never_stopped(""), Runner(tmp_path / "stopped")
    assert stopped.train(kill(moment, 1)).code == KILLED
    assert not stopped.folder.exists()
    draft = stopped.folder.with_name(f".making-{stopped.folder.name}")
    (draft / "data").mkdir(exist_ok=True)
    (draft / "data" / "train.source.tokens.x.part").write_bytes(b"half")
    assert stopped.resume().code == 0
    assert differences(everything(straight.run), everything(stopped.run)) == []
    assert not list((stopped.folder / "data").glob("*.part")) and not draft.exists()
