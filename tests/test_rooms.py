"""One fast look into every room, so that `make check` sees each of them: a run of a few steps, and what is done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer
from glassformer.errors import UserError
from glassformer.runs.folder import RunFolder
from tests.small_runs import small_run
from tests.test_house import FLOORS, PACKAGE

SENTENCE = "eins zwei drei"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """config, data, text, models, train and runs have all worked where this is there."""
    return small_run(tmp_path_factory.mktemp("rooms"), "pairs", steps=4, validate_every=4, save_every=4)


@pytest.fixture(scope="module")
def model(run: RunFolder) -> Any:
    return glassformer.load(run.path)


def test_train_and_runs(run: RunFolder) -> None:
    assert '"step": 4' in run.metrics_file.read_text(encoding="utf-8")


def test_api_tasks_and_decode(model: Any) -> None:
    assert isinstance(model.translate(SENTENCE), str) or len(model.translate([SENTENCE])) == 1


def test_probe_and_nn(model: Any) -> None:
    with glassformer.record(model, "decoder.*.cross.weights") as seen:
        model.translate([SENTENCE])
    assert seen and all(weights.isfinite().all() for weights in seen.values())


def test_accel(model: Any) -> None:
    from glassformer.accel import accelerate
    from glassformer.models import build_model

    config = glassformer.ModelConfig(family="gpt", vocab_size=7, n_layer=1, n_head=2, n_embd=8)
    rows = glassformer.Rows.whole(torch.tensor([[1, 2, 3]]))
    plain = build_model(config).eval()
    before = plain(rows)
    assert torch.equal(accelerate(plain, compiled=True, short_rows=8)(rows), before)


def test_evaluate_and_studies(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    from glassformer.cli.verbs import run_command

    assert run_command(["evaluate", str(run.path)]) == 0
    assert "exact match" in capsys.readouterr().out.replace("_", " ")


def test_cli_and_screen(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    from glassformer.cli.verbs import run_command

    assert run_command(["translate", str(run.path), SENTENCE]) == 0
    assert capsys.readouterr().out.strip()
    with pytest.raises(UserError, match="no-such-recipe"):
        run_command(["train", "no-such-recipe"])


def test_plots_and_files(tmp_path: Path) -> None:
    from glassformer.files import durable
    from glassformer.plots.maps import small_map
    from glassformer.plots.style import figure

    fig, axis = figure(3.0, 3.0)
    small_map(axis, np.eye(2), "head 1")
    fig.savefig(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000
    durable.write_atomically(tmp_path / "a.txt", b"whole")
    assert (tmp_path / "a.txt").read_bytes() == b"whole"


def test_formats(run: RunFolder) -> None:
    from glassformer.formats.huggingface.tables import from_half_split, to_half_split

    tensors = {"embedding.weight": torch.from_numpy(np.random.default_rng(1).normal(size=(5, 8)))}
    back = from_half_split(to_half_split(tensors, 8), 8)
    assert torch.equal(back["embedding.weight"], tensors["embedding.weight"])


def test_language(monkeypatch: pytest.MonkeyPatch) -> None:
    from glassformer.language import _, localized

    monkeypatch.setenv("GLASSFORMER_LANG", "zh")
    assert localized("a sentence that no catalogue has") == "a sentence that no catalogue has"
    assert localized(_("there is no file {path}", path="a.tsv")) == "没有文件 a.tsv"


def test_machine() -> None:
    from glassformer import machine

    cpu = torch.device("cpu")
    assert machine.cores() >= 1 and machine.rows_at_once(cpu) >= 1
    assert (machine.available_memory(cpu) or 1) > 0


def test_every_room_is_looked_into() -> None:
    """A new room is named here, and in a test above."""
    looked = {
        *("accel", "api", "cli", "config", "data", "decode", "errors", "evaluation", "files", "formats", "inspection"),
        *(
            "improve",
            "language",
            "machine",
            "models",
            "nn",
            "plots",
            "probe",
            "runs",
            "screen",
            "tasks",
            "text",
            "training",
        ),
    }
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert (there & set(FLOORS)) - looked <= {"serve"}
