"""`glassformer tokenize`: what it shows is what the model is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.text.tokenizer import Tokenizer
from tests.commands import call

TEXTS = ["der Hund sieht die Katze", "die Katze\tsieht 我们", "Hund und Hund"]


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_the_pieces_and_ids_are_the_tokenizers_and_come_back_as_the_text(kind: str, tmp_path: Path) -> None:
    """Broken variants: ids with BOS and EOS; pieces of another text's ids; a tab of the text taken for the one before the ids."""
    tokenizer = Tokenizer.train(kind, TEXTS, 300)
    tokenizer.save(tmp_path / "tokenizer.json")
    done = call("tokenize", "tokenizer.json", *TEXTS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    ids = [tokenizer.encode(text) for text in TEXTS]
    assert [[int(i) for i in row[1].split()] for row in rows] == ids
    assert [row[0] for row in rows] == ["|".join(tokenizer.pieces(i)).replace("\t", "\\t") for i in ids]
    found = [
        json.loads(line)
        for line in call("tokenize", "tokenizer.json", *TEXTS, "--json", cwd=tmp_path).stdout.splitlines()
    ]
    assert found == [{"source": t, "ids": i, "pieces": tokenizer.pieces(i)} for t, i in zip(TEXTS, ids, strict=True)]
    back = call("tokenize", "tokenizer.json", "--decode", *(row[1] for row in rows), cwd=tmp_path)
    assert back.stdout.splitlines() == [tokenizer.decode(i).replace("\x00", "") for i in ids]


def test_what_cannot_be_read_costs_a_sentence(tmp_path: Path) -> None:
    Tokenizer.train("char", TEXTS, 60).save(tmp_path / "tokenizer.json")
    (tmp_path / "other.json").write_text("{}")
    for words, code, sentence in (
        (["other.json", "Hund"], 2, "is not a tokenizer.json"),
        (["nowhere.json", "Hund"], 2, "cannot be read"),
        ([".", "Hund"], 2, "run"),
        (["tokenizer.json", "Hund", "--side", "left"], 2, "--side is source or target"),
        (["tokenizer.json", "--decode", "Hund"], 1, "a text is ids"),
        (["tokenizer.json", "--decode", "4 99999"], 1, "there is no token 99999"),
    ):
        done = call("tokenize", *words, cwd=tmp_path)
        assert done.returncode == code and sentence in done.stderr and "Traceback" not in done.stderr, done
