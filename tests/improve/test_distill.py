"""`glassformer distill`: a student learns what its teacher writes, is scored on its teacher's held-out pairs, and goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer import runs
from glassformer.api import load
from glassformer.api.evaluation import evaluate_run
from glassformer.cli.improve import pair_writer
from glassformer.config import Recipe
from glassformer.data.store import run_examples
from glassformer.errors import UserError
from glassformer.improve import distill as study
from glassformer.improve import shortlist
from glassformer.models import build_model
from glassformer.models.weights import model_tensors
from glassformer.runs.folder import RunFolder
from glassformer.training.progress import StepReport
from tests.commands import call
from tests.small_runs import small_run
from tests.talking import make_run

pytestmark = pytest.mark.slow

SMALL = (
    "model.n_encoder_layer=1",
    "train.steps=6",
    "train.validate_every=3",
    "train.save_every=3",
    "train.log_every=1",
)
MORE = "eins eins eins eins eins eins eins\n"  # longer than any that the teacher was trained on


class StopAfter:
    """Asks for a stop after so many steps, as Ctrl-C does."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_log(self, report: StepReport) -> None:
        if report.step == self.steps:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_message(self, text: str) -> None:
        pass


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("teacher"), "pairs").path


def made(teacher: Path, out: Path, **options: Any) -> dict[str, Any]:
    settings = {"overrides": SMALL, "device": "cpu"} | options
    return study.distill(teacher, out, pair_writer("distill", None, "cpu"), **settings)


