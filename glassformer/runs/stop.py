"""Stopping on request: a signal asks, what must be whole is finished first, and --resume goes on from there. And saving while
training goes on, which a stop waits for.

What is to be written is copied first, so that the steps that follow cannot change it. A file is on the disk no earlier than
those asked for before it; a kill loses the write under way and nothing else. A write that fails is told at the next step.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

import torch
from torch import Tensor

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


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they are now, in the memory of the host."""
    return {name: t.detach().to("cpu", copy=True, memory_format=torch.contiguous_format) for name, t in tensors.items()}


class BackgroundWriter:
    """`with writer:` … `writer.submit(function)`; at the end of the block all is written."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="saving")
        self.pending: Future[None] | None = None

    def submit(self, write: Callable[[], None]) -> None:
        """Has this called in the background, once the write before it has ended: no more than one copy is held."""
        self.wait()
        self.pending = self.pool.submit(write)

    def check(self) -> None:
        """Raises what a write has failed with."""
        if self.pending is not None and self.pending.done():
            self.wait()

    def wait(self) -> None:
        """Waits until all is written; raises the error of a failed write."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> BackgroundWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *unused: object) -> None:
        # A stop says that all is saved, so a failed write comes before it; another error has its own cause, which is told.
        with suppress(*() if kind is None or issubclass(kind, Stopped) else (Exception,)):
            self.wait()
        self.pool.shutdown()
