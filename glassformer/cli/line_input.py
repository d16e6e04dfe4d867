"""Texts as they come: lines of a file, of a pipe or of a person's keyboard, each with its number and what is wrong with it.

A line that cannot be answered (not UTF-8, a NUL, far too long) keeps its place; nothing of it is ever held whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from glassformer.errors import UserError
from glassformer.language import _

READ = 1 << 16
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
        place, byte = error.start + 1, raw[error.start]
        return Line(number, "", _("byte {place} (0x{byte:02x}) is not UTF-8; convert the text to UTF-8", place, byte))


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


def read_groups(read: Callable[[int], bytes], batch: int, most: int, *, promptly: bool) -> Iterator[list[Line]]:
    """Groups of lines. Promptly: what has come is a group, so nobody waits for lines that are not there yet; a model that
    is busy finds more lines waiting the next time, of which it takes one batch at first and then more. Else every group but
    the last has the size `most`, so groups always begin at the same lines."""
    group: list[Line] = []
    size = batch if promptly else most
    number = 0
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
