"""A document, apart: its texts as segments, everything else as it stands, and how it is put together again."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glassformer.errors import UserError
from glassformer.text.markup import Segment

LARGEST = 64 << 20  # bytes of what is packed in one file
ENCODINGS = frozenset(
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii", "koi8-r", "koi8-u", "tis-620", "mac-roman"]
    + [f"iso8859-{part}" for part in range(1, 17)]
    + [f"cp{page}" for page in (437, 850, 852, 866, 874, 932, 949, 950, *range(1250, 1259))]
    + ["gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr"]
)
"""By the names of Python's codecs."""


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


def checked_encoding(name: str, path: Path) -> str:
    """The encoding of this name, if texts are written in it: Python knows others (`punycode`, `undefined`, `utf-7`), which hide
    what a text says or take very long."""
    try:
        if codecs.lookup(name).name in ENCODINGS:
            return name
    except (LookupError, ValueError):  # of a name that no codec could have
        pass
    raise UserError("{path} is in {encoding!r}, which is not read; save it as UTF-8", path, name[:40])


def decoded(content: bytes, path: Path) -> str:
    """A document's text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("{path} is not UTF-8", path=path) from None
