"""Files that cannot be data: each is named with its line, in one sentence."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import DataConfig
from glassformer.data import records
from glassformer.data.sources import open_split
from glassformer.errors import UserError
from tests.data_files import write

pytestmark = pytest.mark.slow

BAD = [
    ("a.tsv", b"a\tb\njust one\n", {}, r"a\.tsv, line 2: only one column"),
    ("a.tsv", b"a\tb\nc\td\n\xff\te\n", {}, r"a\.tsv, line 3: not valid UTF-8 \(byte 0xff\)"),
    ("a.tsv", b"", {}, r"a\.tsv is empty"),
    ("a.tsv", b"\n\n", {}, r"a\.tsv holds no example"),
    ("a.csv", "原文,译文\n你好,世界\n".encode("gb18030"), {}, r"iconv -f gb18030 -t utf-8 a\.csv > utf8-a\.csv"),
    ("a.tsv", "a\tö\n".encode("utf-16")[:-1], {}, r"a\.tsv, line 1: not valid UTF-8"),
    ("a.tsv.gz", gzip.compress(b"a\tb\n" * 1000, mtime=0)[:-20], {}, r"a\.tsv\.gz is not a whole gzip file"),
    ("a.tsv.gz", b"a\tb\n", {}, r"a\.tsv\.gz is not a whole gzip file"),
    ("a.jsonl", b'{"source": "a", "target": "b"}\n{"source": \n', {}, r"a\.jsonl, line 2: not valid JSON"),
    ("a.jsonl", b"[1]\n", {}, r"a\.jsonl, line 1: not a JSON object"),
    ("a.jsonl", b'{"source": "a", "goal": "b"}\n', {}, r"line 1: there is no field 'target'; there are source, goal"),
    ("a.jsonl", b'{"source": "a", "target": null}\n', {}, r"line 1: the field 'target' is null"),
    ("a.jsonl", b'{"source": "a", "target": [1]}\n', {}, r"line 1: the field 'target' must hold text, not list"),
    ("a.jsonl", b'{"source": "a", "target": "\\ud800"}\n', {}, r"line 1: .*lone surrogate"),
    ("a.parquet", b"no parquet", {}, r"a\.parquet is not a readable Parquet file"),
    ("a.txt", b"first\nsecond\xc3\n", {"task": "text"}, r"a\.txt, line 2: not valid UTF-8 \(byte 0xc3\)"),
    ("a.txt", b"", {"task": "text"}, r"a\.txt is empty"),
    ("a.txt", b"text", {"format": "text"}, "pairs cannot be read from plain text"),
    ("a.txt", b"text", {"format": "lines"}, r"set data\.train_target"),
    ("a.txt", b"text", {"format": "text", "task": "tag"}, "labels cannot be read from plain text"),
    ("a.tsv", b"label only\n", {"task": "classify"}, r"a\.tsv, line 1: only one column"),
    ("a.tsv", b"w\tT\n\nword\n", {"task": "tag"}, r"a\.tsv, line 3: only one column"),
    ("a.jsonl", b'{"text": ["a", "b"], "label": ["T"]}\n', {"task": "tag"}, r"line 1: 2 words but 1 tags"),
    (
        "a.jsonl",
        b'{"text": "a b", "label": ["T", "T"]}\n',
        {"task": "tag"},
        r"'text' must hold a list of words, not str",
    ),
]


@pytest.mark.parametrize(("name", "content", "settings", "sentence"), BAD)
def test_bad_input_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, settings: dict[str, Any], sentence: str
) -> None:
    """Every sentence is a UserError on one line; a KeyError, UnicodeDecodeError or silence fails here."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=sentence) as caught:
        list(open_split(DataConfig(train=str(tmp_path / name), val_fraction=0.0, **settings), "train"))
    assert "\n" not in str(caught.value)


def test_invalid_utf8_in_the_held_out_end_has_the_line_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"line\n" * 99 + b"\xff\n")
    with pytest.raises(UserError, match="line 100: not valid UTF-8"):
        list(open_split(DataConfig(task="text", train=str(tmp_path / "a.txt"), val_fraction=0.1), "val"))


def test_unequal_line_counts(tmp_path: Path) -> None:
    write(tmp_path / "a.en", "1\n2\n3\n")
    write(tmp_path / "a.de", "1\n2\n")
    config = DataConfig(path=str(tmp_path), train="a.en", train_target="a.de", val_fraction=0.0)
    with pytest.raises(UserError, match=r"a\.en: 3 lines, but .*a\.de has 2"):
        list(open_split(config, "train"))


def test_missing_files_are_named_at_once(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", "a\tb\n")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"train": "trian.tsv"}, r"there is no file .*trian\.tsv \(did you mean 'train\.tsv'\?\)"),
        ({"train": "train.tsv", "val": "other.tsv"}, r"there is no file .*other\.tsv"),
        ({"train": "train.tsv", "train_target": "none.tsv"}, r"there is no file .*none\.tsv"),
        ({}, "there is no data"),
        ({"val_target": "train.tsv", "train": "train.tsv"}, r"data\.val_target is set but data\.val is not"),
        ({"train": "."}, "is a folder"),
    ]
    for names, sentence in cases:
        with pytest.raises(UserError, match=sentence):
            open_split(DataConfig(path=str(tmp_path), **names), "val" if "val" in str(names) else "train")


def test_a_split_nothing_falls_to_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "a\tb\n")
    with pytest.raises(UserError, match=r"data\.val is not set, and nothing .* set data\.val, or raise"):
        list(open_split(DataConfig(train=str(tmp_path / "a.tsv"), val_fraction=0.0), "val"))


@pytest.mark.parametrize(("module", "name"), [("pyarrow.parquet", "a.parquet"), ("datasets", "saved")])
def test_missing_extras_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    write(tmp_path / "a.parquet", "x")
    write(tmp_path / "saved" / "state.json", "{}")
    monkeypatch.setitem(__import__("sys").modules, module, None)
    records.open_datasets.cache_clear()
    with pytest.raises(UserError, match=r"install it with: pip install .*\[\w+\]"):
        list(open_split(DataConfig(path=str(tmp_path), train=name), "train"))


def test_a_broken_data_set_folder_is_a_sentence(tmp_path: Path) -> None:
    write(tmp_path / "saved" / "state.json", "{}")
    with pytest.raises(UserError, match="cannot be loaded"):
        open_split(DataConfig(path=str(tmp_path), train="saved"), "train")
