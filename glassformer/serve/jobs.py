"""What one request asks of a model: rows to be decoded, and what is made of them.

A job is made on the event loop and handed to a worker, whose thread calls `rows`, `take`, `written` and `result`; the loop
waits for `reply`, reads `events` where it streams, and may `cancel` at any time. `rows` and `result` are generators: between any
two of their items the worker turns to others, and looks whether anybody still waits for this one.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.decode import Hypothesis, Request
from glassformer.serve.api_errors import APIError
from glassformer.tasks import TextModel

numbers = itertools.count()


@dataclass(eq=False)
class QueuedText:
    """One text to be decoded: the `place`-th of its job. Rows of equal settings are decoded side by side."""

    job: ServerJob
    place: int
    request: Request
    settings: DecodeConfig
    trace: bool = False
    group: int = 0  # rows that failed together are tried again in smaller groups
    number: int = -1  # by which its driver knows it
    seen: int = 0  # tokens of its first sample that have been told

    @property
    def key(self) -> tuple[DecodeConfig, bool, int]:
        """What a driver must be made for."""
        return self.settings, self.trace, self.group


@lru_cache(256)  # to check settings takes longer than to make a row
def shared_settings(settings: DecodeConfig) -> DecodeConfig:
    """The settings without the limits and the seed, which stand in each request, so that askers who differ in those share a
    driver."""
    return replace(settings, seed=1, max_new_tokens=None, min_new_tokens=0)


class LoopCalls:
    """Calls for an event loop from another thread, in order. The loop is woken once for all that have come by the time it looks:
    to wake it is a system call, for which the other thread lets go of Python's lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def add(self, loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
        """Have the loop call this; RuntimeError where it is closed."""
        with self.lock:
            if not self.calls or loop.is_closed():
                loop.call_soon_threadsafe(self.run, loop)
            self.calls.append((function, arguments))

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the loop: all that have come."""
        with self.lock:
            calls, self.calls = self.calls, []
        for function, arguments in calls:
            loop.call_soon(function, *arguments)


calls_of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls] = weakref.WeakKeyDictionary()


class ServerJob:
    """The base of all jobs: how an answer finds its way back to the event loop."""

    streams = False
    alone = False  # decoded in a driver of its own, which is not kept

    def __init__(self) -> None:
        self.id = next(numbers)
        self.loop = asyncio.get_running_loop()
        self.loop_calls = calls_of.setdefault(self.loop, LoopCalls())
        self.reply: asyncio.Future[Any] = self.loop.create_future()
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.cancelled = False  # nobody waits any more
        self.unknown: list[list[str]] = []  # of each text, the words or characters that are not in the vocabulary
        self.left = 1  # rows that are still being decoded, and one while rows are being made

    def rows(self, model: TextModel) -> Iterator[QueuedText]:
        """What is to be decoded. Mistakes of the asker are raised here."""
        yield from ()

    def take(self, row: QueuedText, hypotheses: list[Hypothesis]) -> None:
        """Called with the hypotheses of a row when it has been decoded; a job keeps what it needs of them."""

    def written(self, row: QueuedText, sample: int, tokens: Sequence[tuple[int, float]]) -> None:
        """All that a row has written so far, where the job streams."""

    def result(self, model: TextModel) -> Generator[None, None, Any]:
        """The answer, when every row has its own."""
        yield from ()

    def cancel(self) -> None:
        """Nobody waits any more: the worker stops between two steps. Nothing, where the answer is there."""
        self.reply.cancel()  # it may be already: a task that is cancelled cancels what it awaits
        self.cancelled = self.reply.cancelled()

    def check_wanted(self) -> None:
        """Ends work, by an error, that nobody waits for any more; for a function to call where it cannot yield."""
        if self.cancelled:
            raise APIError(499, "whoever asked has gone")

    # ---- from the worker's thread to the loop

    def finish(self, value: Any) -> None:
        """Gives whoever awaits `reply` this value, and ends `events` with None."""
        self.call_soon(self.settle, self.reply.set_result, value)

    def fail(self, error: BaseException) -> None:
        """Raises this error where `reply` is awaited, and ends `events` with None."""
        self.call_soon(self.settle, self.reply.set_exception, error)

    def emit(self, event: Any) -> None:
        """A piece of the answer, ahead of the rest."""
        self.call_soon(self.events.put_nowait, event)

    def settle(self, set_reply: Callable[[Any], None], value: Any) -> None:
        """The end of it, once."""
        if not self.reply.done():
            set_reply(value)
            self.events.put_nowait(None)

    def call_soon(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have something done on the loop; one that is closed has nobody left to tell."""
        try:
            self.loop_calls.add(self.loop, function, *arguments)
        except RuntimeError:
            self.cancelled = True


class FunctionJob(ServerJob):
    """A job without rows: a function of the model, in the model's thread. A long one is a generator, which returns the answer: at
    each yield others have their turn, and what nobody waits for any more ends."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def result(self, model: TextModel) -> Generator[None, None, Any]:
        """What the function returns for this model."""
        yield from ()
        found = self.function(model)
        return (yield from found) if isinstance(found, Generator) else found
