"""Texts as they come: lines of a file, of a pipe or of a person's keyboard, each with its number and what is wrong with it.

A line that cannot be answered (not UTF-8, a NUL, far too long) keeps its place; nothing of it is ever held whole.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from glassformer.errors import ConfigError, UserError
from glassformer.files.user_data import GIVEN_BY_SHELL
from glassformer.language import _

READ = 1 << 16
WRITER = 10  # seconds for somebody to begin writing into a named pipe
GZIP = b"\x1f\x8b"  # the first bytes of what gzip has packed
LONGEST_LINE = 400_000  # bytes; no text that is short enough to be answered has more


@dataclass(slots=True)  # not frozen: one is made for every line of a file
class Line:
    """One text, by the number of its line; `problem` says why it cannot be answered."""

    number: int  # from 1
    text: str
    problem: str | None = None

    @property
    def blank(self) -> bool:
        """Nothing is asked, so nothing is answered."""
        return self.problem is None and not self.text.strip()


def check_line(text: str, number: int) -> Line:
    """A text, and whether it is one."""
    from glassformer.tasks.text_model import check_text

    try:
        return Line(number, check_text(text))
    except UserError as error:
        return Line(number, "", str(error))


def read_line(raw: bytes, number: int) -> Line:
    """One line of a file, without its end."""
    if len(raw) > LONGEST_LINE:
        return Line(number, "", f"the line has more than {LONGEST_LINE:,} bytes; break it into lines")
    if number == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return check_line(raw.removesuffix(b"\r").decode("utf-8"), number)
    except UnicodeDecodeError as error:
        return Line(
            number,
            "",
            _("byte {place} (0x{byte:02x}) is not UTF-8; convert the text to UTF-8", error.start + 1, raw[error.start]),
        )


def raw_lines(read: Callable[[int], bytes]) -> Iterator[list[bytes]]:
    """Whole lines, as many at a time as one read brings. Of a line too long to be answered only the beginning is kept."""
    start = b""
    while block := read(READ):
        first, *others = block.split(b"\n")
        start = (start + first)[: LONGEST_LINE + 1]
        if others:
            yield [start, *others[:-1]]
            start = others[-1]
    if start:
        yield [start]


def read_groups(
    read: Callable[[int], bytes], batch: int, most: int, *, promptly: bool, before: int = 0
) -> Iterator[list[Line]]:
    """Groups of lines. Promptly: what has come is a group, so nobody waits for lines that are not there yet; a model that
    is busy finds more lines waiting the next time, of which it takes one batch at first and then more. Else every group but
    the last has the size `most`, so groups always begin at the same lines. So many lines stand `before` the first."""
    group: list[Line] = []
    most = max(1, batch, most)
    size = max(1, batch) if promptly else most
    number = before
    for lines in raw_lines(read):
        for raw in lines:
            number += 1
            group.append(read_line(raw, number))
            if len(group) == size:
                yield group
                group, size = [], min(4 * size, most)
        if promptly and group:
            yield group
            group = []
    if group:
        yield group


def open_pipe(path: Path) -> BinaryIO:
    """A named pipe, once somebody has opened its other end: until then opening it would wait, and nobody may ever come."""
    found: list[BinaryIO] = []
    opening = threading.Thread(target=lambda: found.append(path.open("rb", buffering=0)), daemon=True)  # type: ignore[arg-type]
    opening.start()
    opening.join(WRITER)
    if not found:
        raise UserError(
            "{path} is a pipe, and for {writer} seconds nobody has opened it to write; start the writer first, "
            "or give a file",
            path,
            WRITER,
        )
    return found[0]


def open_lines(path: Path) -> BinaryIO:
    """A file of lines, or a pipe such as the shell's <(command); nothing else has an end."""
    try:
        named_pipe = stat.S_ISFIFO(path.stat().st_mode) and not path.as_posix().startswith(GIVEN_BY_SHELL)
        file = open_pipe(path) if named_pipe else path.open("rb", buffering=0)
    except IsADirectoryError:
        raise ConfigError("--file takes a file with a text a line, and {path} is a folder", path) from None
    except OSError as error:
        raise UserError("{path} cannot be read: {reason}", path, error.strerror) from None
    kind = os.fstat(file.fileno()).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        file.close()
        raise ConfigError("--file takes a file with a text a line, and {path} is a device", path)
    if stat.S_ISREG(kind) and os.pread(file.fileno(), len(GZIP), 0) == GZIP:
        file.close()
        raise ConfigError(
            "--file takes a file with a text a line, and {path} is packed; unpack it: gunzip -k {path}", path
        )
    return file  # type: ignore[return-value]
