"""What one request asks of a model: rows to be decoded, and what is made of them.

A job is made on the event loop and handed to a worker, whose thread calls `rows`, `take`, `written` and `result`; the loop
waits for `reply`, reads `events` where it streams, and may `cancel` at any time. `rows` and `result` are generators: between
any two of their items the worker turns to others, and looks whether anybody still waits for this one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.decode import Hypothesis, Request
from glassformer.serve.requests import APIError
from glassformer.tasks import TextModel

numbers = itertools.count()


@dataclass(eq=False)
class QueuedText:
    """One text to be decoded: the `place`-th of its job. Rows of equal settings are decoded side by side."""

    job: ServerJob
    place: int
    request: Request
    settings: DecodeConfig
    group: int = 0  # one that failed among others is tried again in a group of its own
    number: int = -1  # by which its driver knows it
    streamed_tokens: int = 0  # of its first sample

    @property
    def key(self) -> tuple[DecodeConfig, int]:
        """What a driver must be made for."""
        return self.settings, self.group


@lru_cache(256)  # to check settings takes longer than to make a row
def shared_settings(settings: DecodeConfig) -> DecodeConfig:
    """The settings without the limits and the seed, which stand in each request, so that clients who differ in those share a
    driver."""
    return replace(settings, seed=1, max_new_tokens=None, min_new_tokens=0)


class ServerJob:
    """The base of all jobs: how an answer finds its way back to the event loop."""

    streams = False

    def __init__(self) -> None:
        self.id = next(numbers)
        self.loop = asyncio.get_running_loop()
        self.reply: asyncio.Future[Any] = self.loop.create_future()
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.cancelled = False  # nobody waits any more
        self.unknown: list[list[str]] = []  # of each text, the words or characters that are not in the vocabulary
        self.pending_rows = 1  # rows that are still being decoded, and one while rows are being made
        self.outbox: list[Callable[[], None]] = []  # of its worker: calls for the loop, which is woken once for many

    def rows(self, model: TextModel) -> Iterator[QueuedText]:
        """What is to be decoded. Mistakes of the client are raised here."""
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

    def check_awaited(self) -> None:
        """Ends work, by an error, that nobody waits for any more; for a function to call where it cannot yield."""
        if self.cancelled:
            raise APIError(499, "whoever asked has gone")

    # ---- from the worker's thread to the loop

    def finish(self, value: Any) -> None:
        """Gives whoever awaits `reply` this value, and ends `events` with None."""
        self.outbox.append(partial(self.settle, self.reply.set_result, value))

    def fail(self, error: BaseException) -> None:
        """Raises this error where `reply` is awaited, and ends `events` with None."""
        self.outbox.append(partial(self.settle, self.reply.set_exception, error))

    def emit(self, event: Any) -> None:
        """A piece of the answer, ahead of the rest."""
        self.outbox.append(partial(self.events.put_nowait, event))

    def settle(self, set_reply: Callable[[Any], None], value: Any) -> None:
        """The end of it, once."""
        if not self.reply.done():
            set_reply(value)
            self.events.put_nowait(None)


class FunctionJob(ServerJob):
    """A job without rows: a function of the model, in the model's thread. A long one is a generator, which returns the answer:
    at each yield others have their turn, and what nobody waits for any more ends."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def result(self, model: TextModel) -> Generator[None, None, Any]:
        """What the function returns for this model."""
        yield from ()
        value = self.function(model)
        return (yield from value) if isinstance(value, Generator) else value
