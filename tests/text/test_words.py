"""Words: Chinese cut by jieba, and texts that come back to the last blank when their words are joined."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import UserError
from glassformer.text import languages
from glassformer.text.tokenizer import (
    CONTROL,
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


BLANKS = [
    "rose ( x _ 1 ) AND help . theme ( x _ 3 , x _ 1 )",
    "a  b",
    " a",
    "a ",
    " ",
    "\t",
    "\ta\r\nb\n",
    "a\u2028b",
    "\u3000 x",
]
SCRIPTS = [
    "我 喜欢 你",
    " 我喜欢你。",
    "これは ペンです",
    "한국어 문장 입니다 .",
    "שלום , עולם",
    "e\u0301a\u0308 n\u0303",
    "a 🙂 👩\u200d👧 🇩🇪!",
    "《红楼梦》 abc《 b》",
]
ANY_TEXT = st.lists(
    st.sampled_from([*" \t\n\u2028\xa0\u3000.,'\"(«我喜欢かß\u0301🙂▁Ġ"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
)


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "unigram"])
@given(text=st.sampled_from(BLANKS + SCRIPTS) | ANY_TEXT.map("".join))
@settings(deadline=None, max_examples=count(fast=60, soak=2000))
def test_a_text_comes_back_as_it_was_read(kind: str, text: str) -> None:
    """Every tokenizer that learned from a text writes it again. Caught: a blank before a full stop that is lost, two blanks made
    one, a first blank taken for the one that each text begins with, line ends dropped."""
    tokenizer = Tokenizer.train(kind, [text, "the"], 1000)
    ids = tokenizer.encode(text)
    assert UNK not in ids and tokenizer.decode(ids) == text
    assert tokenizer.decode(tokenizer.encode("the")) == "the"
    if kind == "word":
        alone = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
        if not any(map(languages.is_han, text)):  # which the library alone leaves uncut
            assert alone.encode(text).ids == ids and alone.decode(ids, skip_special_tokens=False) == text


def test_a_word_is_the_same_piece_wherever_it_stands() -> None:
    """Caught: the first word of a text as a token of its own; in Chinese, a blank before every text."""
    tokenizer = Tokenizer.train("word", ["dog sees dog .", "我喜欢我"], 100)
    assert len(set(tokenizer.encode("dog dog dog"))) == 1
    assert tokenizer.encode_inside(" sees dog") == tokenizer.encode("sees dog")
    assert tokenizer.encode(" dog\n  sees") == tokenizer.encode("dog sees"), "blanks that no text had"
    assert tokenizer.pieces(tokenizer.encode("我喜欢我")) == ["我", "喜欢", "我"]


def test_a_tokenizer_from_before_words_held_their_blanks_is_what_it_was() -> None:
    """Of a run that was saved then: its ids, its file, and blanks restored by rule."""
    path = Path(__file__).parents[1] / "fixtures" / "run-format-1" / "tokenizer.json"
    old = Tokenizer.load(path)
    assert old.tokens_are_words and not old.starts_with_space
    words = old.pieces(range(CONTROL, old.vocab_size))
    assert old.encode(" ".join(words)) == list(range(CONTROL, old.vocab_size))
    assert old.decode(old.encode(f"{words[0]}   {words[1]} ")) == languages.join_words(words[:2])
