"""Tables as people have them: columns with names, features in a third column, encodings of a spreadsheet, single words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import DataConfig
from glassformer.data.cleaning.rules import fix_quotes
from glassformer.data.doctor import check_config, fields_in_words
from glassformer.data.doctor.facts import first_remarks
from glassformer.data.doctor.roles import arrange, pairs_to_clean
from glassformer.data.files import probable
from glassformer.data.first_recipe import first_recipe
from glassformer.data.prepare import read_once
from glassformer.data.sources import open_split
from glassformer.errors import ConfigError, UserError
from glassformer.files.user_data import UserFile

PAIRS = [(f"Good day, Anna {i}.", f"Guten Tag, Anna {i}.") for i in range(40)]


def table(
    path: Path, rows: list[list[str]], *, delimiter: str = ",", encoding: str = "utf-8", mark: bytes = b""
) -> Path:
    """A file as a spreadsheet saves it."""
    text = "\r\n".join(
        delimiter.join(f'"{cell}"' if delimiter in cell or "\n" in cell else cell for cell in row) for row in rows
    )
    path.write_bytes(mark + (text + "\r\n").encode(encoding))
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")],
)
def test_two_columns_of_text_are_pairs(delimiter: str, encoding: str, mark: bytes, tmp_path: Path) -> None:
    """Caught: a table taken for a text, a number or a mostly empty comment for a column of text, a byte order mark as part of the
    first name."""
    rows = [
        ["Nr", "英文", "German", "Comment"],
        *([str(i), f"{a}\n!", b, "?" * (i == 3)] for i, (a, b) in enumerate(PAIRS)),
    ]
    path = table(tmp_path / "excel.csv", rows, delimiter=delimiter, encoding=encoding, mark=mark)
    config = arrange([path], None, {})
    assert (config.task, config.source_field, config.target_field) == ("pairs", "英文", "German")
    assert "data.source_field=英文 data.target_field=German" in fields_in_words(config)
    read = list(
        open_split(DataConfig(train=str(path), source_field="英文", target_field="German", val_fraction=0), "train")
    )
    assert read == [(f"{a}\n!", b) for a, b in PAIRS]
    assert pairs_to_clean([path], {}).source_field == "英文"
    made = first_recipe([path])
    assert made.values["data"]["source_field"] == "英文" and "data.target_field=German" in made.chosen


def test_columns_that_cannot_be_told_apart_are_listed_with_the_command(tmp_path: Path) -> None:
    """Caught: the first two taken in silence; a command that does not help."""
    path = table(
        tmp_path / "many.csv",
        [["Nr", "English", "German", "By whom"], *([str(i), a, b, "Anna"] for i, (a, b) in enumerate(PAIRS))],
    )
    for ask in (lambda: arrange([path], None, {}), lambda: pairs_to_clean([path], {})):
        with pytest.raises(
            UserError,
            match=r"Nr, English, German, By whom; .*: data.task=pairs data.source_field=English data.target_field=German",
        ):
            ask()
    config = arrange([path], None, {"source_field": "English", "target_field": "By whom"})
    assert config.task == "pairs" and "data.target_field='By whom'" in fields_in_words(config)


@pytest.mark.parametrize(
    ("record", "given", "task"),
    [
        ({"source": "a b", "target": "c d", "by": "Anna"}, {}, "pairs"),
        ({"translation": {"en": "a b", "de": "c d"}}, {}, "pairs"),
        ({"text": "a b", "title": "c d"}, {}, "text"),
        ({"id": 3, "prose": "a b"}, {}, "text"),
        ({"review": "a b", "label": "good"}, {"label_field": "label", "text_field": "review"}, "classify"),
    ],
)
def test_what_a_table_is_follows_from_its_fields(
    record: dict[str, Any], given: dict[str, str], task: str, tmp_path: Path
) -> None:
    """Caught: names that are already usual asked for; a field that was named left aside."""
    (tmp_path / "some.jsonl").write_text((json.dumps(record) + "\n") * 30)
    config = arrange([tmp_path / "some.jsonl"], None, given)
    assert config.task == task
    assert len(list(open_split(replace(config, val_fraction=0), "train"))) == 30


def test_fields_that_are_not_there_are_named_once(tmp_path: Path) -> None:
    """Caught: two complaints a line; a count of more lines than there are."""
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in PAIRS))
    findings = [
        own for own in check_config(DataConfig(train=str(tmp_path / "p.jsonl"))).findings if own.kind == "field"
    ]
    assert [own.count for own in findings] == [40] and findings[0].lines == (1, 2, 3, 4, 5)
    said = "there is no field 'source' or 'target'; there are en, de: data.source_field=en data.target_field=de (all 40 lines)"
    assert findings[0].message.endswith(said)


FORMS = [
    ("sordutater", "sordutates", "V;PRS;2;SG"),
    ("sordutater", "sordutat", "V;PST"),
    ("auto", "autos", "N; PL"),
] * 10


def test_features_stand_before_the_source(tmp_path: Path) -> None:
    """Of a column and of a field. Caught: a column dropped, or learned with its semicolons; a remark on a column that is read."""
    wanted = [
        ("<V> <PRS> <2> <SG> sordutater", "sordutates"),
        ("<V> <PST> sordutater", "sordutat"),
        ("<N> <PL> auto", "autos"),
    ]
    (tmp_path / "f.tsv").write_text("".join("\t".join(own) + "\n" for own in FORMS))
    (tmp_path / "f.jsonl").write_text(
        "".join(json.dumps(dict(zip(("source", "target", "tags"), own, strict=True))) + "\n" for own in FORMS)
    )
    for name, features in (("f.tsv", "3"), ("f.jsonl", "tags")):
        config = DataConfig(train=str(tmp_path / name), features_field=features, val_fraction=0)
        assert list(open_split(config, "train")) == wanted * 10
        assert not first_remarks(config)
    with pytest.raises(UserError, match=r"only 3 columns; data.features_field=4 is not there"):
        list(open_split(DataConfig(train=str(tmp_path / "f.tsv"), features_field="4"), "train"))
    with pytest.raises(UserError, match="of a TSV it is a number"):
        list(open_split(DataConfig(train=str(tmp_path / "f.tsv"), features_field="tags"), "train"))
    with pytest.raises(ConfigError, match="features_field"):
        DataConfig(swap=True, features_field="3")


def test_a_third_column_is_never_dropped_in_silence(tmp_path: Path) -> None:
    """By init, check and train alike. Caught: nothing said where all lines have it."""
    (tmp_path / "f.tsv").write_text("".join("\t".join((f"{i} {a}", b, c)) + "\n" for i, (a, b, c) in enumerate(FORMS)))
    config = DataConfig(train=str(tmp_path / "f.tsv"), val_fraction=0.2)
    said = "30 of 30 lines have more than two columns; only the first two are read (data.features_field=3 puts"
    assert first_remarks(config)[0].startswith(said)
    assert any(own.message.startswith(said) for own in check_config(config).findings)
    assert any(note.startswith(said) for note in read_once(config, tmp_path / "run").notes())


@pytest.mark.parametrize(
    ("names", "told"), [("English\tGerman", True), ("原文\t译文", True), ("lemma\tForm", True), ("yes\tja", False)]
)
def test_names_of_columns_in_a_tsv_are_told(names: str, told: bool, tmp_path: Path) -> None:
    """Caught: a first line learned as a pair without a word; a word list found to have one."""
    (tmp_path / "h.tsv").write_text(names + "\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    config = DataConfig(train=str(tmp_path / "h.tsv"))
    assert any(own.kind == "header" for own in check_config(config).findings) == told
    assert any("names of the columns" in note for note in read_once(config, tmp_path / "run").notes()) == told
    assert bool(first_remarks(config)) == told


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_read_and_said(encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Caught: blocks cut inside a character; a second reading that begins with the raw bytes; a size in the wrong bytes."""
    text = "ja\tyes, 😀\n" * 70_000
    path = tmp_path / "u.tsv"
    path.write_bytes((b"\xfe\xff" if encoding.endswith("be") else b"") + text.encode(encoding))
    with UserFile(path) as file:
        assert file.content_size() == len(text.encode())
        assert b"".join(iter(lambda: file.read(1000), b"")) == text.encode()
        file.rewind()
        assert file.read(3) == b"ja\t" and file.facts().size == path.stat().st_size
    assert next(iter(open_split(DataConfig(train=str(path)), "train"))) == ("ja", "yes, 😀")
    assert capsys.readouterr().err.count("u.tsv is read as UTF-16, by its byte order mark") == 1


def test_an_encoding_is_guessed_for_the_command() -> None:
    assert probable("schön".encode("cp1252")) == "cp1252" and probable("早上好".encode("gb18030")) == "gb18030"


def test_quotation_marks_around_one_side_are_found_and_taken_off(tmp_path: Path) -> None:
    """Caught: quoted speech of both sides, or of a part of a sentence, without its marks."""
    assert fix_quotes('"He said ""no""."', "Er sagte nein.") == ('He said "no".', "Er sagte nein.")
    assert fix_quotes("No.", '"Nein."') == ("No.", "Nein.")
    for pair in (('"No."', "„Nein.“"), ('"No," he said, "no."', "Nein"), ('"', "x"), ("No.", "Nein.")):
        assert fix_quotes(*pair) == pair
    (tmp_path / "q.tsv").write_text(
        "".join(f'"{a}"\t{b}\n' if i % 4 == 0 else f"{a}\t{b}\n" for i, (a, b) in enumerate(PAIRS))
    )
    (found,) = [
        own for own in check_config(DataConfig(train=str(tmp_path / "q.tsv"))).findings if "quotation" in own.kind
    ]
    assert (found.level, found.count, found.lines[:2]) == ("warning", 10, (1, 5))
