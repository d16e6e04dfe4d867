"""Subtitles: SubRip's .srt and WebVTT. A cue is one text, whatever its line breaks, and a dialogue one text a speaker.

Cues are found by the lines of their times and not by the blank lines between them, which programs write with blanks in
them, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from glassformer.formats.documents.document import DocumentParts, as_is, decoded, joined_like
from glassformer.text.markup import Segment, as_html, html_segments

TIMES = re.compile(r"\s*-?\d[\d:., \t]*-->[ \t]*-?\d")
TIME_TAG = re.compile(r"<\d[\d:.]*>")
SPEAKER = re.compile(r"^[ \t]*(?:<[^<>]*>[ \t]*|\{\\[^{}]*\}[ \t]*)*[-–—][ \t]*(?=\S)", re.MULTILINE)


def is_text(lines: list[str]) -> Iterator[bool]:
    """Of each line, whether it is said: it is not blank, and neither times nor what a cue is called, which stands above them and
    behind a blank line, or is a number."""
    before = ""
    for line, after in zip(lines, [*lines, ""][1:], strict=True):
        is_name = TIMES.match(after) and (not before.strip() or line.strip().isdecimal())
        yield not (not line.strip() or TIMES.match(line) or is_name)
        before = line


def cue_parts(text: str, *, numbers: bool, entities: bool = False) -> Iterator[str | Segment]:
    """The texts of a cue."""
    at, speakers = 0, [*SPEAKER.finditer(text)]
    for dash in speakers if len(speakers) > 1 else ():
        yield from html_segments(text[at : dash.start()], numbers=numbers, entities=entities)
        yield dash[0]
        at = dash.end()
    yield from html_segments(text[at:], numbers=numbers, entities=entities)


def line_groups(text: str) -> Iterator[tuple[bool, str]]:
    """The lines of a text, those together that are said without a break, and those that are not."""
    lines = text.splitlines(keepends=True)
    for said, group in groupby(zip(is_text(lines), lines, strict=True), key=lambda entry: entry[0]):
        yield said, "".join(line for _, line in group)


def read_srt(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """Subtitles; their numbers and times stay, and so does the dash in front of what each of several speakers says."""
    parts: list[str | Segment] = []
    for said, text in line_groups(decoded(content, path)):
        parts += cue_parts(text, numbers=numbers) if said else [text]
    return DocumentParts(parts, as_is, joined_like(content))


def read_vtt(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """Subtitles of the web, whose texts are HTML's. What follows no times is a header, a style or a note; a cue with times
    between its words stays, and is counted."""
    parts: list[str | Segment] = []
    above, left = "", 0
    for said, text in line_groups(decoded(content, path)):
        in_cue = said and TIMES.match(above) is not None
        timed = in_cue and TIME_TAG.search(text) is not None
        left += timed
        parts += cue_parts(text, numbers=numbers, entities=True) if in_cue and not timed else [text]
        above = text.splitlines()[-1]
    return DocumentParts(parts, as_html, joined_like(content), left)
