"""A run needs nothing outside its folder: sources are read once, each file opened once, and then no longer needed."""

from __future__ import annotations

import builtins
import gzip
import io
import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer import load, runs
from glassformer.api.evaluation import evaluate_run
from glassformer.config import Recipe, read_recipe
from glassformer.data.prepare import prepare
from glassformer.data.report import DataReport
from glassformer.data.store import run_examples, stored_splits
from glassformer.runs.folder import RunFolder

pytestmark = pytest.mark.slow

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def rows(count: int) -> list[tuple[str, str]]:
    return [(f"{NUMBERS[i % 10]} {i}", f"{i} {NUMBERS[i // 10 % 10]}") for i in range(count)]


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return path


def recipe(folder: Path, **data: Any) -> Recipe:
    return Recipe.from_dict(
        {
            "model": {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 32},
            "data": {
                "train": str(folder / "pairs.tsv"),
                "tokenizer": "char",
                "val_fraction": 0.1,
                "batch_tokens": 256,
                **data,
            },
            "train": {"steps": 6, "validate_every": 3, "save_every": 2, "device": "cpu", "validate_examples": 8},
        }
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was opened for reading, by whatever means of Python's."""
    counts: Counter[str] = Counter()
    real_open, real_io = builtins.open, io.FileIO

    def counted(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if isinstance(file, str | os.PathLike) and "r" in mode:
            counts[Path(file).name] += 1
        return real_open(file, mode, *rest, **named)

    class CountedIO(real_io):  # type: ignore[misc, valid-type]
        def __init__(self, file: Any, mode: str = "r", *rest: Any, **named: Any) -> None:
            if isinstance(file, str | os.PathLike) and "r" in mode:
                counts[Path(file).name] += 1
            super().__init__(file, mode, *rest, **named)

    monkeypatch.setattr(builtins, "open", counted)
    monkeypatch.setattr(io, "open", counted)
    monkeypatch.setattr(io, "FileIO", CountedIO)
    return counts


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv.gz", "pairs.csv", "pairs.json", "pairs.jsonl", "text.txt"])
def test_every_file_is_opened_once(
    name: str, tmp_path: Path, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """(And once more where prepared data is kept, to know the file again.) Broken variant: a pass for the tokenizer, one for
    each side, and one for each split (six in all)."""
    pairs, path = rows(120), tmp_path / name
    tsv, records = "".join(f"{a}\t{b}\n" for a, b in pairs), [{"source": a, "target": b} for a, b in pairs]
    contents = {
        "csv": "source,target\n" + "".join(f'"{a}",{b}\n' for a, b in pairs),
        "json": json.dumps(records),
        "jsonl": "".join(f"{json.dumps(record)}\n" for record in records),
    }
    text = contents.get(name.removeprefix("pairs."), tsv).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    task = {"task": "text"} if name.startswith("text") else {}
    monkeypatch.setenv("GLASSFORMER_CACHE", "off")
    opened.clear()
    prepare(recipe(tmp_path, train=str(path), **task), tmp_path / "run")
    assert opened[name] == 1
    report = DataReport.read(tmp_path / "run" / "data")
    assert report is not None and [Path(file.path).name for file in report.files] == [name]


def test_a_run_goes_on_in_another_place_without_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped, moved, renamed, its sources deleted, resumed from another folder: the weights of an undisturbed run. Broken
    variant: a validation that reads the file again."""
    write_tsv(tmp_path / "pairs.tsv", rows(120))
    undisturbed = runs.train(recipe(tmp_path), tmp_path / "undisturbed")

    class StopAt(Exception):
        pass

    real = runs.Session.save

    def save_and_stop(self: Any) -> None:
        real(self)
        if self.trainer.progress.step == 2:
            raise StopAt

    with monkeypatch.context() as patch:
        patch.setattr(runs.Session, "save", save_and_stop)
        with pytest.raises(StopAt):
            runs.train(recipe(tmp_path), tmp_path / "first")
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "first", tmp_path / "elsewhere" / "renamed")
    (tmp_path / "pairs.tsv").unlink()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = runs.resume(Path("renamed"))
    assert run is not None
    ours, theirs = (folder.load_model().state_dict() for folder in (run, undisturbed))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    scores = evaluate_run(Path("renamed"), split="test", device="cpu")
    assert scores.examples > 3 and "bleu" in scores


def test_a_source_that_changed_is_told_at_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the run goes on with what it read. A file that was only touched is the same file."""
    path = write_tsv(tmp_path / "pairs.tsv", rows(120))
    run = runs.train(recipe(tmp_path), tmp_path / "run")
    report = DataReport.read(run.path / "data")
    assert report is not None and list(report.changed_files()) == []
    os.utime(path, (1, 1))
    assert list(report.changed_files()) == []
    text = path.read_text()
    path.write_text(text.replace("one", "eno"))
    plain = recipe(tmp_path)
    longer = replace(plain, train=replace(plain.train, steps=8))
    capsys.readouterr()
    assert runs.resume(run.path, longer, accept_changes=True) is not None
    assert "pairs.tsv has changed since this run was prepared" in capsys.readouterr().err
    assert ("eno 0", "0 one") not in list(run_examples(longer.data, "train", run.path / "data"))


def test_paths_belong_to_the_folder_of_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From anywhere; a list of files, too; what a command line says is meant from where one stands."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "mine.toml").write_text(
        '[data]\ntrain = ["a.tsv", {path = "sub/b.tsv", weight = 2, tag = "<bt>"}]\nval = "v.tsv"\n'
    )
    monkeypatch.chdir(tmp_path)
    found = read_recipe(str(Path("project") / "mine.toml")).data
    assert isinstance(found.train, tuple)
    assert [file.path for file in found.train] == [str(project / "a.tsv"), str(project / "sub/b.tsv")]
    assert found.train[1].weight == 2 and found.train[1].tag == "<bt>" and found.val == str(project / "v.tsv")
    assert Recipe.from_dict(Recipe(data=found).to_dict()).data == found
    assert read_recipe("project/mine.toml", ["data.val=v.tsv"]).data.val == "v.tsv"


def test_a_run_has_what_it_learned_from_as_text(tmp_path: Path) -> None:
    """All examples, each in one split, and listed with checksums."""
    pairs = rows(200)
    write_tsv(tmp_path / "pairs.tsv", [*pairs, ("empty", "")])
    prepare(recipe(tmp_path), tmp_path / "run")
    data = tmp_path / "run" / "data"
    assert stored_splits(data) == ("train", "val", "test")
    everything = [pair for split in stored_splits(data) for pair in run_examples(recipe(tmp_path).data, split, data)]
    assert sorted(everything) == sorted(pairs)
    report = DataReport.read(data)
    assert report is not None and sum(report.examples.values()) == 200 and report.empty == {"train": 1}
    run = RunFolder.create(tmp_path / "listed", recipe(tmp_path), "0")
    prepare(recipe(tmp_path), run.path)
    assert {"data/train.examples.gz", "data/val.examples.gz", "data/report.json"} <= set(run.prepared_files())


def test_examples_that_are_too_long_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Broken variant: they vanish."""
    write_tsv(tmp_path / "pairs.tsv", [*rows(120), *((f"{i} " * 30, "long") for i in range(30))])
    runs.train(recipe(tmp_path), tmp_path / "run")
    said = capsys.readouterr().err
    assert "have more than model.block_size=32 tokens and are left out" in said and "train examples" in said


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_run_that_was_kept_opens_answers_and_goes_on(split: str, tmp_path: Path) -> None:
    """A run as it is written today, whose sources are long gone: later versions are held to it."""
    path = tmp_path / "run"
    shutil.copytree(Path(__file__).parents[1] / "fixtures" / "run-with-examples", path)
    examples = list(run_examples(RunFolder(path).recipe.data, "val", path / "data"))
    assert len(examples) == 16 and load(path, device="cpu").translate([examples[0][0]])
    scores = evaluate_run(path, split=split, device="cpu")
    assert scores.examples == {"val": 16, "test": 17}[split] and 4 < scores["loss"] < 6
    recipe = RunFolder(path).recipe
    longer = replace(recipe, train=replace(recipe.train, steps=6))
    run = runs.resume(path, longer, accept_changes=True)
    assert run is not None and run.finished() == 6
