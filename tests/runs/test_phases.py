"""Where the time of a training goes: the phases follow each other without a gap, and a finished run has them in its log."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from glassformer import runs
from glassformer.cli.train import run_it
from glassformer.runs import metrics_log
from glassformer.runs.folder import RunFolder
from glassformer.runs.metrics_log import PHASES, PhaseClock, phase_seconds
from tests.number_pairs import pairs, recipe, write_tsv

pytestmark = pytest.mark.slow


def test_each_second_belongs_to_one_phase() -> None:
    """Broken variants: a validation counted as steps as well; what follows it counted to it."""
    now = [10.0]
    clock = PhaseClock(torch.device("cpu"), lambda: now[0])
    now[0] = 17.0
    clock.begin("steps")
    now[0] = 20.0
    with clock.during("validate"):
        now[0] = 24.0
        with clock.during("save"):
            now[0] = 25.0
    now[0] = 27.0
    assert clock.record() == {"prepare": 0.0, "compile": 7.0, "steps": 5.0, "validate": 4.0, "save": 1.0}


def test_a_run_says_where_its_time_went(tmp_path: Path) -> None:
    """All phases took their time, together no more than the training did; and nobody takes that line for a validation."""
    (tmp_path / "data").mkdir()
    write_tsv(tmp_path / "data" / "train.tsv", pairs(60))
    began = time.perf_counter()
    run = runs.train(recipe(tmp_path / "data"), tmp_path / "run")
    whole = time.perf_counter() - began
    found = phase_seconds(run.metrics_file)
    assert tuple(found) == PHASES and all(found.values()) and sum(found.values()) <= whole + 0.01
    lines = [json.loads(line) for line in run.metrics_file.read_text(encoding="utf-8").splitlines()]
    assert lines[-1]["seconds"] == found and len(run.metrics()) == len(lines) - 1


def test_a_run_that_was_gone_on_with_keeps_the_time_it_took_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Caught: a clock that begins again at --resume; a last screen that tells the minutes of the last stretch alone."""
    (tmp_path / "data").mkdir()
    write_tsv(tmp_path / "data" / "train.tsv", pairs(60))
    run = runs.train(recipe(tmp_path / "data"), tmp_path / "run")
    before = run.checkpoints.state(6)["seconds"]
    assert before["prepare"] > 0 and before["steps"] > 0
    longer = recipe(tmp_path / "data", steps=8)
    run_it(lambda: runs.resume(run.path, longer, accept_changes=True), run.path)
    after = phase_seconds(run.metrics_file)
    assert after["prepare"] == before["prepare"] and all(after[phase] >= before[phase] for phase in PHASES)
    assert "trained in 0 min" in capsys.readouterr().out
    kept = json.dumps({"step": 8, "seconds": after | {"steps": 3600.0}})
    run.metrics_file.write_text(kept + "\n", encoding="utf-8")
    run_it(lambda: run, run.path)
    assert "trained in 60 min" in capsys.readouterr().out


def test_a_ctrl_c_in_the_last_drawing_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is whole by then. Caught: an interrupt somewhere inside the drawing, which shows a trace, or leaves what is to be
    typed next unsaid."""
    draw = metrics_log.draw_curves

    def interrupted(run: RunFolder) -> list[Path]:
        os.kill(os.getpid(), signal.SIGINT)
        return draw(run)

    (tmp_path / "data").mkdir()
    write_tsv(tmp_path / "data" / "train.tsv", pairs(60))
    monkeypatch.setattr(metrics_log, "draw_curves", interrupted)
    run_it(lambda: runs.train(recipe(tmp_path / "data"), tmp_path / "run"), tmp_path / "run")
    shown = capsys.readouterr()
    assert "curves.png" in shown.out and "next:" in shown.out and "stopping" not in shown.err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"step": 1, "loss": 2.0}\n', b'{"seconds": null}'])
def test_a_log_without_them(content: bytes, tmp_path: Path) -> None:
    """As a run of an earlier version has it, or one that was stopped."""
    (tmp_path / "metrics.jsonl").write_bytes(content)
    assert set(phase_seconds(tmp_path / "metrics.jsonl").values()) == {0.0}
