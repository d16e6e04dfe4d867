"""Cleaning of pairs: which files are read and what is written. Nothing that a file holds is lost without a word."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from pathlib import Path

import pytest

from glassformer.cli.data import stem_of
from glassformer.cli.main import main
from glassformer.config import DataConfig
from glassformer.data.cleaning import clean, read_pairs
from glassformer.data.doctor.roles import pairs_to_clean
from glassformer.errors import UserError
from tests.commands import call
from tests.data.test_cleaning import lines_of, phrases, write

pytestmark = pytest.mark.slow


def test_further_columns_documents_and_repaired_pairs_are_kept(tmp_path: Path) -> None:
    """Broken variants: the first two columns alone; documents that run into each other where a pair was taken or a blank line
    stood; a line of nothing but a tab that nobody counts."""
    german = phrases("en-de", 60)
    rows = [f"{a}\t{b}\t{i}\tx" for i, (a, b) in enumerate(german[:6])]
    rows[2:2] = ["", "Same as before.\tSame as before.\tcopied", "", "\t"]
    rows[-1] = "R&amp;D is here.\tF&amp;E ist hier.\tlast"
    (tmp_path / "p.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    assert call("data", "clean", "p.tsv", "--out", "c.tsv", cwd=tmp_path).returncode == 0
    kept = [f"{a}\t{b}\t{i}\tx" for i, (a, b) in enumerate(german[:5])]
    assert lines_of(tmp_path / "c.tsv") == [*kept[:2], "", *kept[2:], "R&D is here.\tF&E ist hier.\tlast"]
    assert lines_of(tmp_path / "c.removed.tsv") == ["empty\t6\t\t", "copy\t4\tSame as before.\tSame as before.\tcopied"]
    assert lines_of(tmp_path / "c.repaired.tsv") == ["entities\t10\tR&amp;D is here.\tF&amp;E ist hier.\tlast"]


def test_no_pairs_before_or_after_is_a_sentence(tmp_path: Path) -> None:
    """And what the rules took is kept all the same."""
    for name, text, sentence in (
        ("none", "\n\n", "none.tsv holds no pairs"),
        ("all", "A b c.\tA b c.\n", "the rules left no pair"),
    ):
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
        said = call("data", "clean", f"{name}.tsv", "--out", f"{name}-out.tsv", cwd=tmp_path)
        assert said.returncode == 2 and sentence in said.stderr and not (tmp_path / f"{name}-out.tsv").exists()
    assert lines_of(tmp_path / "all-out.removed.tsv") == ["copy\t1\tA b c.\tA b c."]


def test_the_command_leaves_five_files_and_touches_no_other(tmp_path: Path) -> None:
    german = phrases("en-de", 60)
    noise = [("Is it 5?", "Ist es 6?"), ("This is the same.", "This is the same.")]
    write(tmp_path / "pairs.tsv", german[:50] + noise)
    said = call("data", "clean", "pairs.tsv", "--out", "clean.tsv", "--without", "numbers", cwd=tmp_path)
    assert said.returncode == 0 and "51 of 52 pairs are in clean.tsv" in said.stdout
    assert [tuple(line.split("\t")) for line in lines_of(tmp_path / "clean.tsv")] == [*german[:50], noise[0]]
    assert lines_of(tmp_path / "clean.removed.tsv") == ["copy\t52\tThis is the same.\tThis is the same."]
    facts = json.loads((tmp_path / "clean.report.json").read_text(encoding="utf-8"))
    assert (facts["read"], facts["kept"], facts["rules"]["copy"]["count"]) == (52, 51, 1)
    assert "numbers" not in facts["rules"]
    assert facts["rules"]["copy"]["examples"] == [["52", "This is the same.", "This is the same."]]
    (tmp_path / "clean.tsv").unlink()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert (
        call("data", "clean", "pairs.tsv", "--out", "clean.tsv", cwd=tmp_path).returncode == 2
    )  # others are in the way
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_without_the_extra_there_is_one_sentence_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pairs.tsv", [("a b", "c d")])
    monkeypatch.setitem(sys.modules, "py3langid", None)
    monkeypatch.setattr(sys, "argv", ["glassformer", "data", "clean", "pairs.tsv", "--out", "clean.tsv"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    said = capfd.readouterr().err
    assert (
        said.count("\n") == 1 and "cleaning needs py3langid; install it with: pip install" in said and "clean" in said
    )
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]


def test_a_line_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    """Broken variants: a line counted once for each of its fields; the line after a bad one taken for it."""
    good = "".join(f"{a}\t{b}\n" for a, b in phrases("en-de", 5)).encode()
    (tmp_path / "p.tsv").write_bytes(good + b"\xfcber\tabove\r\n\none column\n")
    cleaned = read_pairs(DataConfig(task="pairs", train=str(tmp_path / "p.tsv")))
    assert [one.line for one in cleaned.removed] == [6, 8]
    assert "not valid UTF-8" in cleaned.removed[0].target and "only one column" in cleaned.removed[1].target
    rows = b'source,target\n\xfc,x\na good one,ein guter\n"two\nlines",x,y\nanother one,noch einer\n'
    (tmp_path / "p.csv").write_bytes(rows)
    cleaned = read_pairs(DataConfig(task="pairs", train=str(tmp_path / "p.csv")))
    assert [one.line for one in cleaned.removed] == [2, 4] and cleaned.lines == [3, 6]
    records = ['{"source": "one two", "target": "eins zwei"}', '{"sourc": "x", "targe": "y"}', "{"]
    (tmp_path / "p.jsonl").write_text("\n".join(records))
    cleaned = read_pairs(DataConfig(task="pairs", train=str(tmp_path / "p.jsonl")))
    assert (cleaned.read, [one.line for one in cleaned.removed]) == (3, [2, 3])
    (tmp_path / "p.en").write_bytes(b"one\ntwo\xff\nthree four\n")
    (tmp_path / "p.de").write_bytes(b"eins\nzwei\ndrei vier\n")
    cleaned = read_pairs(pairs_to_clean([tmp_path / "p.en", tmp_path / "p.de"], {}))
    assert [one.line for one in cleaned.removed] == [2] and cleaned.lines == [1, 3]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        (
            "u.tsv",
            "ja\tyes\nnö\tno\n".encode("utf-16-le"),
            r"u\.tsv: UTF-16 without.*iconv -f utf-16le -t utf-8 u\.tsv",
        ),
        (
            "u.csv",
            b"en,de,by\na,b,c\nc,d,e\n",
            r"no pair of .*u\.csv.* no field 'source' or 'target'; there are en, de, by: data.source_field=en data",
        ),
        ("u.txt", b"a\nb\n", r"no pair of .*u\.txt can be read; .*line 1: only one column"),
        ("u.tsv", b"", r"u\.tsv holds no pairs"),
    ],
    ids=["UTF-16 without its mark", "other fields", "one column", "empty"],
)
def test_a_file_of_which_nothing_can_be_read_is_refused_with_the_reason(
    name: str, content: bytes, why: str, tmp_path: Path
) -> None:
    """Broken variants: the lines of UTF-16 whose bytes are UTF-8 kept without their NULs; twice as many lines as there are, all
    taken."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=why):
        clean(DataConfig(task="pairs", train=str(tmp_path / name)))


