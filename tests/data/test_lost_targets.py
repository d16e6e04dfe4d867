"""Targets that a tokenizer cannot write are told before the first step, and those that it can are not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from glassformer.data.prepare import prepare
from glassformer.data.report import DataReport
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Spelling, listed, pipeline
from tests.number_pairs import recipe, write_tsv

FORMS = [
    (f"the {word} slept .", f"{word} ( x _ 1 ) AND sleep . agent ( x _ 2 , x _ 1 )") for word in ("cat", "dog", "fox")
]


def notes_of(folder: Path, **data: object) -> list[str]:
    (folder / "run").mkdir()
    prepare(recipe(folder, data={"val": "val.tsv", "test": "val.tsv", **data}), folder / "run")
    report = DataReport.read(folder / "run" / "data")
    assert report is not None
    return [note for note in report.notes() if "cannot be written" in note]


@pytest.mark.parametrize("tokenizer", ["char", "word", "bpe", "unigram"])
@pytest.mark.parametrize("lower", [False, True])
def test_every_tokenizer_writes_what_it_has_learned_from(tokenizer: str, lower: bool, tmp_path: Path) -> None:
    """Caught: a blank before a full stop that is lost, for which exact match stays 0; lower case taken for a loss."""
    write_tsv(tmp_path / "train.tsv", FORMS)
    write_tsv(tmp_path / "val.tsv", [("a dog slept .", FORMS[1][1])])
    assert notes_of(tmp_path, tokenizer=tokenizer, lowercase=lower) == []


def test_what_cannot_be_written_is_told_with_an_example(tmp_path: Path) -> None:
    """By a tokenizer that restores blanks by rule, and by one that has never seen a letter of the held-out pairs. Caught: nothing
    said; training targets alone looked at."""
    write_tsv(tmp_path / "train.tsv", FORMS)
    write_tsv(tmp_path / "val.tsv", [("a yak slept .", "yak")])
    (by_char,) = notes_of(tmp_path, tokenizer="char", test="train.tsv")
    assert "1 val targets cannot be written" in by_char and "'yak' comes out as 'a'" in by_char
    words = Counter(" ".join(target for _, target in FORMS).split())
    old = pipeline("word", listed(words, 100), Spelling(keeps_blanks=False))
    Tokenizer(old).save(tmp_path / "old.json")
    (tmp_path / "run").rename(tmp_path / "first")
    by_rule = "\n".join(notes_of(tmp_path, tokenizer_file=str(tmp_path / "old.json")))
    assert "3 train targets" in by_rule and "'cat ( x _ 1 ) AND sleep . agent" in by_rule
    assert "comes out as 'cat (x _ 1) AND sleep. agent (x _ 2, x _ 1)'" in by_rule
