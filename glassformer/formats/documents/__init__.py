"""Documents whose texts are translated and whose structure stays: HTML, Markdown, subtitles, gettext's .po, XLIFF, TMX and Word.

Each kind is read by a parser of its own (the scanner of text/markup.py, markdown-it, Babel, ElementTree) into segments, which
tasks/markup.py translates, carrying their inline markup over. What is no text stays as it stands in the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.errors import UserError
from glassformer.formats.documents.bilingual import read_tmx, read_xliff
from glassformer.formats.documents.catalogue import read_po
from glassformer.formats.documents.document import DocumentParts, decoded, joined_like
from glassformer.formats.documents.markdown import read_markdown
from glassformer.formats.documents.subtitles import read_srt, read_vtt
from glassformer.formats.documents.word import read_docx
from glassformer.language import _
from glassformer.screen import warn
from glassformer.text.markup import as_html, html_segments


def read_html(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """A page: tags stay, to the byte."""
    return DocumentParts(html_segments(decoded(content, path), numbers=numbers), as_html, joined_like(content))


KINDS: dict[str, Callable[..., DocumentParts]] = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    **dict.fromkeys((".md", ".markdown"), read_markdown),
    ".srt": read_srt,
    ".vtt": read_vtt,
    ".po": read_po,
    **dict.fromkeys((".xlf", ".xliff"), read_xliff),
    ".tmx": read_tmx,
    ".docx": read_docx,
}
"""By the ending of a file: how such a document is read."""


def read_document(content: bytes, path: Path, *, numbers: bool = False, **options: Any) -> DocumentParts:
    """A document, apart. `path`: what it is called. `options`: of its kind."""
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise UserError(
            "{path}: a document to translate ends in one of {kinds}", path=path, kinds=", ".join(sorted(KINDS))
        )
    return kind(content, path, numbers=numbers, **options)


def translate_document(model: Any, path: Path, *, numbers: bool = False, **options: Any) -> bytes:
    """The document of this file in the other language. `numbers`: they stay as they are, to the byte, as placeholders, addresses
    and code do in any case. How many texts had to be left as they are is said on stderr."""
    from glassformer.tasks.markup import translate_segments  # torch, which reading needs nothing of

    try:
        content = path.read_bytes() if path.suffix.lower() in KINDS else b""
    except OSError as error:
        raise UserError("{path} cannot be read: {reason}", path=path, reason=error.strerror or error) from None
    known = {}
    if path.suffix.lower() == ".tmx":
        data = model.recipe.data
        known = {"languages": (data.source_languages, data.target_language)}
    document = read_document(content, path, numbers=numbers, **known)
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
