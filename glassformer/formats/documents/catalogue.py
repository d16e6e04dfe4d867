"""gettext's catalogues: messages without a translation get one, marked fuzzy; every other line stays as it is.

Babel reads them. It would write them anew, with a header and flags of its own, so only the lines of the translations are made
here.
"""

from __future__ import annotations

import io
from pathlib import Path

from glassformer.errors import UserError, install_hint
from glassformer.formats.documents.document import DocumentParts, as_is
from glassformer.text.markup import html_segments


def fill(lines: list[str], number: int, text: str, fuzzy: bool) -> None:
    """Writes a message's translation into the lines of a catalogue, and above it that nobody has looked at it yet. `number`: of
    the line where the message begins, from 1."""
    first = number - 1
    end = "\r" if lines[first].endswith("\r") else ""
    at = next(at for at in range(first, len(lines)) if lines[at].lstrip().startswith("msgstr"))
    lines[at] = "\n".join(f"{line}{end}" for line in f"msgstr {text}".split("\n"))
    if fuzzy:
        return
    above = first
    while above and lines[above - 1].startswith('"'):
        above -= 1
    if above and lines[above - 1].startswith("msgctxt"):
        first = above - 1
    above = first
    while above and lines[above - 1].startswith("#") and not lines[above].startswith("#,"):
        above -= 1
    if lines[above].startswith("#,"):
        lines[above] = lines[above].replace("#,", "#, fuzzy,", 1)
        return
    while first and lines[first - 1].startswith("#|"):
        first -= 1
    lines[first] = f"#, fuzzy{end}\n{lines[first]}"


def read_po(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """A catalogue; plurals are left to a person."""
    try:
        from babel.messages import pofile
    except ImportError:
        raise UserError(
            "reading {kind} files needs the package {name}; install it with: {command}",
            kind=".po",
            name="Babel",
            command=install_hint("dates"),
        ) from None
    try:
        catalogue = pofile.read_po(io.BytesIO(content), abort_invalid=True)
        charset = catalogue.charset or "utf-8"
        lines = content.decode(charset).split("\n")
    except (pofile.PoFileError, ValueError, LookupError) as error:
        raise UserError("{path} cannot be read: {reason}", path=path, reason=error) from None
    waiting = [m for m in catalogue if isinstance(m.id, str) and m.id and not m.string and m.lineno]
    plurals = sum(not isinstance(m.id, str) and not any(m.string or ()) for m in catalogue)
    texts = [str(message.id).split("\n") for message in waiting]
    segments = [[html_segments(line, numbers=numbers, entities=False) for line in own] for own in texts]

    def written(parts: list[str]) -> bytes:
        done, new = iter(parts), list(lines)
        for message, own in zip(waiting, segments, strict=True):
            text = "\n".join("".join(next(done) for _ in line) for line in own)
            fill(new, message.lineno or 1, pofile.normalize(text, width=0), message.fuzzy)
        try:
            return "\n".join(new).encode(charset)
        except UnicodeEncodeError as error:
            wrong = error.object[error.start : error.end]
            raise UserError(
                "{path} is in {charset}, which cannot write {text!r}; make it UTF-8", path, charset, wrong
            ) from None

    return DocumentParts([p for own in segments for line in own for p in line], as_is, written, plurals)