@pytest.mark.parametrize("name", ["val.tsv", "test.tsv", "train.dev.tsv"])
def test_pairs_are_cleaned_whatever_their_file_is_called(name: str, tmp_path: Path) -> None:
    """Broken variant: roles by names, so that there is no training data."""
    write(tmp_path / name, phrases("en-de", 5))
    assert len(clean(pairs_to_clean([tmp_path / name], {})).kept) == 5


def test_more_files_than_a_pair_of_aligned_ones_are_refused(tmp_path: Path) -> None:
    """Broken variant: the second file dropped without a word."""
    for name in ("a.tsv", "b.tsv"):
        write(tmp_path / name, phrases("en-de", 5))
    (tmp_path / "test.en").write_text("One two.\nThree.\n")
    (tmp_path / "val.de").write_text("Eins zwei.\nDrei.\n")
    files = [tmp_path / name for name in ("test.en", "val.de", "a.tsv", "b.tsv")]
    assert clean(pairs_to_clean(files[:2], {})).kept == [("One two.", "Eins zwei."), ("Three.", "Drei.")]
    for some in (files[2:], files[:3], files[1:3]):
        with pytest.raises(UserError, match="give one file of pairs, or two aligned ones"):
            pairs_to_clean(some, {})
    with pytest.raises(UserError, match=r"there is no file .*c\.tsv"):
        pairs_to_clean([tmp_path / "c.tsv"], {})


