"""Which tokens make up a character, and which a word.

A token is whatever the vocabulary has: a letter, a word, some bytes. To be read by a person, neighbouring tokens are put
together into units: *characters* (a character that is spread over several byte pieces is one unit, and so is a letter with
its accents, or an emoji with its modifiers) or *words* (a space goes with the word behind it; Chinese is cut by jieba, and
character by character where jieba is not installed). A unit is never smaller than a token: a piece of five letters stays one
unit among characters, since nobody knows what each letter of it would have got.

Control tokens (BOS, EOS, MASK, UNK) stand for no text and are units of their own.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import Regex, pre_tokenizers

from glassformer.errors import UserError
from glassformer.text.languages import WORD_PATTERN, is_han, segment_chinese
from glassformer.text.tokenizer import CONTROL, Tokenizer

Span = tuple[int, int]
JOINER = "\u200d"


@dataclass(frozen=True)
class Units:
    """Groups of neighbouring tokens: the first token of each, and how each reads."""

    starts: list[int]
    labels: list[str]


def character_spans(pieces: Sequence[bytes]) -> tuple[str, list[Span]]:
    """The text that the bytes spell, and for each piece the characters it has a share in. Bytes that spell nothing are
    one U+FFFD for each run that could not be finished."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    raw = b"".join(pieces)
    character_of: list[int] = []
    text, pending = "", 0
    for byte in raw:
        found = decoder.decode(bytes([byte]))
        pending += 1
        waiting = len(decoder.getstate()[0])
        whole = pending - waiting  # bytes that the found characters account for
        for number in range(len(found)):
            last = number == len(found) - 1
            # Only a broken run gives two characters at once: the run, then the byte that broke it.
            share = whole if last else whole - (len(found) - 1 - number)
            character_of += [len(text)] * share
            text += found[number]
            whole -= share
        pending = waiting
    rest = decoder.decode(b"", final=True)
    if pending:
        character_of += [len(text)] * pending
        text += rest
    spans, place = [], 0
    for piece in pieces:
        if piece:
            spans.append((character_of[place], character_of[place + len(piece) - 1] + 1))
        else:
            here = character_of[place] if place < len(character_of) else len(text)
            spans.append((here, here))
        place += len(piece)
    return text, spans


def spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[Span]]:
    """The text of ids (no control id among them), and for each the characters it has a share in."""
    if ids and tokenizer.spells(ids[0]) is not None:
        return character_spans([tokenizer.spells(i) or b"" for i in ids])
    names = [tokenizer.library.id_to_token(i) or "" for i in ids]
    if names and tokenizer.keeps_blanks:
        names[0] = names[0].removeprefix(" ")
    text = tokenizer.join(names)
    spans, place = [], 0
    for name in names:
        start = text.index(name, place)
        place = start + len(name)
        spans.append((start, place))
    return text, spans


def goes_with_the_one_before(before: str, character: str) -> bool:
    """Accents, vowel signs, variation selectors, skin tones, and what a joiner joins."""
    code = ord(character)
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or character == JOINER
        or before == JOINER
        or 0x1F3FB <= code <= 0x1F3FF
    )


def character_starts(text: str) -> set[int]:
    """Where each character begins, as a reader sees them: with its accents, flags whole."""
    starts, flags = set(), 0
    for i, character in enumerate(text):
        is_flag = 0x1F1E6 <= ord(character) <= 0x1F1FF
        flags = flags + 1 if is_flag else 0
        second_of_flag = is_flag and flags % 2 == 0
        if i == 0 or not (goes_with_the_one_before(text[i - 1], character) or second_of_flag):
            starts.add(i)
    return starts


@cache
def splitter() -> Any:
    """What finds words in text with spaces."""
    return pre_tokenizers.Split(Regex(WORD_PATTERN), "removed", invert=True)


def chinese_words(run: str) -> list[str]:
    """The words of a run of Chinese; its characters where the segmenter is not there."""
    try:
        return list(segment_chinese(run))
    except UserError:  # jieba is an extra
        return list(run)


def word_starts(text: str) -> set[int]:
    """Each word begins where the one before ends: the space between them is its own."""
    ends = [0]
    for piece, (start, end) in splitter().pre_tokenize_str(text):
        if is_han(piece[0]):
            for word in chinese_words(piece):
                start += len(word)
                ends.append(start)
        else:
            ends.append(end)
    return {0, *ends[1:-1]} & ({0} | character_starts(text))


def put_together(spans: Sequence[Span], starts: set[int]) -> list[int]:
    """The first token of each group: one before which a unit begins and with which the token before shares nothing."""
    firsts = []
    for i, (start, _) in enumerate(spans):
        end_before = spans[i - 1][1] if i else 0
        if i == 0 or any(u in starts for u in range(end_before, start + 1)):
            firsts.append(i)
    return firsts


@dataclass(frozen=True)
class ReadableTokens:
    """A row of tokens as a person may read it."""

    pieces: list[str]
    characters: Units
    words: Units


def reading(tokenizer: Tokenizer, ids: Sequence[int], words: Sequence[int] | None = None) -> ReadableTokens:
    """`words`: the first token of each word, where that is known better than from the text."""
    pieces = tokenizer.pieces(ids)
    found: dict[str, tuple[list[int], list[str]]] = {"characters": ([], []), "words": ([], [])}
    place = 0
    while place < len(ids):
        if ids[place] < CONTROL:
            for starts, labels in found.values():
                starts.append(place)
                labels.append(pieces[place])
            place += 1
            continue
        end = next((i for i in range(place, len(ids)) if ids[i] < CONTROL), len(ids))
        text, spans = spelled(tokenizer, ids[place:end])
        for name, begin in (("characters", character_starts), ("words", word_starts)):
            firsts = put_together(spans, begin(text))
            if name == "words" and words is not None:
                firsts = [w - place for w in words if place <= w < end]
            starts, labels = found[name]
            for first, after in zip(firsts, [*firsts[1:], len(spans)]):
                starts.append(place + first)
                labels.append(text[spans[first][0] : spans[after - 1][1]])
        place = end
    return ReadableTokens(pieces, Units(*found["characters"]), Units(*found["words"]))
