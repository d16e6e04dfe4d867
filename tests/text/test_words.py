"""Words: Chinese cut by jieba, and sentences that come back when their words are joined."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import UserError
from glassformer.text import languages
from glassformer.text.tokenizer import (
    UNK,
    Tokenizer,
)
from tests.counts import count


def test_chinese_words() -> None:
    tokenizer = Tokenizer.train("word", ["我喜欢你", "你好"], 100)
    ids = tokenizer.encode("我喜欢你")
    assert tokenizer.pieces(ids) == ["我", "喜欢", "你"]
    assert len(set(ids)) == 3 and UNK not in ids
    assert tokenizer.decode(ids) == "我喜欢你"
    assert tokenizer.spans("我喜欢你") == [(0, 1), (1, 3), (3, 4)]


def test_chinese_words_without_jieba(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence when Chinese appears; nothing at all when it does not."""
    monkeypatch.setitem(sys.modules, "jieba", None)
    languages.load_jieba.cache_clear()
    languages.segment_chinese.cache_clear()
    try:
        with pytest.raises(UserError, match=r"pip install .*zh"):
            Tokenizer.train("word", ["我喜欢你"], 100)
        assert Tokenizer.train("word", ["no Chinese here"], 100).encode("here") != [UNK]
    finally:
        languages.load_jieba.cache_clear()
        languages.segment_chinese.cache_clear()


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox, which doesn't stop; jumps (twice)!",
        'He said: "twenty-one", at 19:30, for $3.50.',
        "Geht's dir gut? „Ja, danke“, sagte er.",
        "“Yes”, she said, ‘no’.",
        "今天天气真好，我们去公园吧！",
        "我有3个苹果。",
    ],
)
def test_words_join_to_the_sentence(text: str) -> None:
    tokenizer = Tokenizer.train("word", [text], 100)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(deadline=None, max_examples=count(fast=50, soak=1000))
def test_words_survive_a_second_round(text: str) -> None:
    """Joining never glues two words of letters together: encoding the decoded text of spaced scripts gives the same ids."""
    words = [w for w in text.split() if w.isalpha() and w.isascii()]
    if words:
        tokenizer = Tokenizer.train("word", words, 1000)
        ids = tokenizer.encode(" ".join(words))
        assert tokenizer.encode(tokenizer.decode(ids)) == ids
