"""What one request asks of a model: rows to be decoded, and what is made of them; and whose row is next.

A job is made on the event loop and handed to a worker, whose thread calls `rows`, `take`, `written` and `result`; the loop
waits for `reply`, reads `events` where it streams, and may `cancel` at any time. `rows` and `result` are generators: between
any two of their items the worker turns to others, and looks whether anybody still waits for this one.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from glassformer.config import DecodeConfig
from glassformer.decode import Hypothesis, Request
from glassformer.serve.requests import APIError
from glassformer.tasks import TextModel

Row = TypeVar("Row")
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
    streamed_tokens: int = 0  # of its first sample

    @property
    def key(self) -> tuple[DecodeConfig, bool, int]:
        """What a driver must be made for."""
        return self.settings, self.trace, self.group


@lru_cache(256)  # to check settings takes longer than to make a row
def shared_settings(settings: DecodeConfig) -> DecodeConfig:
    """The settings without the limits and the seed, which stand in each request, so that clients who differ in those share a
    driver."""
    return replace(settings, seed=1, max_new_tokens=None, min_new_tokens=0)


class LoopCalls:
    """Calls for an event loop from another thread, in order. The loop is woken once for all that have come by the time it
    looks: to wake it is a system call, for which the other thread lets go of Python's lock."""

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
    exclusive = False  # decoded in a driver of its own, which is not kept

    def __init__(self) -> None:
        self.id = next(numbers)
        self.loop = asyncio.get_running_loop()
        self.loop_calls = calls_of.setdefault(self.loop, LoopCalls())
        self.reply: asyncio.Future[Any] = self.loop.create_future()
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.cancelled = False  # nobody waits any more
        self.unknown: list[list[str]] = []  # of each text, the words or characters that are not in the vocabulary
        self.pending_rows = 1  # rows that are still being decoded, and one while rows are being made

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


class FairQueue(Generic[Row]):
    """Rows waiting, by client; each has a key, and only rows of some keys may fit. Everyone's share is the same, whether they
    ask for one row or for a thousand.

    Start-time fair queueing (Goyal, Vin and Cheng 1996): each client has a clock that a row moves on by its cost, and the row
    whose client's clock is earliest is next. Who comes new begins at the present, so nobody saves up turns.

    >>> queue = FairQueue[str]()
    >>> for row in ("a1", "a2", "a3"): queue.add("a", row, 1)
    >>> queue.add("b", "b1", 1)
    >>> [queue.take() for _ in range(4)]
    ['a1', 'b1', 'a2', 'a3']
    """

    def __init__(self) -> None:
        self.rows: dict[Hashable, deque[tuple[Row, int, Hashable]]] = {}
        self.clocks: dict[Hashable, float] = {}
        # By the key of their first row, the clients by their clocks. One who has left, or whose clock has moved on since, is
        # passed over.
        self.heaps: dict[Hashable, list[tuple[float, int, Hashable]]] = {}
        self.numbers = itertools.count()
        self.now = 0.0

    def __bool__(self) -> bool:
        return bool(self.rows)

    def add(self, client: Hashable, row: Row, cost: int, key: Hashable = None) -> None:
        """One row more for this client."""
        rows = self.rows.setdefault(client, deque())
        rows.append((row, cost, key))
        if len(rows) == 1:
            self.clocks[client] = self.now
            self.line_up(client)

    def line_up(self, client: Hashable) -> None:
        """The client's first row waits among those of its key."""
        heap = self.heaps.setdefault(self.rows[client][0][2], [])
        heappush(heap, (self.clocks[client], next(self.numbers), client))

    def first(self, key: Hashable) -> tuple[float, int, Hashable] | None:
        """Whose row of this key is next, with the clock and the order of coming."""
        heap = self.heaps[key]
        while heap:
            clock, _, client = heap[0]
            if client in self.rows and self.clocks[client] == clock and self.rows[client][0][2] == key:
                return heap[0]
            heappop(heap)
        del self.heaps[key]
        return None

    def take(self, fits: Callable[[Hashable], bool] = lambda _: True) -> Row | None:
        """The next row among the clients' first ones whose key fits; None where there is none."""
        firsts = [first for key in list(self.heaps) if fits(key) and (first := self.first(key)) is not None]
        if not firsts:
            return None
        clock, _, client = min(firsts)
        row, cost, key = self.rows[client].popleft()
        heappop(self.heaps[key])
        self.now = max(self.now, clock)
        self.clocks[client] += cost
        if self.rows[client]:
            self.line_up(client)
        else:
            self.drop(client)
        return row

    def drop(self, client: Hashable) -> None:
        """Remove everything this client has queued."""
        self.rows.pop(client, None)
        self.clocks.pop(client, None)
