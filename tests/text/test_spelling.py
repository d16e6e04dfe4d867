"""How a tokenizer reads a text before it looks its pieces up: what a pattern makes one token, and letters taken apart."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.decode.streaming import Streamer
from glassformer.text.tokenizer import UNK, Tokenizer

ATOMS = r"Cl|Br|\[[^\]]+\]"
KOREAN = ["각도", "학교에 가다", "값", "cafe\u0301", "Ho Chi Minh"]


def saved(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    """The tokenizer as it is read back from its file."""
    tokenizer.save(folder / "tokenizer.json")
    return Tokenizer.load(folder / "tokenizer.json")


def test_what_the_pattern_finds_is_one_token(tmp_path: Path) -> None:
    """In training, encoding, spans and the file alike. Broken variant: the pattern lost on the way back from the file."""
    learned = Tokenizer.train("char", ["CC(Cl)[C@H]Br"] * 2, 50, pattern=ATOMS)
    for tokenizer in (learned, saved(learned, tmp_path)):
        ids = tokenizer.encode("C[C@H]Cl")
        assert tokenizer.pieces(ids) == ["C", "[C@H]", "Cl"]
        assert tokenizer.spans("C[C@H]Cl") == [(0, 1), (1, 6), (6, 8)]
        assert tokenizer.decode(ids) == "C[C@H]Cl"
        assert tokenizer.library.encode("C[C@H]Cl", add_special_tokens=False).ids == ids
        assert tokenizer.unknown_pieces("C[Na]C") == ["[Na]"]


@given(st.text(st.sampled_from("각도학교값가에 ab\u0301é"), max_size=12))
def test_letters_taken_apart_are_put_together(text: str) -> None:
    """Syllables that never occurred are spelled by letters that did; answers and streams are composed. Broken variants: a token
    for each syllable, a stream that shows a syllable before its last letter has come."""
    tokenizer = Tokenizer.train("char", [*KOREAN, "ab\u0301é"], 100, decompose=True)
    ids = tokenizer.encode(text)
    assert UNK not in ids and len(ids) == len(tokenizer.spans(text)) == len(unicodedata.normalize("NFD", text))
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)
    streamer = Streamer(tokenizer.decode)
    assert "".join([*map(streamer.push, ids), streamer.flush()]) == unicodedata.normalize("NFC", text)


def test_a_new_syllable_is_known_by_its_letters(tmp_path: Path) -> None:
    learned = Tokenizer.train("char", ["각", "돌"], 100, decompose=True)
    for tokenizer in (learned, saved(learned, tmp_path)):
        assert tokenizer.unknown_pieces("갈독") == []
    assert Tokenizer.train("char", ["각", "돌"], 100).unknown_pieces("갈독") == ["갈", "독"]


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "unigram"])
def test_nothing_is_taken_apart_by_itself(kind: str) -> None:
    assert not Tokenizer.train(kind, ["각도 cafe\u0301"] * 3, 300).composes
