"""Runs that are watched while they are trained, and trainings that are begun over HTTP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import read_recipe
from glassformer.runs.folder import RunFolder
from glassformer.serve.models import Models
from glassformer.serve.requests import APIError, Limits
from glassformer.serve.training import Training, new_lines
from tests.serve.harness import Running, make_runs, running, until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with weights, and one that has none yet."""
    found = tmp_path_factory.mktemp("runs")
    make_runs(found, "translator")
    shutil.copytree(found / "translator", found / "young")
    for name in ("final", "checkpoints"):
        shutil.rmtree(found / "young" / name, ignore_errors=True)
    return found


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with running([folder / "translator"], watched=[folder]) as found:
        yield found


def watch(server: Running, seen: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is told of each run."""
    return {run["name"]: run for run in server.post("/open/runs", {"seen": seen or {}})["runs"]}


def test_a_log_is_read_line_by_line_as_it_grows(tmp_path: Path) -> None:
    """However a log is cut into pieces, its lines come once each and in order; a line that is half written waits for its end; one
    that cannot be read is left out. Broken variants: the end of the file remembered in place of that of the last whole line."""
    lines = [{"step": n, "loss": n / 7} for n in range(20)]
    text = b"".join(
        json.dumps(line).encode() + b"\n" + (b"no json\n" if n == 5 else b"") for n, line in enumerate(lines)
    )
    path, found, at = tmp_path / "metrics.jsonl", [], 0
    for end in range(0, len(text) + 13, 13):
        path.write_bytes(text[:end])
        more, at = new_lines(path, at)
        found += more
    assert found == lines
    path.write_bytes(text[:100])  # a run that was gone on with
    assert new_lines(path, at)[0] == new_lines(path, 0)[0] != []
    assert new_lines(tmp_path / "none", 7) == ([], 0)


def test_a_run_is_followed_whoever_writes_it(server: Running, folder: Path) -> None:
    """Only what is new is told; a run that takes another's place is told from its beginning."""
    log = folder / "young" / "metrics.jsonl"
    log.write_text('{"step": 1, "loss": 2.0, "grad_norm": 1.0}\n')
    first = watch(server)["young"]
    assert first["metrics"] == [{"step": 1, "loss": 2.0}] and not first["ended"] and not first["served"]
    with log.open("a") as file:
        file.write('{"step": 2, "loss": NaN}\n{"step": 2, "val_loss": 1.5}\n{"step": 2, "seconds": {"train": 1}}\n')
    second = watch(server, {"young": first["seen"]})["young"]
    assert second["metrics"] == [{"step": 2, "loss": None}, {"step": 2, "val_loss": 1.5}]
    assert watch(server, {"young": second["seen"]})["young"]["metrics"] == []
    assert len(watch(server, {"young": second["seen"] | {"id": "another"}})["young"]["metrics"]) == 3


def test_a_run_is_asked_once_it_has_weights(server: Running, folder: Path) -> None:
    """The page is there before the first checkpoint, and the run is served after it."""
    assert "young" not in server.served.models.runs
    shutil.copytree(folder / "translator" / "final", folder / "young" / "final")
    assert watch(server)["young"]["served"]
    until(lambda: server.served.models.runs["young"].healthy, 30)
    asked = {"model": "young", "text": "the cat", "data": True, "explained": False}
    assert server.post("/look", asked)["title"] == "young"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "translator"}, "already"),
        ({"name": "../out"}, "name"),
        ({"name": "-x"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "new", "recipe": "/etc/passwd"}, "recipe"),
        ({"name": "new", "changes": ["--overwrite"]}, "--overwrite"),
        ({"name": "new", "changes": ["--out=elsewhere"]}, "--out"),
        ({"name": "new", "changes": ["train.stpes=3"]}, "stpes"),
    ],
)
def test_a_training_that_cannot_be_begun(fields: dict[str, Any], told: str, server: Running, folder: Path) -> None:
    """Each is refused in a sentence, nothing is written, and no process is started."""
    before = sorted(folder.rglob("*"))
    status, _headers, content = server.ask("POST", "/open/train", {"recipe": "dates", "changes": []} | fields)
    assert status == 400 and told in content["error"]
    assert sorted(folder.rglob("*")) == before and not server.served.training.begun


@pytest.mark.parametrize(
    "setting",
    [
        'data.train=["elsewhere/secret.tsv"]',
        "data.train=elsewhere/secret.tsv",
        "data.train=link.tsv",
        "data.path=elsewhere",
        "data.tokenizer_file=elsewhere/secret.tsv",
        "data.train=~nobody-at-all/x.tsv",
    ],
)
def test_a_training_from_the_page_reads_no_file_from_elsewhere(
    setting: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes files from the folder where the server was started and from those that it was started with. Broken variants: any
    file that its owner can read; a link that leads out; settings other than data.train."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.tsv").write_text("a\tb\n")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "own.tsv").write_text("a\tb\n")
    (tmp_path / "here" / "link.tsv").symlink_to(tmp_path / "elsewhere" / "secret.tsv")
    monkeypatch.chdir(tmp_path / "here")
    training = Training([folder], Models([], Limits(), device="cpu"))
    for name in ("own.tsv", str(tmp_path / "here"), str(folder / "anything")):
        training.check_files(read_recipe("dates", [f"data.train={name}", "data.builtin=none"]))
    changed = setting.replace("elsewhere", str(tmp_path / "elsewhere"))
    with pytest.raises(APIError, match="takes its files from"):
        training.check_files(read_recipe("dates", [changed, "data.builtin=none"]))


def test_a_server_for_others_watches_nothing_and_trains_nothing(folder: Path) -> None:
    with running([folder / "translator"]) as server:
        assert server.post("/open/runs", {}) == {"runs": [], "recipes": [], "failed": {}, "begun": []}
        status, _headers, content = server.ask("POST", "/open/train", {"recipe": "dates", "name": "new"})
        assert status == 403 and "open" in content["error"]
    assert not (folder / "new").exists()


def test_pages_of_other_sites_start_nothing(server: Running, folder: Path) -> None:
    asked = {"recipe": "dates", "name": "new"}
    assert server.ask("POST", "/open/train", asked, {"Origin": "https://example.org"})[0] == 403
    assert not (folder / "new").exists() and not server.served.training.begun


@pytest.mark.slow
def test_a_training_ends_saved_with_its_server(folder: Path) -> None:
    """What was begun from a page is stopped as by SIGTERM: there is a checkpoint to go on from, and no process is left."""
    changes = ["train.steps=100000", "train.log_every=1", "train.device=cpu", "model.n_embd=16", "model.n_hidden=16"]
    with running([folder / "translator"], watched=[folder / "translator"]) as server:
        server.post("/open/train", {"recipe": "dates", "name": "begun", "changes": changes})
        until(lambda: watch(server).get("begun", {}).get("metrics"), 120)
        begun = server.served.training.begun["begun"]
    assert begun.process.returncode == 75
    assert RunFolder.open(folder / "begun").latest_checkpoint() is not None
