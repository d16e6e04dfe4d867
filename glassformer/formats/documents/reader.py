"""Documents whose texts are translated and whose structure stays: HTML, Markdown, subtitles, gettext's .po, XLIFF and Word.

Each kind is read by a parser of its own (the scanner of text/markup.py, markdown-it, Babel, ElementTree) into segments, which
tasks/markup.py translates, carrying their inline markup over. What is no text stays as it stands in the file.

A document is also read, or put together again, by this file as a program of its own, with bounds of time and memory: some
kilobytes can be made to take hours or gigabytes, and a thread that reads them cannot be stopped. On stdin comes an `Order` as a
line of JSON, and the document behind it. On stdout comes a `Reading` as JSON or, where the order holds the translated parts, the
document; with exit code 2 a sentence.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import UserError
from glassformer.formats.documents.catalogue import read_po
from glassformer.formats.documents.document import DocumentParts, as_is, decoded, joined_like
from glassformer.formats.documents.markdown import as_markdown, read_markdown
from glassformer.formats.documents.subtitles import read_srt, read_vtt
from glassformer.formats.documents.word import read_docx
from glassformer.formats.documents.xml import as_xml, read_xliff
from glassformer.language import _
from glassformer.screen import warn
from glassformer.text.markup import Segment, as_html, html_segments


def read_text(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """A plain text, of which every line is a text."""
    parts: list[str | Segment] = []
    for line in decoded(content, path).splitlines():
        parts += [Segment(line, []) if line.strip() else line, "\n"]
    return DocumentParts(parts, as_is, joined_like(content))


def read_html(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """A page: tags stay, to the byte."""
    return DocumentParts(html_segments(decoded(content, path), numbers=numbers), as_html, joined_like(content))


KINDS: dict[str, Callable[..., DocumentParts]] = {
    ".txt": read_text,
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    **dict.fromkeys((".md", ".markdown"), read_markdown),
    ".srt": read_srt,
    ".vtt": read_vtt,
    ".po": read_po,
    **dict.fromkeys((".xlf", ".xliff"), read_xliff),
    ".docx": read_docx,
}
"""By the ending of a file: how such a document is read."""


def read_document(content: bytes, path: Path, *, numbers: bool = False) -> DocumentParts:
    """A document, apart. `path`: what it is called."""
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise UserError(
            "{path}: a document to translate ends in one of {kinds}", path=path, kinds=", ".join(sorted(KINDS))
        )
    return kind(content, path, numbers=numbers)


def translate_document(model: Any, path: Path, *, numbers: bool = False, **options: Any) -> bytes:
    """The document of this file in the other language. `numbers`: they stay as they are, to the byte, as placeholders, addresses
    and code do in any case. How many texts had to be left as they are is said on stderr."""
    from glassformer.tasks.markup import translate_segments  # torch, which reading needs nothing of

    try:
        content = path.read_bytes() if path.suffix.lower() in KINDS else b""
    except OSError as error:
        raise UserError("{path} cannot be read: {reason}", path=path, reason=error.strerror or error) from None
    document = read_document(content, path, numbers=numbers)
    done = document.written(translate_segments(model, document.parts, document.escape, **options))
    if document.left:
        warn(
            _(
                "glassformer: {count:,} paragraphs of {path} were left as they are: comments, or markup that cannot be moved "
                "along with the words",
                document.left,
                path,
            )
        )
    return done


ESCAPES = {escape.__name__: escape for escape in (as_is, as_html, as_markdown, as_xml)}
"""How a plain text becomes text of a document's kind, by name."""


@dataclass(frozen=True)
class Order:
    """What to do with a document called `name`. `translated`: its parts in the other language."""

    name: str
    seconds: float  # of processor time
    memory: int  # bytes of addresses
    translated: list[str] | None = None

    def encoded(self, content: bytes) -> bytes:
        """The order with the document, as the program reads them."""
        return json.dumps(vars(self)).encode() + b"\n" + content


@dataclass(frozen=True)
class Reading:
    """The parts of a document that was read, the name of their escape, and how many texts are left as they are."""

    parts: list[str | Segment]
    escape: str
    left: int


def limit_this_process(seconds: float, memory: int) -> None:
    """From here on this process ends where it takes more; where the system has no such limits (Windows), whoever started it
    sees to that."""
    try:
        import resource
    except ImportError:
        return
    bounds = {resource.RLIMIT_CPU: math.ceil(seconds), resource.RLIMIT_AS: memory, resource.RLIMIT_CORE: 0}
    for which, most in bounds.items():
        with suppress(ValueError, OSError):  # a lower limit stands already
            resource.setrlimit(which, (most, most))


def carry_out(order: Order, content: bytes) -> bytes:
    """The answer to an order."""
    document = read_document(content, Path(order.name))
    if order.translated is not None:
        return document.written(order.translated)
    import msgspec

    return msgspec.json.encode(Reading(document.parts, document.escape.__name__, document.left))


def main() -> int:
    """Reads an order, carries it out within its limits, and writes the answer; the exit code."""
    order = Order(**json.loads(sys.stdin.buffer.readline()))
    limit_this_process(order.seconds, order.memory)
    try:
        answer, code = carry_out(order, sys.stdin.buffer.read()), 0
    except UserError as error:
        answer, code = str(error).encode("utf-8", "replace"), error.exit_code
    except MemoryError:
        answer, code = b"reading this takes more memory than is given to one file", UserError.exit_code
    sys.stdout.buffer.write(answer)
    return code


if __name__ == "__main__":
    sys.exit(main())
