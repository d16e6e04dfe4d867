"""Text around the search: whole characters in a stream, long texts in pieces; and BERT's answers."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.decode import fits_within, join_pieces, split_text, unwrapped
from glassformer.decode.streaming import Streamer, cut_at_stop
from glassformer.text.tokenizer import Tokenizer

PROSE = "The cat sat. 我们去北京。Grüße aus Köln! 😀👩‍👩‍👧 naïve café… “quoted” text"


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    return Tokenizer.train(kind, [PROSE] * 4, 290)  # type: ignore[arg-type]


def streamed(decode: object, ids: list[int], stops: tuple[str, ...] = ()) -> list[str]:
    streamer = Streamer(decode, stops)  # type: ignore[arg-type]
    return [*(streamer.push(token) for token in ids), streamer.flush()]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_stream_shows_whole_characters_only(text: str) -> None:
    """Caught: half a character shown as U+FFFD; a real U+FFFD never shown; text lost at the end."""
    bpe = tokenizer("bpe")
    pieces = streamed(bpe.decode, bpe.encode(text))
    assert "".join(pieces) == text
    for n in range(len(pieces)):
        assert text.startswith("".join(pieces[:n]))


@pytest.mark.slow
@given(
    st.lists(st.integers(5, 260), max_size=30), st.lists(st.sampled_from(["a", "ab", "é", "\ufffd", "10"]), max_size=2)
)
@settings(max_examples=50, deadline=None)
def test_a_stream_of_any_bytes_adds_up_and_never_shows_a_stop_string(ids: list[int], stops: list[str]) -> None:
    """Also where the bytes are no UTF-8 at all; nothing is held back for ever."""
    bpe = tokenizer("bpe")
    pieces = streamed(bpe.decode, ids, tuple(stops))
    assert "".join(pieces) == cut_at_stop(bpe.decode(ids), stops)


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "unigram"])
def test_a_stream_adds_up_for_every_tokenizer(kind: str) -> None:
    pieces = streamed(tokenizer(kind).decode, tokenizer(kind).encode(PROSE))
    assert "".join(pieces) == tokenizer(kind).decode(tokenizer(kind).encode(PROSE))
    assert sum(bool(piece) for piece in pieces) > 8


PIECES = st.sampled_from(
    [
        "Hello",
        "world",
        ".",
        "!",
        "?",
        "…",
        " ",
        "  ",
        "\n",
        "\r\n\n",
        "。",
        "！",
        "你好",
        "，",
        ",",
        "”",
        "J.",
        "3.5",
        "x",
    ]
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join), st.integers(1, 12))
def test_pieces_fit_and_put_together_unchanged_they_are_the_text(text: str, most: int) -> None:
    pieces = split_text(text, lambda piece: len(piece) <= most)
    assert all(len(piece.text) <= most and "\n" not in piece.text for piece in pieces)
    assert join_pieces(pieces, [piece.text for piece in pieces]) == text


def test_sentences_are_cut_at_their_ends() -> None:
    def texts(text: str, most: int) -> list[str]:
        return [piece.text for piece in split_text(text, lambda piece: len(piece) <= most)]

    assert texts("It is 3.5 m. Dr. no! He said “Stop.” Then?", 20) == [
        "It is 3.5 m.",
        "Dr. no!",
        "He said “Stop.”",
        "Then?",
    ]
    assert texts("我们去北京。你呢？“好！”走吧", 8) == ["我们去北京。", "你呢？", "“好！”", "走吧"]
    assert texts("One. Two.\nThree.", 100) == ["One. Two.", "Three."]
    assert texts("J. Smith left. He ran.", 15) == ["J. Smith left.", "He ran."]
    assert texts("one, two three four, five", 20) == ["one,", "two three four, five"]
    assert texts("abcdefgh", 3) == ["ab", "cd", "ef", "gh"]
    assert texts("", 3) == [""] and texts(" \n ", 3) == [""]


def test_a_sentence_that_was_broken_into_lines_is_whole_again() -> None:
    mail = "Two dogs are running through\nthe tall grass of a\nmeadow.\nA man reads.\n"
    assert unwrapped(mail) == "Two dogs are running through the tall grass of a\nmeadow.\nA man reads.\n"
    assert unwrapped("a sentence that goes on  \r\nin a second line") == "a sentence that goes on in a second line"
    assert (
        unwrapped("我们明天一起坐火车去北京看望我的老朋友和他\n的家人。")
        == "我们明天一起坐火车去北京看望我的老朋友和他的家人。"
    )
    for kept in (
        "apples\npears\nplums",  # a list
        "A heading that is rather long\nThe text below it.",
        "The first sentence ended here.\nthe second begins small",
        "He said it aloud: “No, thank you.”\nand went",
        "two paragraphs of one text each\n\nare kept apart",
        "a line of code, with a name in it\n    and what is indented below",
        "",
        "\n\n",
    ):
        assert unwrapped(kept) == kept


def test_translations_are_spaced_as_the_source_was() -> None:
    def upper(text: str, most: int) -> str:
        pieces = split_text(text, lambda piece: len(piece) <= most)
        return join_pieces(pieces, [piece.text.upper() for piece in pieces])

    assert upper("  One.  Two.\n\n\tThree! \n", 6) == "  ONE.  TWO.\n\n\tTHREE! \n"
    pieces = split_text("你好。再见。", lambda piece: len(piece) <= 3)
    assert join_pieces(pieces, ["Hello.", "Goodbye."]) == "Hello. Goodbye."
    assert join_pieces(pieces, ["こんにちは。", "さようなら。"]) == "こんにちは。さようなら。"


@pytest.mark.slow
def test_a_huge_line_is_cut_quickly() -> None:
    bpe = tokenizer("bpe")
    for text in ("The cat sat. " * 8_000, "cat " * 60_000, "我" * 40_000):
        pieces = split_text(text, fits_within(bpe.encode, 500))
        assert join_pieces(pieces, [piece.text for piece in pieces]) == text
        assert len(pieces) > 100  # the work grows with n log n; n squared would be felt here
