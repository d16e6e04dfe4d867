"""A document, apart: its texts as segments, everything else as it stands, and how it is put together again."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glassformer.errors import UserError
from glassformer.text.markup import Segment

LARGEST = 64 << 20  # bytes of what is packed in one file


@dataclass
class DocumentParts:
    """What is to be translated of a document, and the document that comes of it.

    `parts`: text that stays, and segments. `escape` makes text of the document's kind from a plain one, `written` the file from
    the parts in the other language. `left`: texts that stay as they are, for want of a way to carry their form over."""

    parts: list[str | Segment]
    escape: Callable[[str], str]
    written: Callable[[list[str]], bytes]
    left: int = 0


def as_is(text: str) -> str:
    """Text that needs no escaping."""
    return text


def has_words(text: str) -> bool:
    """Is there a letter in it?"""
    return any(letter.isalpha() for letter in text)


def joined_like(content: bytes) -> Callable[[list[str]], bytes]:
    """Puts parts one behind the other, as UTF-8, with the mark of it in front where the document had one."""
    encoding = "utf-8-sig" if content.startswith(codecs.BOM_UTF8) else "utf-8"
    return lambda parts: "".join(parts).encode(encoding)


def decoded(content: bytes, path: Path) -> str:
    """A document's text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("{path} is not UTF-8", path=path) from None
