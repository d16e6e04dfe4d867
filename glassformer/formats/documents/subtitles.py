"""Subtitles: SubRip's .srt. A cue is one text, whatever its line breaks, and a dialogue one text a speaker."""

from __future__ import annotations

import re
from pathlib import Path

from glassformer.formats.documents.document import DocumentParts, as_is, decoded, joined_bytes
from glassformer.text.markup import Segment, html_segments

SPEAKER = re.compile(r"^[ \t]*(?:<[^<>]*>[ \t]*|\{\\[^{}]*\}[ \t]*)*[-–—][ \t]*(?=\S)", re.MULTILINE)


def read_srt(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """Subtitles; their numbers and times stay, and so does the dash in front of what each of several speakers says."""
    parts: list[str | Segment] = []
    for block in re.split(r"((?:\r?\n){2,})", decoded(content, path)):
        head = re.match(r"(?:\s*\d+\s*\n)?[^\n]*-->[^\n]*\n", block)
        at = head.end() if head else len(block)
        speakers = [*SPEAKER.finditer(block, at)]
        parts.append(block[:at])
        for dash in speakers if len(speakers) > 1 else ():
            parts += html_segments(block[at : dash.start()], numbers=numbers, entities=False)
            parts.append(dash[0])
            at = dash.end()
        parts += html_segments(block[at:], numbers=numbers, entities=False)
    return DocumentParts(parts, as_is, joined_bytes)
