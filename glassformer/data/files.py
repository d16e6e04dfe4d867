"""Files as lines and as documents, read once through and never held whole.

Lines end at a newline and nowhere else (not at the other separators of Unicode), or two aligned files would come apart. A
long document comes in pieces. Any file may be gzipped. What is wrong with a line is said with its file and number, through
`complain`: `refuse` ends the reading there; whoever hands in something else reads on.
"""

from __future__ import annotations

import gzip
import io
import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from glassformer.errors import UserError

PIECE_BYTES = 1 << 20  # of a long document, at a time
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """A document, or a piece of one: `ends` says whether it is the last piece."""

    text: str
    ends: bool


class BadLine(UserError):
    """One line that cannot be used, or one file; `kind` is a word for counting."""

    def __init__(self, kind: str, path: Path | str, line: int | None, problem: str) -> None:
        where = f"{path}" if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")
        self.kind, self.path, self.line = kind, str(path), line


Complain = Callable[[BadLine], None]


def refuse(problem: BadLine) -> None:
    raise problem


def open_bytes(path: Path) -> io.BufferedIOBase:
    try:
        if path.suffix == ".gz":
            return gzip.GzipFile(path, "rb")
        return open(path, "rb")
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def read_bytes(path: Path, read: Callable[[int], bytes], size: int = -1) -> bytes:
    try:
        return read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is not a whole gzip file ({error}); fetch or pack it again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def decode(raw: bytes, path: Path, line: int, complain: Complain) -> str:
    """UTF-8, or a complaint that names the line on which the first bad byte stands."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line += raw[: error.start].count(b"\n")
        problem = f"not valid UTF-8 (byte 0x{raw[error.start]:02x}); save the file as UTF-8"
        complain(BadLine("encoding", path, line, problem))
        return raw.decode("utf-8", errors="replace")


def numbered_lines(path: Path, complain: Complain = refuse) -> Iterator[tuple[int, str]]:
    with open_bytes(path) as handle:
        for number in itertools.count(1):
            raw = read_bytes(path, handle.readline)
            if not raw:
                return
            if number == 1:
                raw = raw.removeprefix(BYTE_ORDER_MARK)
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
            yield number, decode(raw, path, number, complain)


def document_pieces(
    path: Path, complain: Complain = refuse, begin: int = 0, end: int | None = None
) -> Iterator[Document]:
    """The bytes from `begin` to `end` of a file, in pieces that end at a line's end, or, in an endless line, anywhere
    between two characters. Both borders must stand between two characters."""
    line = 1
    with open_bytes(path) as handle:
        place, held = 0, b""
        # What comes before is read, not jumped over, since a complaint names the line in the whole file.
        while before := read_bytes(path, handle.read, min(PIECE_BYTES, begin - place)):
            place, line = place + len(before), line + before.count(b"\n")
        while True:
            size = PIECE_BYTES if end is None else min(PIECE_BYTES, end - place)
            block = read_bytes(path, handle.read, size)
            if place == 0:
                block = block.removeprefix(BYTE_ORDER_MARK)
            place += size
            if not block:
                if held:
                    yield Document(decode(held, path, line, complain), ends=True)
                return
            if held:
                # All that is held so far is followed by more: give away its whole lines, keep the rest.
                cut = last_border(held)
                if cut:
                    yield Document(decode(held[:cut], path, line, complain), ends=False)
                    line += held[:cut].count(b"\n")
                held = held[cut:]
            held += block


def last_border(raw: bytes) -> int:
    """The last place to cut: after a newline; where there is none, before the last character, which may be incomplete."""
    newline = raw.rfind(b"\n")
    if newline >= 0:
        return newline + 1
    for back in range(1, min(4, len(raw)) + 1):
        if raw[-back] & 0b1100_0000 != 0b1000_0000:  # not a continuation byte: a character starts here
            return len(raw) - back
    return len(raw)


def files_below(folder: Path) -> list[Path]:
    """All files of a folder and its folders, in the order of their names; hidden ones are left alone."""
    found = []
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(here) / name for name in names if not name.startswith(".")]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())
