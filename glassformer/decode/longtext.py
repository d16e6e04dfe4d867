"""Texts longer than a model can read: cut at sentence ends, answered piece by piece, put together as they were spaced.

Lines are pieces of their own, since a model of sentences has never seen a line break; but a sentence that a mail program has
broken into lines is put together again first (`unwrapped`). A line that fits is left whole. One that does not is cut at
sentence ends (. ! ? … and 。！？, with whatever closes after them); a sentence that is still too long at the clause mark, else
at the space, nearest to its middle; and what has neither, in the middle. A full stop before a lower-case letter ends no
sentence, nor does one after a single capital (J. Smith); other abbreviations are not known.

What stood between two pieces stands between their translations. There is one exception: Chinese puts no space after a full
stop, so between two translations that are not Chinese one is added where the source had none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glassformer.text.languages import is_unspaced

CLOSERS = r"[\"'”’»)\]」』）】》]*"
# Looked for at the beginning of a run alone: from within it, the time would grow with its square.
SENTENCE_END = re.compile(rf"(?<![.!?…])[.!?…]+{CLOSERS}(?=\s)|[。！？]+{CLOSERS}")
LINE_END = re.compile(r"((?<!\s)\s*\n\s*)")
CLAUSE_END = re.compile(r"[,;:](?=\s)|[，；：、]")
SPACE = re.compile(r"\s+")
STOPPED = re.compile(rf"[.!?…:;。！？：；]{CLOSERS}$")
SHORTEST_WRAPPED = 20  # characters of a line; nobody breaks shorter ones, but lists have them
INITIAL = re.compile(r"(?:^|\W)[A-Z]\.$")


@dataclass(slots=True)
class Piece:
    """A part of a text that a model can read, and the space around it."""

    text: str  # without space around it; empty only where there is nothing but space
    before: str  # the space before it
    after: str = ""  # the space at the end of the whole text


def runs_over(line: str, following: str) -> bool:
    """Does a sentence go on in the next line? One does that has not ended where the line does, and whose next line, not indented,
    begins with a small letter, or both are of a script without spaces (and without small letters)."""
    if len(line) < SHORTEST_WRAPPED or STOPPED.search(line) or not following:
        return False
    return following[0].islower() or (is_unspaced(line[-1]) and is_unspaced(following[0]))


def unwrapped(text: str) -> str:
    """A text without the line breaks inside its sentences.

    >>> unwrapped("Two dogs are running through\\nthe grass.\\nA man reads.")
    'Two dogs are running through the grass.\\nA man reads.'
    """
    lines = text.split("\n")
    out = lines[:1]
    for before, line in itertools.pairwise(lines):
        before = before.rstrip()
        if runs_over(before, line):
            out[-1] = out[-1].rstrip()
            out += ["" if is_unspaced(before[-1]) else " ", line]
        else:
            out += ["\n", line]
    return "".join(out)


def split_text(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """The pieces of a text, none of them too long (but for a single character that is)."""
    pieces: list[Piece] = []
    space = ""
    for part in LINE_END.split(text):
        if not part.strip():
            space += part
            continue
        for body in split_line(part, fits):
            stripped = body.strip()
            if not stripped:
                space += body
                continue
            lead = body[: len(body) - len(body.lstrip())]
            pieces.append(Piece(stripped, space + lead))
            space = body[len(body.rstrip()) :]
    if not pieces:
        return [Piece("", "", text)]
    last = pieces[-1]
    return [*pieces[:-1], Piece(last.text, last.before, space)]


def split_line(line: str, fits: Callable[[str], bool]) -> list[str]:
    """A line whole where it fits, else in pieces."""
    if fits(line.strip()):
        return [line]
    return [part for sentence in split_sentences(line) for part in split_sentence(sentence, fits)]


def split_sentences(line: str) -> list[str]:
    """A line cut after each of its sentences; put together they are the line."""
    parts, start = [], 0
    for match in SENTENCE_END.finditer(line):
        end = match.end()
        if line[end : end + 8].lstrip()[:1].islower() or INITIAL.search(line[max(0, end - 3) : end]):
            continue
        parts.append(line[start:end])
        start = end
    parts.append(line[start:])
    return [part for part in parts if part]


def split_sentence(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """A sentence cut in two, and again, until every piece fits."""
    if len(sentence.strip()) < 2 or fits(sentence.strip()):
        return [sentence]
    first, last = len(sentence) - len(sentence.lstrip()), len(sentence.rstrip())
    middle = (first + last) // 2

    def nearest_to_middle(mark: re.Pattern[str]) -> int | None:
        ends = (match.end() for match in mark.finditer(sentence))
        return min((end for end in ends if first < end < last), key=lambda end: abs(end - middle), default=None)

    cut = nearest_to_middle(CLAUSE_END) or nearest_to_middle(SPACE) or middle
    return [*split_sentence(sentence[:cut], fits), *split_sentence(sentence[cut:], fits)]


def runs_on(character: str) -> bool:
    """No space is put beside it: another space, or what Chinese and Japanese are written with."""
    return character.isspace() or is_unspaced(character) or character in "“”‘’…"


def fits_within(encode: Callable[[str], list[int]], most: int) -> Callable[[str], bool]:
    """Is a text at most `most` tokens? One of very many characters is not even encoded to see."""
    return lambda text: len(text) <= 64 * most and len(encode(text)) <= most


def join_pieces(pieces: Sequence[Piece], translations: Sequence[str]) -> str:
    """The translations of a text's pieces, spaced as the pieces were."""
    out, last_source = "", ""
    for piece, translation in zip(pieces, translations, strict=True):
        before = piece.before
        if not before and last_source and runs_on(last_source) and out and translation:
            before = "" if runs_on(out[-1]) or runs_on(translation[0]) else " "
        out += before + translation + piece.after
        last_source = piece.text[-1:]
    return out
