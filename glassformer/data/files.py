"""Files as lines and as documents, each opened once, read once through and never held whole.

Lines end at a newline and nowhere else (not at the other separators of Unicode), or two aligned files would come apart. A
long document comes in pieces. Any file may be gzipped. What is wrong with a line is said with its file and number, through
the `ReadContext`: normally that ends it; with data.on_error="skip" the line is left out and counted, and whoever hands in
something else reads on.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from glassformer.errors import UserError
from glassformer.files.user_data import FileFacts, UserFile
from glassformer.language import _
from glassformer.screen import say

PIECE_BYTES = 1 << 20  # of a long document, at a time
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SHOWN_LINES = 5  # of those that are skipped


@dataclass(frozen=True)
class Document:
    """A document, or a piece of one: `ends` says whether it is the last piece."""

    text: str
    ends: bool


class BadLine(UserError):
    """One line that cannot be used, or one file; `kind` is a word for counting."""

    def __init__(self, kind: str, path: Path | str, line: int | None, problem: str) -> None:
        if line is None:
            super().__init__(_("{path}: {problem}", path, problem))
        else:
            super().__init__(_("{path}, line {line}: {problem}", path, line, problem))
        self.kind, self.path, self.line, self.problem = kind, str(path), line, problem


class Unusable(Exception):
    """Why a line or a record cannot be used, told by who does not know where it stands; `kind` as of `BadLine`."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind, self.problem = kind, problem


T = TypeVar("T")
ErrorHandler = Callable[[BadLine], None]


def refuse(problem: BadLine) -> None:
    """Ends the reading at the first line that cannot be used, and says how to go on without it."""
    if problem.line is None:
        raise problem
    raise UserError(
        "{problem} (data.on_error=skip leaves such lines out, and `glassformer data check` finds them all)", problem
    )


def ignore(problem: BadLine) -> None:
    """Leaves the line out without a word."""


@functools.lru_cache(maxsize=64)
def tell_utf_16(path: Path) -> None:
    """Says once what a file was read as."""
    say(_("{path} is read as UTF-16, by its byte order mark", path))


@dataclass
class ReadContext:
    """One reading of some files: what is done about a bad line, and what is remembered of each file that was read whole."""

    complain: ErrorHandler = refuse
    remark: ErrorHandler = ignore  # of what can be read and is worth a look, such as a third column
    files: list[FileFacts] = field(default_factory=list)
    keep_facts: bool = False
    open_files: list[UserFile] = field(default_factory=list)

    def position(self) -> int:
        """Bytes read so far, packed as they are."""
        return sum(file.size for file in self.files) + sum(file.reader.position for file in self.open_files)

    def attempt(self, path: Path | str, line: int | None, read: Callable[..., T], *values: Any) -> T | None:
        """What `read` makes of some values; None after a complaint if they cannot be used."""
        try:
            return read(*values)
        except Unusable as error:
            self.complain(BadLine(error.kind, path, line, error.problem))
            return None

    @contextmanager
    def opened(self, path: Path) -> Iterator[UserFile]:
        """The file, open for this reading; when it has been read its size and checksum are kept."""
        with UserFile(path) as file:
            if file.is_utf_16:
                tell_utf_16(path)
            self.open_files.append(file)
            try:
                yield file
                if self.keep_facts:
                    self.files.append(file.facts())
            finally:
                self.open_files.remove(file)


@dataclass
class Skipped:
    """A way to complain: the line is left out and counted, and the first few are kept to be shown. What is wrong with a file
    as a whole still ends the reading."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def __call__(self, problem: BadLine) -> None:
        if problem.line is None:
            raise problem
        self.count += 1
        if len(self.first) < SHOWN_LINES:
            self.first.append(str(problem))


def probable(raw: bytes) -> str:
    """The encoding that some bytes that are no UTF-8 are probably in: each character of Chinese is a pair of high bytes.

    >>> probable("你好, Welt".encode("gb18030")), probable("schön".encode("cp1252"))
    ('gb18030', 'cp1252')
    """
    runs = re.findall(rb"[\x80-\xff]+", raw)
    return "gb18030" if all(len(run) % 2 == 0 for run in runs) else "cp1252"


def cure(path: Path | str, encoding: str) -> str:
    """How to make a file UTF-8 that is not."""
    name = os.path.basename(path)
    copy = shlex.quote(f"utf8-{name}")
    return _("make it UTF-8: iconv -f {encoding} -t utf-8 {name} > {copy}", encoding, shlex.quote(name), copy)


def decode(raw: bytes, path: Path, line: int, complain: ErrorHandler) -> str | None:
    """UTF-8; or None, after a complaint that names the line on which the first bad byte stands."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line += raw[: error.start].count(b"\n")
        problem = _("not valid UTF-8 (byte 0x{raw:02x}); {cure}", raw[error.start], cure(path, probable(raw)))
        complain(BadLine("encoding", path, line, problem))
        return None