def test_a_pipe_is_refused() -> None:
    """Broken variant: lines that cannot be read and further columns, which a second reading fetches, lost without a word."""
    there, back = os.pipe()
    with os.fdopen(there), os.fdopen(back, "w"), pytest.raises(UserError, match="write it into a file first"):
        pairs_to_clean([Path(f"/dev/fd/{there}")], {})


def test_what_is_written_is_what_the_name_says(tmp_path: Path) -> None:
    """Broken variants: plain text under a name that ends in .gz; a TSV called CSV; the name of another file in the message."""
    write(tmp_path / "p.tsv", phrases("en-de", 5))
    assert call("data", "clean", "p.tsv", "--out", "c.tsv.gz", cwd=tmp_path).returncode == 0
    assert gzip.decompress((tmp_path / "c.tsv.gz").read_bytes()) == (tmp_path / "p.tsv").read_bytes()
    assert (tmp_path / "c.removed.tsv").exists()
    assert len(clean(pairs_to_clean([tmp_path / "c.tsv.gz"], {})).kept) == 5
    assert [str(stem_of(Path(name))) for name in ("a/c.TSV", "c.jsonl.gz", "c")] == ["a/c", "c", "c"]
    for name in ("c.csv", "c.json.gz", "c.parquet"):
        with pytest.raises(UserError, match=re.escape(f"--out {name}: clean pairs are written as a TSV")):
            stem_of(Path(name))
    said = call("data", "clean", "p.tsv", "--out", "nowhere/c.tsv", cwd=tmp_path)
    assert said.returncode == 2 and "there is no folder nowhere to write c.tsv into" in said.stderr


FIELDS: list[dict[str, object]] = [
    {"en": "I see\nthe\tdog.", "de": "Ich sehe\nden\tHund.", "doc": 1},
    {"doc": 1, "translation": {"en": "I see the cat.", "de": "Ich sehe die Katze.", "fr": "Je vois le chat."}},
    {"en": "Who is here?", "de": "Wer ist hier?", "note": "a\tb", "doc": 2},
]


def test_further_fields_are_written_and_breaks_within_fields_are_kept_as_they_were(tmp_path: Path) -> None:
    """Broken variants: the sides alone; a column missing where a record has no such field; a line break that is a blank in
    repaired.tsv, too."""
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (FIELDS[0], FIELDS[2])))
    words = ("data", "clean", "p.jsonl", "--source-field", "en", "--target-field", "de", "--out")
    said = call(*words, "c.tsv", cwd=tmp_path)
    assert said.returncode == 0 and "behind source and target c.tsv has the fields doc, note" in said.stderr
    second = "Who is here?\tWer ist hier?\t2\ta\\tb"
    assert lines_of(tmp_path / "c.tsv") == ["I see the dog.\tIch sehe den Hund.\t1", second]
    was = "invisible\t1\tI see\\nthe\\tdog.\tIch sehe\\nden\\tHund.\t1"
    assert lines_of(tmp_path / "c.repaired.tsv") == [was]
    said = call(*words, "d.jsonl", cwd=tmp_path)
    assert said.returncode == 0 and "behind source" not in said.stderr
    first = FIELDS[0] | {"en": "I see the dog.", "de": "Ich sehe den Hund."}
    assert [json.loads(line) for line in lines_of(tmp_path / "d.jsonl")] == [first, FIELDS[2]]


def test_of_a_field_that_holds_both_sides_the_rest_is_kept(tmp_path: Path) -> None:
    """`translation.en`, as data sets have it. Broken variant: both sides once more, as they were before they were cleaned."""
    (tmp_path / "p.jsonl").write_text(json.dumps(FIELDS[1]) + "\n")
    fields = {"source_field": "translation.en", "target_field": "translation.de"}
    cleaned = clean(pairs_to_clean([tmp_path / "p.jsonl"], fields))
    assert cleaned.further == {1: {"doc": 1, "translation": {"fr": "Je vois le chat."}}}
