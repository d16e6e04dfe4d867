"""`glassformer info --tokenize`: what it shows is what the model is given."""

from __future__ import annotations

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
    done = call("info", "tokenizer.json", *(word for text in TEXTS for word in ("--tokenize", text)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    ids = [tokenizer.encode(text) for text in TEXTS]
    assert [[int(i) for i in row[1].split()] for row in rows] == ids
    assert [row[0] for row in rows] == ["|".join(tokenizer.pieces(i)).replace("\t", "\\t") for i in ids]
    words = [word for row in rows for word in ("--ids", row[1])]
    back = call("info", "tokenizer.json", *words, cwd=tmp_path)
    assert back.stdout.splitlines() == [tokenizer.decode(i).replace("\x00", "") for i in ids]