def all_lines(path: Path, context: ReadContext) -> Iterator[tuple[int, str | None]]:
    """Every line with its number; None for one that is not UTF-8 and was complained of."""
    number = 1
    with context.opened(path) as file:
        while block := file.read_lines():
            if number == 1:
                block = block.removeprefix(BYTE_ORDER_MARK)
            raw = block.removesuffix(b"\n")
            lines: Iterable[str | None]
            try:
                if b"\r" in raw:
                    raise ValueError("lines to be looked at one by one")
                lines = raw.decode("utf-8").split("\n")
            except ValueError:
                lines = (good_line(line, path, n, context) for n, line in enumerate(raw.split(b"\n"), number))
            yield from enumerate(lines, number)
            number += raw.count(b"\n") + 1


def good_line(raw: bytes, path: Path, number: int, context: ReadContext) -> str | None:
    """A line without its end; None after a complaint."""
    raw = raw.removesuffix(b"\r")
    if raw.count(b"\r") > 1:
        problem = "lines end in CR alone, as on old Macintoshes; save the file with LF or CRLF (tr '\\r' '\\n')"
        context.complain(BadLine("line ends", path, number, problem))
        return None
    return decode(raw, path, number, context.complain)


def numbered_lines(path: Path, context: ReadContext | None = None) -> Iterator[tuple[int, str]]:
    """The lines that can be used, each with its number in the file."""
    for number, line in all_lines(path, context or ReadContext()):
        if line is not None:
            yield number, line


def good_text(raw: bytes, path: Path, line: int, complain: ErrorHandler) -> str:
    """Several lines; those that are not UTF-8 are complained of one by one and left out."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        lines = (decode(raw_line, path, line + i, complain) for i, raw_line in enumerate(raw.splitlines(keepends=True)))
        return "".join(raw_line for raw_line in lines if raw_line is not None)


def raw_pieces(file: UserFile) -> Iterator[bytes]:
    """The bytes of a file in pieces that end at a line's end, or, in an endless line, anywhere between two characters."""
    held = b""
    while block := file.read(PIECE_BYTES):
        if file.position == len(block):
            block = block.removeprefix(BYTE_ORDER_MARK)
        # What is held so far is followed by more: give away its whole lines, keep the rest.
        cut = last_border(held)
        if cut:
            yield held[:cut]
        held = held[cut:] + block
    if held:
        yield held


def split_at(pieces: Iterable[bytes], border: int | None, size: int) -> Iterator[tuple[int, bytes]]:
    """The pieces with 0 before the border and 1 after it. The border moves to the start of the next line, if there is one in
    its piece, and at least to the start of a character."""
    place = part = 0
    for raw in pieces:
        end = place + len(raw)
        if border is not None and part == 0 and border < end:
            offset = max(0, border - place)
            cut = raw.find(b"\n", offset) + 1
            if cut == 0 or (cut == len(raw) and end >= size):
                inside = (i for i in range(offset, len(raw)) if raw[i] & 0b1100_0000 != 0b1000_0000)
                cut = next(inside, len(raw))
            if cut:
                yield 0, raw[:cut]
            part, raw = 1, raw[cut:]
        if raw:
            yield part, raw
        place = end


def document_pieces(file: UserFile, context: ReadContext, border: int | None = None) -> Generator[tuple[int, Document]]:
    """An open file as a document in pieces, each with the number of its part: all 0; or, with a border (a number of bytes), 0
    for what stands before it and 1 for what stands after it, each of which ends as a document does."""
    size = file.content_size() if border is not None else 0
    line = 1
    waiting: tuple[int, Document] | None = None
    for part, raw in split_at(raw_pieces(file), border, size):
        text = good_text(raw, file.path, line, context.complain)
        line += raw.count(b"\n")
        if waiting is not None:
            yield waiting[0], replace(waiting[1], ends=waiting[0] != part)
        waiting = part, Document(text, ends=True)
    if waiting is not None:
        yield waiting


def last_border(raw: bytes) -> int:
    """The last place to cut: after a newline; where there is none, before the last character, which may be incomplete."""
    newline = raw.rfind(b"\n")
    if newline >= 0 or not raw:
        return newline + 1
    for back in range(1, min(4, len(raw)) + 1):
        if raw[-back] & 0b1100_0000 != 0b1000_0000:  # not a continuation byte: a character starts here
            return len(raw) - back
    return len(raw)


def files_below(folder: Path) -> list[Path]:
    """All files of a folder and its folders, in the order of their names; hidden ones are left alone."""
    paths = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(parent) / name for name in names if not name.startswith(".")]
    return sorted(paths, key=lambda path: path.relative_to(folder).as_posix())
