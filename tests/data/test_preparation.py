"""From text to tokens: tokenizers that know the training split alone, each kind of data, and how much is read at once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from glassformer import runs
from glassformer.api import load
from glassformer.data.encoding import chunks, open_files
from glassformer.data.prepare import prepare
from glassformer.data.report import DataReport
from glassformer.data.store import run_examples
from glassformer.data.tokens import TokenFile
from glassformer.errors import ConfigError
from glassformer.nn.loss import IGNORE
from glassformer.runs.folder import RunFolder
from glassformer.screen import Progress, quietly
from glassformer.text.tokenizer import EOS, UNK, Tokenizer
from glassformer.text.tokenizers import Tokenizers
from tests.number_pairs import GERMAN, pairs, recipe, write_tsv
from tests.programs import run_program

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tsv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write_tsv(folder / "train.tsv", pairs(120))
    return folder


# Tokenizers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separate", [False, True])
def test_tokenizers_learn_from_the_training_split_alone(tmp_path: Path, separate: bool) -> None:
    """A word that only validation knows is unknown there. Broken variant: one pass over everything."""
    write_tsv(tmp_path / "train.tsv", pairs(30))
    write_tsv(tmp_path / "val.tsv", [("eins hundert", "one hundred"), ("zwei", "two")])
    settings = recipe(tmp_path, data={"val": "val.tsv", "val_fraction": 0.0, "separate_vocabularies": separate})
    (tmp_path / "run").mkdir()
    texts = prepare(settings, tmp_path / "run")
    for tokenizer, known, unknown in ((texts.source, "eins", "hundert"), (texts.target, "one", "hundred")):
        assert tokenizer.encode(unknown) == [UNK] and tokenizer.encode(known) != [UNK]
    assert (texts.source.encode("one") == [UNK]) == separate
    files = open_files(settings.data, "val", tmp_path / "run" / "data")
    assert files["source"][0].tolist()[1] == files["target"][0].tolist()[1] == UNK
    loaded = Tokenizers.load(tmp_path / "run")
    assert loaded.shared != separate and loaded.source.encode("eins zwei") == texts.source.encode("eins zwei")
    assert (tmp_path / "run" / "tokenizer.json").exists() != separate


def test_what_is_held_out_of_one_file_is_not_seen_by_its_tokenizer(tmp_path: Path) -> None:
    rows = [(f"quelle{i} wort", f"ziel{i} word") for i in range(200)]
    write_tsv(tmp_path / "train.tsv", rows)
    settings = recipe(tmp_path, data={"val_fraction": 0.2})
    (tmp_path / "run").mkdir()
    texts = prepare(settings, tmp_path / "run")
    known = [texts.source.encode(f"quelle{i}") != [UNK] for i in range(200)]
    assert 90 < sum(known) < 150, "about 60% are training"
    val = open_files(settings.data, "val", tmp_path / "run" / "data")["source"]
    assert len(val) > 20 and all(val[i][0] == UNK for i in range(len(val)))


def test_a_finished_tokenizer_is_taken_as_it_is(tsv: Path, tmp_path: Path) -> None:
    given = Tokenizer.train("char", ["abcdefghijklmnopqrstuvwxyzüß "], 100)
    given.save(tmp_path / "mine.json")
    run = runs.train(
        recipe(tsv, data={"tokenizer_file": str(tmp_path / "mine.json")}, model={"block_size": 64}), tmp_path / "run"
    )
    assert run.tokenizers.target.kind == "char" and run.tokenizers.target.vocab_size == given.vocab_size


# Each kind of data, end to end ------------------------------------------------------------------------------------------


def make_data(kind: str, folder: Path) -> dict[str, Any]:
    """Writes a small data set and gives the settings that name it."""
    rows = pairs(90)
    if kind == "two files":
        for name, side in (("train.de", 0), ("train.en", 1)):
            (folder / name).write_text("".join(row[side] + "\n" for row in rows), encoding="utf-8")
        return {"train": "train.de", "train_target": "train.en"}
    if kind == "tsv.gz":
        with gzip.open(folder / "train.tsv.gz", "wt", encoding="utf-8") as file:
            file.writelines(f"{a}\t{b}\n" for a, b in rows)
        return {"train": "train.tsv.gz"}
    if kind == "jsonl":
        records = (json.dumps({"de": a, "en": b}, ensure_ascii=False) + "\n" for a, b in rows)
        (folder / "train.jsonl").write_text("".join(records), encoding="utf-8")
        return {"train": "train.jsonl", "source_field": "de", "target_field": "en"}
    if kind == "labelled lines":
        mixed = [(side, row[side]) for row in rows for side in (0, 1)]
        (folder / "train.tsv").write_text(
            "".join(f"{('de', 'en')[s]}\t{text}\n" for s, text in mixed), encoding="utf-8"
        )
        return {"task": "classify"}
    if kind == "tagged":
        sentences = ["".join(f"{w}\t{'LOW' if w in GERMAN[:5] else 'HIGH'}\n" for w in a.split()) for a, _ in rows]
        (folder / "train.tsv").write_text("\n".join(sentences), encoding="utf-8")
        return {"task": "tag"}
    assert kind == "text"
    (folder / "train.txt").write_text("".join(f"{a} = {b}\n" for a, b in rows), encoding="utf-8")
    return {"train": "train.txt", "task": "text", "val_fraction": 0.2}


KINDS = {
    "two files": ({}, {"bleu", "exact_match"}),
    "tsv.gz": ({}, {"bleu", "exact_match"}),
    "jsonl": ({}, {"bleu", "exact_match"}),
    "labelled lines": ({"family": "bert", "head": "classify"}, {"accuracy", "f1"}),
    "tagged": ({"family": "bert", "head": "tag"}, {"accuracy", "f1"}),
    "text": ({"family": "gpt"}, {"perplexity"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_data_trains_end_to_end(kind: str, tmp_path: Path) -> None:
    model, scores = KINDS[kind]
    data = make_data(kind, tmp_path) | {"val_fraction": 0.2}
    run = runs.train(
        recipe(tmp_path, model=model, data=data, steps=16, validate_every=8, learning_rate=1e-2), tmp_path / "r"
    )
    found = [r for r in run.metrics() if "val_loss" in r]
    assert [r["step"] for r in found] == [8, 16] and found[1]["val_loss"] < found[0]["val_loss"]
    assert {f"val_{s}" for s in scores} <= found[0].keys()
    loaded = load(run.path)
    if kind == "labelled lines":
        assert run.tokenizers.labels == ["de", "en"]
        assert loaded.classify("eins zwei") in ("de", "en")
    elif kind == "tagged":
        assert run.tokenizers.labels == ["HIGH", "LOW"]
        assert [t.word for t in loaded.tag([["eins", "zehn"]])[0]] == ["eins", "zehn"]
    elif kind == "text":
        assert isinstance(loaded.generate("eins", max_new_tokens=5), str)
    else:
        assert isinstance(loaded.translate(["eins zwei"])[0], str)


def test_classes_and_tags_are_learned(tmp_path: Path) -> None:
    """Which of two languages, and which half of the numbers: both are there to be read off a word."""
    for kind, model in (("labelled lines", "classify"), ("tagged", "tag")):
        folder = tmp_path / model
        folder.mkdir()
        data = make_data(kind, folder) | {"val_fraction": 0.2}
        settings = recipe(
            folder, model={"family": "bert", "head": model}, data=data, steps=60, validate_every=60, learning_rate=2e-2
        )
        last = runs.train(settings, folder / "run").metrics()[-1]
        assert last["val_accuracy"] > 95 and last["val_f1"] > 95, (kind, last)


def test_pairs_as_prompt_and_answer(tsv: Path, tmp_path: Path) -> None:
    settings = recipe(tsv, model={"family": "gpt"}, data={"prompt_answer": True}, steps=16, learning_rate=1e-2)
    run = runs.train(settings, tmp_path / "run")
    losses = [r["val_loss"] for r in run.metrics() if "val_loss" in r]
    assert losses[-1] < losses[0]
    with pytest.raises(ConfigError, match=r"data\.prompt_answer=true"):
        runs.train(recipe(tsv, model={"family": "gpt"}), tmp_path / "without")
    assert not RunFolder.is_run(tmp_path / "without"), "nothing that looks like a run"


# Preparing --------------------------------------------------------------------------------------------------------------


def test_tags_stand_on_first_pieces(tmp_path: Path) -> None:
    """Broken variant: a tag on every piece of a word, which would count long words more often."""
    (tmp_path / "train.tsv").write_text("ab\tX\nc\tY\n\nc\tX\nabc\tY\n", encoding="utf-8")
    settings = recipe(tmp_path, data={"task": "tag", "tokenizer": "char", "val": "train.tsv", "test": "train.tsv"})
    (tmp_path / "run").mkdir()
    texts = prepare(settings, tmp_path / "run")
    files = open_files(settings.data, "train", tmp_path / "run" / "data")
    assert [texts.target.decode(files["text"][i].tolist()) for i in range(2)] == ["abc", "cabc"]
    assert files["labels"][0].tolist() == [0, IGNORE, 1] and files["labels"][1].tolist() == [0, 1, IGNORE, IGNORE]


def test_a_text_is_its_documents_with_an_end_each(tmp_path: Path) -> None:
    for name, text in (("a.txt", "one two"), ("b.txt", "three"), ("c.txt", "two two")):
        (tmp_path / "texts" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    settings = recipe(tmp_path, data={"train": "texts", "task": "text", "tokenizer": "char", "val": "texts"})
    (tmp_path / "run").mkdir()
    texts = prepare(settings, tmp_path / "run")
    file = open_files(settings.data, "train", tmp_path / "run" / "data")["text"]
    decoded = [texts.target.decode(file[i].tolist()) for i in range(len(file))]
    assert decoded == ["one two", "three", "two two"] and all(file[i][-1] == EOS for i in range(3))


def test_chunks_keep_everything_in_order_and_within_bounds() -> None:
    """Broken variants: the last chunk lost; a bound on the number alone, while texts may be of any length."""
    texts = ["x" * 1_500_000, "", "y" * 3_000_000, *["z"] * 4500]
    made = list(chunks(texts, most=2000))
    assert [t for chunk in made for t in chunk] == texts
    assert all(sum(map(len, chunk[:-1])) < 2_000_000 and len(chunk) <= 2000 for chunk in made)
    assert len(made) == 4


def test_only_the_beginning_is_read_where_asked(tsv: Path, tmp_path: Path) -> None:
    """Broken variant: a look that reads all of a large corpus, or other examples than the first."""
    for folder, characters in (("whole", None), ("some", 300)):
        prepare(recipe(tsv), tmp_path / folder, characters)
    some, whole = (
        list(run_examples(recipe(tsv).data, "train", tmp_path / name / "data")) for name in ("some", "whole")
    )
    assert 3 < len(some) < 30 and whole[: len(some)] == some
    reports = [DataReport.read(tmp_path / name / "data") for name in ("some", "whole")]
    assert [report is not None and report.cut_short for report in reports] == [True, False]


@pytest.mark.parametrize("quiet", [False, True])
def test_how_far_it_is_can_be_seen_unless_it_is_to_be_quiet(
    quiet: bool, tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken variant: a display made in the thread in which the library takes its texts, where nobody asked for quiet."""
    monkeypatch.setenv("GLASSFORMER_CACHE", "off")
    monkeypatch.setattr(Progress, "EVERY", -1.0)
    write_tsv(tmp_path / "train.tsv", pairs(1500))
    with quietly(quiet):
        prepare(recipe(tmp_path, data={"tokenizer": "bpe", "vocab_size": 300}), tmp_path / "run")
    said = capsys.readouterr().err
    assert ("reading" in said and "learning the vocabulary" in said and "encoding train" in said) != quiet
    assert not (quiet and said)


def test_preparing_a_large_text_takes_little_memory(tmp_path: Path) -> None:
    """60 MB of text in one file, by the character: what is resident and is no page of a mapped file grows by less than two
    bytes a character would, whatever the size of the file. Broken variant: a list of all ids, 8 bytes each and more."""
    Tokenizer.train("char", ["".join(map(chr, range(32, 127))) + "\n"], 200).save(tmp_path / "mine.json")
    line = "The quick brown fox jumps over the lazy dog, and 1234567890 times more.\n"
    (tmp_path / "text.txt").write_text(line * (60_000_000 // len(line)), encoding="utf-8")
    grown = int(run_program("memory_of_preparing", tmp_path, timeout=300))
    assert TokenFile.open(tmp_path / "data" / "train.text").tokens.size > 59_000_000
    assert grown < 120_000_000, f"grew by {grown / 1e6:.0f} MB"
