"""A corpus split by Python and encoded word by word has the ids that the library gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from unicodedata import category

import numpy as np
import pytest

from glassformer.errors import UserError
from glassformer.text import words
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import WordEncoder
from tests.counts import count

TEXTS = ["it doesn't stop, we'll see", "Straße 12½  \t ΣΑΣ", "今天 天气真好，", "I'M 'tis rock'n'roll"] * 3
TRICKY = (
    "aB'sStTrevlmd  \t\n\r\x0b\x1c\x85\xa0é1²½٣_-.中文かな😀\u200b\u2028\u3000\u180eΣςİßﬁ\u0300\U00020000\ua7f2\u0378"
)


@pytest.fixture(scope="module", params=["bpe", "unigram", "lower"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "lower":
        return Tokenizer.train("bpe", TEXTS, 300, lowercase=True)
    return Tokenizer.train(request.param, TEXTS, 300)


def lists(encode: Callable[[list[str]], tuple[np.ndarray, np.ndarray]], texts: list[str]) -> list[list[int]]:
    """The ids of each text."""
    tokens, lengths = encode(texts)
    return [ids.tolist() for ids in np.split(tokens, np.cumsum(lengths)[:-1])]


def test_texts_of_any_characters_have_the_ids_of_the_library(tokenizer: Tokenizer) -> None:
    """Broken variants: Python's \\s, to which U+001C is a blank; \\w, to which ½ is a letter; contractions in capitals."""
    draw = random.Random(1)
    texts = ["".join(draw.choices(TRICKY, k=draw.randrange(14))) for _ in range(count(fast=3000, soak=100_000))]
    assert lists(tokenizer.corpus_encoder(), texts) == tokenizer.encode_batch(texts)


@pytest.mark.slow
def test_every_character_is_split_as_the_library_does(tokenizer: Tokenizer) -> None:
    """Of the long rows of one kind from U+3400 on (Han, Hangul, Tangut, private use) every sixteenth, and both ends of each."""
    every = count(fast=16, soak=1)
    kinds = [category(chr(code)) for code in range(0x30001)]
    codes = [
        code
        for code in range(0x30000)
        if code < 0x3400 or code % every == 0 or len({kinds[code - 1], kinds[code], kinds[code + 1]}) > 1
    ]
    codes = [code for code in codes if not 0xD800 <= code < 0xE000]
    texts = [f"a{chr(code)}b {chr(code)} 1{chr(code)}2{chr(code)}{chr(code)} " for code in codes]
    assert lists(tokenizer.corpus_encoder(), texts) == tokenizer.encode_batch(texts)


def test_a_table_that_is_full_begins_anew(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: numbers of the old table used with the new one."""
    monkeypatch.setattr(words, "MOST_WORDS", 5)
    encode = WordEncoder(tokenizer.library).encode_batch
    for _ in range(3):
        for text in TEXTS:
            assert lists(encode, [text, "", text]) == [tokenizer.encode(text), [], tokenizer.encode(text)]


def test_half_a_character_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="lone surrogate"):
        tokenizer.corpus_encoder()(["a\ud800"])
