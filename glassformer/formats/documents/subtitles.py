"""Subtitles: SubRip's .srt. A cue is one text, whatever its line breaks, and a dialogue one text a speaker.

Cues are found by the lines of their times and not by the blank lines between them, which programs write with blanks in
them, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from glassformer.formats.documents.document import DocumentParts, as_is, decoded, joined_like
from glassformer.text.markup import Segment, html_segments

TIMES = re.compile(r"\s*-?\d[\d:., \t]*-->[ \t]*-?\d")
SPEAKER = re.compile(r"^[ \t]*(?:<[^<>]*>[ \t]*|\{\\[^{}]*\}[ \t]*)*[-–—][ \t]*(?=\S)", re.MULTILINE)


def is_text(lines: list[str]) -> Iterator[bool]:
    """Of each line, whether it is said: it is not blank, and neither times nor what a cue is called, which stands above them and
    behind a blank line, or is a number."""
    before = ""
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        is_name = TIMES.match(after) and (not before.strip() or line.strip().isdecimal())
        yield not (not line.strip() or TIMES.match(line) or is_name)
        before = line


def cue_parts(text: str, numbers: bool) -> Iterator[str | Segment]:
    """The texts of a cue."""
    at, speakers = 0, [*SPEAKER.finditer(text)]
    for dash in speakers if len(speakers) > 1 else ():
        yield from html_segments(text[at : dash.start()], numbers=numbers, entities=False)
        yield dash[0]
        at = dash.end()
    yield from html_segments(text[at:], numbers=numbers, entities=False)


def read_srt(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """Subtitles; their numbers and times stay, and so does the dash in front of what each of several speakers says."""
    lines = decoded(content, path).splitlines(keepends=True)
    parts: list[str | Segment] = []
    for said, group in groupby(zip(is_text(lines), lines, strict=True), key=lambda entry: entry[0]):
        text = "".join(line for _, line in group)
        parts += cue_parts(text, numbers) if said else [text]
    return DocumentParts(parts, as_is, joined_like(content))
