"""Stopping on request: a signal asks, what must be whole is finished first, and --resume goes on from there."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

STOPPED = 75
"""The exit code of a run that was asked to stop, saved, and can go on with --resume."""


# A terminal that closes sends SIGHUP: that is no reason to lose work either.
ASKS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGTERM, signal.SIGINT)


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None], signals: Iterable[int]) -> Iterator[None]:
    """Inside, these signals are the handler's; in another thread than the main one they are nobody's to handle."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)


class Stopped(BaseException):
    """The run was asked to stop, and what there was to save is saved. Like KeyboardInterrupt no error, so nothing that
    handles errors along the way swallows it. `goes_on`: whether --resume goes on from there."""

    goes_on = True


class StopRequest:
    """SIGTERM, SIGHUP or Ctrl-C. The first one asks: a step and a save are finished, anything else (preparing data, building the
    model, a validation) is dropped where it stands and done again by whoever resumes. A second one ends the process at
    once, and a crash anywhere harms nothing."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.asked = False
        self.droppable = False

    def handler(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks for a stop after this step, the second stops at once."""
        if self.asked:
            os._exit(128 + number)
        self.asked = True
        # Not by print: the signal may have come in the middle of one.
        with suppress(OSError):
            os.write(2, b"" if self.silent else b"stopping after this step; once more to stop at once\n")
        if self.droppable:
            self.droppable = False
            raise Stopped

    def check(self) -> None:
        """Stops here where a stop was asked for."""
        if self.asked:
            raise Stopped

    def listening(self) -> AbstractContextManager[None]:
        """Inside, SIGINT and SIGTERM ask for a stop."""
        return handled_by(self.handler, ASKS)

    @contextmanager
    def may_drop(self) -> Iterator[None]:
        """What is done inside ends where it stands when a stop is asked for. The handler's exception may come up inside a
        library that turns it into another one, or loses it; a stop that was asked for is one all the same."""
        self.check()
        self.droppable = True
        try:
            yield
        except Exception:
            if not self.asked:
                raise
        finally:
            self.droppable = False
        self.check()