@pytest.fixture(scope="module")
def distilled(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("distilled")
    data = RunFolder(teacher).recipe.data
    held = [next(iter(run_examples(data, split, teacher / "data")))[0] for split in ("val", "test")]  # type: ignore[arg-type]
    (folder / "more.txt").write_text(MORE + "".join(f"{text.upper()}\n" for text in held), encoding="utf-8")
    return folder / "out", made(teacher, folder / "out", texts=folder / "more.txt")


def test_the_student_learns_what_the_teacher_says_to_its_own_sources(
    teacher: Path, distilled: tuple[Path, dict[str, Any]]
) -> None:
    """Caught: the data's targets in place of the teacher's, a held-out source learned from, --text forgotten."""
    out, found = distilled
    data = RunFolder(teacher).recipe.data
    splits = {s: list(run_examples(data, s, teacher / "data")) for s in ("train", "val", "test")}  # type: ignore[arg-type]
    sources = list(dict.fromkeys([source for source, _ in splits["train"]] + [MORE.strip()]))
    said = load(teacher, device="cpu").translate(sources)
    wanted = [(source, text.strip()) for source, text in zip(sources, said, strict=True) if text.strip()]
    rows = [tuple(line.split("\t")) for line in (out / "pairs.tsv").read_text(encoding="utf-8").splitlines()]
    assert rows == wanted and found["pairs"] == len(wanted)
    student = RunFolder(Path(found["student"]))
    for split in ("val", "test"):
        assert list(run_examples(student.recipe.data, split, student.path / "data")) == splits[split]  # type: ignore[arg-type]


def test_both_are_scored_as_evaluate_scores_them(teacher: Path, distilled: tuple[Path, dict[str, Any]]) -> None:
    """Caught: another split or another search than is said, student and teacher exchanged."""
    out, found = distilled
    for name, path in (("teacher", teacher), ("student", Path(found["student"]))):
        own = evaluate_run(path, split="test", device="cpu").scores.values[found["metric"]]
        assert found["facts"][name]["score"] == pytest.approx(own, abs=0.01)
    gap = found["facts"]["student"]["score"] - found["facts"]["teacher"]["score"]
    assert found["paired"]["difference"]["value"] == pytest.approx(gap)
    assert json.loads((out / "distill.json").read_text(encoding="utf-8")) == found


def test_what_was_broken_off_goes_on_to_the_same_student(
    teacher: Path, distilled: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the training; and a third time nothing is made again. Caught: a second student, other pairs."""
    out, found = distilled
    train = runs.train
    monkeypatch.setattr(runs, "train", lambda *args, **options: train(*args, **options, callbacks=[StopAfter(2)]))
    with pytest.raises(runs.Stopped):
        made(teacher, tmp_path / "out", texts=out.parent / "more.txt")
    monkeypatch.setattr(runs, "train", train)
    again = made(teacher, tmp_path / "out", texts=out.parent / "more.txt")
    assert (tmp_path / "out" / "pairs.tsv").read_bytes() == (out / "pairs.tsv").read_bytes()
    first, second = (model_tensors(RunFolder(Path(one["student"])).load_model()) for one in (found, again))
    assert all(bool((first[name] == second[name]).all()) for name in first)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "student" / "final").iterdir()}
    assert made(teacher, tmp_path / "out", texts=out.parent / "more.txt")["paired"] == again["paired"]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "student" / "final").iterdir()}
    with pytest.raises(UserError, match="of another input file"):
        made(teacher, tmp_path / "out")
    with pytest.raises(UserError, match=r"was trained with other settings .train.steps: 6 → 7.; choose another --out"):
        made(teacher, tmp_path / "out", texts=out.parent / "more.txt", overrides=(*SMALL, "train.steps=7"))


def test_the_size_in_int8_is_that_of_an_export(distilled: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    found = distilled[1]
    done = call("export", found["student"], "--to", "ct2", "--quantize", "int8", "--out", tmp_path / "ct2")
    assert done.returncode == 0, done.stderr
    size = (tmp_path / "ct2" / "model.bin").stat().st_size
    position_table_and_names = size - 1e6 * found["facts"]["student"]["int8_mb"]
    assert 0 < position_table_and_names < 40_000


def test_a_shortlist_is_kept_where_it_pays(
    distilled: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caught: one that is kept though it costs quality or time, or stays after a trial that refused it; one that is made and not
    used, and words in it that no training pair has."""
    pytest.importorskip("ctranslate2")
    out, found = distilled
    student, pairs = RunFolder(Path(found["student"])), [("eins zwei", "one two"), ("neun", "nine")]
    assert (student.path / "shortlist.safetensors").exists() == found["shortlist"]["kept"]
    for costs, gains, kept in ((100.0, 0.0, True), (100.0, 1e9, False), (0.0, 0.0, True), (-1e9, 0.0, False)):
        monkeypatch.setattr(shortlist, "MAY_COST", costs)
        monkeypatch.setattr(shortlist, "MUST_GAIN", gains)
        if kept and costs == 0:
            pairs = [(source, "nothing like it") for source, _target in pairs]  # 0 with it and without
        assert shortlist.keep_if_it_pays(student, pairs, "bleu")["kept"] == kept
        assert (student.path / "shortlist.safetensors").exists() == kept
        model = load(student.path, device="cpu")
        assert (model.model.shortlist is not None) == kept
        done = call("translate", student.path, "eins zwei", "--set", "shortlist=true")
        assert (done.returncode, "this run has no shortlist" in done.stderr) == ((0, False) if kept else (2, True))
    written = {
        w for line in (out / "pairs.tsv").read_text(encoding="utf-8").splitlines() for w in line.split("\t")[1].split()
    }
    shortlist.shortlist_of_run(student).save(student.path / "shortlist.safetensors")
    sources = [source for source, _target in run_examples(student.recipe.data, "train", student.path / "data")][:20]
    said = load(student.path, device="cpu").translate(sources, engine="int8")
    assert {word for text in said for word in text.split()} <= written
    (student.path / "shortlist.safetensors").unlink()


@pytest.mark.parametrize("width", [64, 512])
def test_a_student_is_deep_where_it_reads_and_shallow_where_it_writes(teacher: Path, width: int) -> None:
    recipe = RunFolder(teacher).recipe.with_model(n_embd=width, n_head=width // 16, n_layer=6)
    model = study.student_recipe(recipe, [], own_training=True)["model"]
    assert (model["n_embd"], model["n_encoder_layer"], model["n_layer"]) == (min(width, 256), 6, 2)
    assert model["n_hidden"] * width == recipe.model.hidden * model["n_embd"]


@pytest.mark.parametrize("words", [1_000, 37_000, 60_000])
def test_a_student_of_very_many_words_is_narrower(teacher: Path, words: int) -> None:
    """At most 15 MB in int8, by the model itself. Broken variant: the width alone has a limit."""
    recipe = RunFolder(teacher).recipe.with_model(n_embd=512, n_head=8, n_layer=6, n_hidden=2048, vocab_size=words)
    values = study.student_recipe(recipe, [], own_training=True)["model"]
    with torch.device("meta"):
        student = build_model(Recipe.from_dict({"model": values | {"vocab_size": words}}).model)
    assert study.int8_bytes(student) <= study.MOST_BYTES
    assert (values["n_embd"] == 256) == (words < 37_000) and values["n_embd"] >= 128


def test_what_cannot_be_distilled_is_refused_in_a_sentence(teacher: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "bert", model={"family": "bert"}, data={"task": "text"})
    make_run(tmp_path / "random")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "student").write_text("thesis")
    for words, sentence in (
        (("improve", tmp_path / "bert", "--only", "distill"), "it cannot translate"),
        (("improve", tmp_path / "random", "--only", "distill"), "has kept no pairs to score a student on"),
        (("improve", teacher, "--only", "distill", "model.n_embd=7", "--out", tmp_path / "odd"), "n_embd"),
        (("improve", teacher, "--only", "distill", "--out", tmp_path / "mine"), "is there already"),
        (
            ("improve", teacher, "--only", "distill", "--text", tmp_path / "no.txt", "--out", tmp_path / "none"),
            "no.txt",
        ),
    ):
        done = call(*words)
        assert done.returncode == 2 and sentence in done.stderr, done.stderr
    assert (tmp_path / "mine" / "student").read_text() == "thesis" and not (tmp_path / "odd" / "pairs.tsv").exists()
    assert not (tmp_path / "none").exists()
