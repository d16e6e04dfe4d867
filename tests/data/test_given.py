"""Data as people have it: formats, several files with weights and tags, lines to skip, data in memory; splits that do not leak;
files made to do harm."""

from __future__ import annotations

import gzip
import json
import os
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import DataConfig, Recipe
from glassformer.data.encoding import open_files
from glassformer.data.files import Document
from glassformer.data.prepare import prepare
from glassformer.data.report import DataReport
from glassformer.data.sources import DataReader, open_split
from glassformer.data.splits import held_out_files, normalized
from glassformer.data.store import run_examples
from glassformer.errors import ConfigError, UserError
from glassformer.files import user_data

PAIRS = [(f"Source {i}", f"target {i % 40}") for i in range(400)]


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return str(path)


def splits_of(config: DataConfig, given: Any = None) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"train": [], "val": [], "test": []}
    for one in DataReader(config, given):
        found[one.split] += [one.example] * one.times
    return found


# Formats ----------------------------------------------------------------------------------------------------------------

RECORDS = [{"en": a, "fr": b} for a, b in PAIRS]
COLUMNS = {"en": [a for a, _ in PAIRS], "fr": [b for _, b in PAIRS]}
FORMATS = {
    "a.csv": "en,fr,licence\n" + "".join(f'"{a}",{b},CC0\n' for a, b in PAIRS),
    "b.csv": "\ufeffen;fr\r\n" + "".join(f"{a};{b}\r\n" for a, b in PAIRS),
    "c.csv": "en\tfr\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS),
    "d.json": json.dumps(RECORDS),
    "e.json": json.dumps({"version": 1, "data": RECORDS}, indent=1),
    "f.json": json.dumps(COLUMNS),
    "g.json": "".join(json.dumps(record) + "\n" for record in RECORDS),
    "h.jsonl": "".join(json.dumps({"pair": record}) + "\n" for record in RECORDS),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_holds_the_same_examples(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FORMATS[name], encoding="utf-8", newline="")
    inside = "pair." if name.startswith("h") else ""
    config = DataConfig(train=str(tmp_path / name), source_field=f"{inside}en", target_field=f"{inside}fr")
    reference = DataConfig(train=write_tsv(tmp_path / "a.tsv", PAIRS))
    assert splits_of(config) == splits_of(reference)


def test_a_quoted_field_may_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('source,target\n"one, ""two""\nthree",vier\n', encoding="utf-8")
    config = DataConfig(train=str(tmp_path / "a.csv"), val_fraction=0.0)
    assert list(open_split(config, "train")) == [('one, "two"\nthree', "vier")]
    with pytest.raises(UserError, match=r"there is no field 'en'; there are source, target"):
        list(open_split(DataConfig(train=str(tmp_path / "a.csv"), source_field="en", val_fraction=0.0), "train"))


def test_data_in_memory_is_the_data_of_a_file(tmp_path: Path) -> None:
    """Lists of pairs, records, pandas and polars tables, and splits by name."""
    config = DataConfig()
    reference = splits_of(DataConfig(train=write_tsv(tmp_path / "a.tsv", PAIRS)))
    records = [{"source": a, "target": b} for a, b in PAIRS]
    assert splits_of(config, PAIRS) == splits_of(config, records) == reference
    for library in ("pandas", "polars"):
        table = pytest.importorskip(library).DataFrame(records)
        assert splits_of(config, table) == reference
    given = splits_of(config, {"train": PAIRS, "validation": PAIRS[:5], "test": PAIRS[5:7]})
    assert given == {"train": PAIRS, "val": PAIRS[:5], "test": PAIRS[5:7]}
    assert splits_of(DataConfig(task="text"), {"train": ["a text"], "val": ["b"]})["train"] == [
        Document("a text", True)
    ]
    with pytest.raises(UserError, match=r"the data in memory, line 2: an example must be \(source, target\)"):
        splits_of(config, [("a", "b"), "c"])
    with pytest.raises(UserError, match="must be a list of examples or a table, not int"):
        splits_of(config, 7)


# Several files ----------------------------------------------------------------------------------------------------------


def test_files_with_weights_and_tags(tmp_path: Path) -> None:
    """What is held out comes from the files without a tag; what would give it away in the others is left out. A weight is how
    often an example is learned. Broken variants: synthetic lines in val; a held-out source in train under a tag."""
    genuine = write_tsv(tmp_path / "a.tsv", PAIRS)
    synthetic = write_tsv(tmp_path / "b.tsv", [(a.upper(), "made up") for a, _ in PAIRS])
    files = [genuine, {"path": synthetic, "weight": 2, "tag": "<bt>"}]
    data = Recipe.from_dict({"data": {"train": files, "val_fraction": 0.1}}).data
    found = splits_of(data)
    assert not any("<bt>" in a for split in ("val", "test") for a, _ in found[split])
    held = {normalized(a) for split in ("val", "test") for a, _ in found[split]}
    tagged = Counter(a for a, _ in found["train"] if a.startswith("<bt> "))
    assert set(tagged.values()) == {2} and len(tagged) == 400 - len(held)
    assert held.isdisjoint(normalized(a.removeprefix("<bt> ")) for a, _ in found["train"])
    half = Recipe.from_dict({"data": {"train": [{"path": genuine, "weight": 0.5}], "val_fraction": 0.0}}).data
    assert 150 < len(splits_of(half)["train"]) < 250
    with pytest.raises(ConfigError, match=r"there is no 'wieght' in an entry of data\.train"):
        Recipe.from_dict({"data": {"train": [{"path": "a", "wieght": 2}]}})


def test_a_weight_is_learned_and_measured_once(tmp_path: Path) -> None:
    """Token files of train hold an example as often as its weight says; the examples themselves are there once."""
    files = [{"path": write_tsv(tmp_path / "a.tsv", PAIRS), "weight": 3}]
    recipe = Recipe.from_dict({"data": {"train": files, "tokenizer": "char"}})
    prepare(recipe, tmp_path / "run")
    train = list(run_examples(recipe.data, "train", tmp_path / "run" / "data"))
    assert len(open_files(recipe.data, "train", tmp_path / "run" / "data")["source"]) == 3 * len(train)
    assert recipe.data.multiplied


# Lines to skip ----------------------------------------------------------------------------------------------------------


def test_bad_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    good = "".join(f"{a}\t{b}\n" for a, b in PAIRS).encode()
    (tmp_path / "a.tsv").write_bytes(b"no tab here\n" + good + b"\xff\tb\n")
    with pytest.raises(UserError, match="line 1: only one column"):
        splits_of(DataConfig(train=str(tmp_path / "a.tsv")))
    recipe = Recipe.from_dict({"data": {"train": str(tmp_path / "a.tsv"), "on_error": "skip", "tokenizer": "char"}})
    prepare(recipe, tmp_path / "run")
    report = DataReport.read(tmp_path / "run" / "data")
    assert report is not None and report.skipped == 2 and sum(report.examples.values()) == 400
    assert "line 1: only one column" in report.first_skipped[0] and "not valid UTF-8" in report.first_skipped[1]
    assert "2 lines cannot be used and are skipped" in next(report.notes())


@pytest.mark.parametrize(("rows", "told"), [(2, True), (400, False)])
def test_a_third_column_is_told_where_it_is_the_exception(rows: int, told: bool, tmp_path: Path) -> None:
    """A tab inside a sentence cuts it short. Broken variants: nothing said; said of files that have names or numbers there in
    each line."""
    lines = [f"{a}\t{b}" + "\tand on" * (number < rows) for number, (a, b) in enumerate(PAIRS)]
    (tmp_path / "a.tsv").write_text("\n".join(lines), encoding="utf-8")
    prepare(Recipe.from_dict({"data": {"train": str(tmp_path / "a.tsv"), "tokenizer": "char"}}), tmp_path / "run")
    report = DataReport.read(tmp_path / "run" / "data")
    said = "2 of 400 lines have more than two columns; only the first two are read"
    assert report is not None and (said in list(report.notes())) == told


def test_two_aligned_files_stay_aligned_around_a_skipped_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n\xff\nthree\n")
    (tmp_path / "b").write_bytes(b"eins\nzwei\ndrei\n")
    config = DataConfig(train=str(tmp_path / "a"), train_target=str(tmp_path / "b"), on_error="skip", val_fraction=0.0)
    assert list(open_split(config, "train")) == [("one", "eins"), ("three", "drei")]


# Leaks ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"lowercase": True}, {"swap": True}, {"both_ways": True}])
def test_nothing_that_is_held_out_is_learned(settings: dict[str, Any], tmp_path: Path) -> None:
    """By what the model reads: case, double blanks, the other direction. Broken variant: a hash of the source as it stands in
    the file, which lets 141 of 144 held-out lines into training once they are lower-cased."""
    variants = [*PAIRS, *((a.upper(), b) for a, b in PAIRS), *((a.replace(" ", "  "), b + " ") for a, b in PAIRS)]
    train = write_tsv(tmp_path / "a.tsv", variants)
    recipe = Recipe.from_dict({"data": {"train": train, "val_fraction": 0.1, "tokenizer": "char", **settings}})
    prepare(recipe, tmp_path / "run")
    data = tmp_path / "run" / "data"
    files = open_files(recipe.data, "train", data)
    from glassformer.text.tokenizers import Tokenizers

    tokenizers = Tokenizers.load(tmp_path / "run")
    learned = {normalized(tokenizers.source.decode(files["source"][i].tolist())) for i in range(len(files["source"]))}
    held = [pair for split in ("val", "test") for pair in run_examples(recipe.data, split, data)]
    sides = (0, 1) if settings.get("both_ways") else (0,)
    assert len(held) > 20 and len(learned) > 20
    assert not learned & {normalized(pair[side]) for pair in held for side in sides}


def test_a_tiny_file_is_no_validation_split(tmp_path: Path) -> None:
    """Broken variant: one file of nine characters, chosen by the hash of its name."""
    sizes = {"a": 9, "b": 5000, "c": 5000, "d": 5000, "e": 700}
    for name in ("tiny", *sizes):
        size = sizes.get(name, 9)
        (tmp_path / f"{name}.txt").write_text("x" * (size - 1) + "\n")
    found = splits_of(DataConfig(task="text", train=str(tmp_path), val_fraction=0.05))
    val = sum(len(document.text) for document in found["val"])
    assert 350 <= val <= 1600
    two = [("a", Path("a"), 9), ("b", Path("b"), 100_000)]
    assert held_out_files(two, 0.05) == (set(), Path("b"))


def test_given_splits_that_stand_in_train_are_counted(tmp_path: Path) -> None:
    train, val = write_tsv(tmp_path / "a.tsv", PAIRS), write_tsv(tmp_path / "v.tsv", [PAIRS[3], ("new", "one")])
    recipe = Recipe.from_dict({"data": {"train": train, "val": val, "tokenizer": "char"}})
    prepare(recipe, tmp_path / "run")
    report = DataReport.read(tmp_path / "run" / "data")
    assert report is not None and report.in_train == {"val": 1} and "stand in val as well" in " ".join(report.notes())


# Harm -------------------------------------------------------------------------------------------------------------------


def zip_file(path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.tsv", "a\tb\n")


def torn_parquet(path: Path) -> None:
    path.write_bytes(b"PAR1" + os.urandom(200) + struct.pack("<i", 100) + b"PAR1")


HARM: dict[str, tuple[str, Any, str]] = {
    "zip": ("a.tsv", zip_file, "is a zip archive"),
    "device": ("/dev/zero", None, "is a device or a socket"),
    "pipe": ("a.tsv", os.mkfifo, "is a named pipe"),
    "deep": ("a.jsonl", lambda p: p.write_text("[" * 100_000 + "\n"), "nested too deeply"),
    "digits": ("a.jsonl", lambda p: p.write_text('{"source": ' + "7" * 5000 + "}\n"), "thousands of digits"),
    "parquet": ("a.parquet", torn_parquet, "not a readable Parquet file"),
    "torn": ("a.tsv.gz", lambda p: p.write_bytes(gzip.compress(b"a\tb\n" * 9999)[:-9]), "not a whole gzip file"),
    "disguised": ("a.tsv", lambda p: p.write_bytes(gzip.compress(b"a\tb\n")), "let its name end in .gz"),
    "utf16": ("a.tsv", lambda p: p.write_bytes("a\tb\n".encode("utf-16")[:-1]), "not valid UTF-8"),
    "folder": ("a.tsv", lambda p: p.mkdir(), "is a folder"),
    "nul": ("a.csv", lambda p: p.write_bytes(b"source,target\na\0,b\n"), "NUL"),
    "half": ("a.jsonl", lambda p: p.write_text('{"source": "\\ud800", "target": "b"}\n'), "half a character"),
}


@pytest.mark.parametrize("name", HARM)
def test_harm_is_one_sentence(name: str, tmp_path: Path) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    file, make, sentence = HARM[name]
    if make is not None:
        make(tmp_path / file)
    with pytest.raises(UserError, match=sentence) as caught:
        list(open_split(DataConfig(path=str(tmp_path), train=file, val_fraction=0.0), "train"))
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


def test_what_unpacks_without_end_and_lines_without_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_data, "EXPANSION_WATCHED_FROM", 1 << 20)
    monkeypatch.setattr(user_data, "LONGEST_LINE", 1 << 16)
    (tmp_path / "bomb.tsv.gz").write_bytes(gzip.compress((b"a" * 1000 + b"\tb\n") * (1 << 12)))
    (tmp_path / "endless.tsv").write_bytes(b"a" * (1 << 17))
    for name, sentence in (
        ("bomb.tsv.gz", "unpacks to more than 300 times"),
        ("endless.tsv", "has a line of more than"),
    ):
        with pytest.raises(UserError, match=sentence):
            list(open_split(DataConfig(train=str(tmp_path / name), val_fraction=0.0), "train"))


def test_a_pipe_of_the_shell_is_read_once() -> None:
    """`evaluate --source <(command)`: what the shell opened for us can be read, and only once."""
    reading, writing = os.pipe()
    os.write(writing, b"one\teins\ntwo\tzwei\n")
    os.close(writing)
    config = DataConfig(train=f"/dev/fd/{reading}", format="tsv", val_fraction=0.0)
    try:
        assert list(open_split(config, "train")) == [("one", "eins"), ("two", "zwei")]
    finally:
        os.close(reading)


def test_what_a_recipe_misses_is_named_with_the_command_that_gets_it() -> None:
    with pytest.raises(UserError, match="get it with: glassformer data get multi30k:en-de"):
        open_split(DataConfig(path="data/multi30k-en-de", train="train.tsv"), "train")
