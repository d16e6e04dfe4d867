"""What a person reads while a command works. The screen is never a reason to stop: a reader that goes away, a closed or a
full stderr costs the words and nothing else."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any


class Unbreakable:
    """A text stream that loses words rather than raise. Everything else is the stream's own."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Writes, with question marks for letters the stream does not have, and not at all once it is closed."""
        try:
            return self.stream.write(text)
        except UnicodeEncodeError:
            encoding = self.stream.encoding or "ascii"
            return self.write(text.encode(encoding, "replace").decode(encoding))
        except (OSError, ValueError):
            self.give_up()
            return len(text)

    def flush(self) -> None:
        """Flushes, unless nobody is there any more."""
        try:
            self.stream.flush()
        except (OSError, ValueError):
            self.give_up()

    def give_up(self) -> None:
        """What is buffered would be tried again at every flush, and at the exit: nobody is there to have it."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def unbreakable_screen() -> Iterator[None]:
    """Inside, neither stdout nor stderr can stop the work."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (s if s is None else Unbreakable(s) for s in (out, err))  # type: ignore[assignment]
    try:
        yield
    finally:
        for mine in (sys.stdout, sys.stderr):
            if isinstance(mine, Unbreakable):
                mine.flush()
        sys.stdout, sys.stderr = out, err


def open_standard_streams() -> None:
    """A process started with a stream closed would give its number to the first file it opens, and then write words into
    that file. So numbers 0 to 2 are taken."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", errors="replace", closefd=False))
