"""The one thread that owns a model: it takes jobs in, decodes their rows side by side, and hands answers back.

Rows enter a driver when there is room and leave when they are done (continuous batching); rows of different settings are in
different drivers, which take turns step by step. Between two steps the worker looks at what has come and what has been given
up, so that a client who goes away stops costing within one step; and for a moment it makes rows and puts answers together, one
item of each job in turn, so that a job of very many rows keeps nobody waiting. Rows in a driver whose step fails are tried
again one by one: what cannot be answered fails alone.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.decode import Driver
from glassformer.decode.captured import make_driver
from glassformer.serve.jobs import QueuedText, ServerJob
from glassformer.serve.requests import APIError, Limits, as_api_error
from glassformer.tasks import TextModel

DRIVERS = 8  # settings decoded side by side; more wait for one of these to be free
IDLE_SECONDS = 30.0  # a driver without work keeps its cache so long
LONGEST_WAIT = 60  # seconds after which whoever was sent away is asked to come again, at most
PAUSE_SECONDS = 0.05  # that a row waits for others to be taken in with, at most
CHORE_SECONDS = 0.02  # between two steps, for making rows and putting answers together
NAP = 0.5  # between two signs of life where there is nothing to do


def log_name(error: BaseException) -> str:
    """An error for the log: its type, and where in the code. Its words may hold what somebody wrote, so they stay out."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__ + place


def run_all(calls: list[Callable[[], None]]) -> None:
    """On the event loop: each call in order."""
    for call in calls:
        call()


@dataclass
class DriverSlot:
    """A driver, when it last made a step, and until when it takes nobody in."""

    driver: Driver
    used_at: float
    closed_until: float = 0.0


class Worker:
    """One model in one thread. Everything without an underscore may be called from any thread."""

    def __init__(self, model: TextModel, limits: Limits, report: Callable[[str], None] = lambda _: None) -> None:
        self.model, self.limits, self.report = model, limits, report
        self._slots: dict[Any, DriverSlot] = {}
        self._waiting: dict[int, deque[QueuedText]] = {}  # rows by job, whose turn it is first
        self._rows: dict[int, QueuedText] = {}  # in a driver, by number
        self._jobs: dict[int, ServerJob] = {}
        self._chores: deque[tuple[ServerJob, Iterator[None]]] = deque()
        self._inbox: deque[ServerJob] = deque()
        self._outbox: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # of its jobs
        self._changed = threading.Condition()
        self._numbers, self._groups = itertools.count(), itertools.count(1)
        self._closing = False
        self.held = 0  # jobs that are not done
        self.steps = 0  # made so far
        self.failures = 0  # jobs that failed by no fault of their clients
        self.done_at: deque[float] = deque(maxlen=64)  # when the last jobs were done
        self.moved_at = time.monotonic()
        self.thread = threading.Thread(target=self._live, name="glassformer-worker", daemon=True)
        self.thread.start()

    # ---- from any thread

    def submit(self, job: ServerJob) -> None:
        """Take a job in, or refuse it at once where too much waits already."""
        with self._changed:
            if self._closing:
                raise APIError(503, "this model is being put away; ask again", retry=1)
            if self.full:
                raise self.overloaded()
            if not self.held:
                self.moved_at = time.monotonic()
            self.held += 1
            job.outbox, self._loop = self._outbox, job.loop
            self._inbox.append(job)
            self._changed.notify()

    @property
    def full(self) -> bool:
        """Is there no room for another job?"""
        return self.held >= self.limits.queue

    def overloaded(self) -> APIError:
        """The 429 error for a full queue, to come again when what is held will be answered by how fast it went lately."""
        spent = time.monotonic() - self.done_at[0] if self.done_at else 0.0
        seconds = math.ceil(spent * self.held / max(1, len(self.done_at)))
        return APIError(
            429,
            f"{self.held} requests are waiting or being answered, which is all this server takes at a time; come again",
            code="rate_limit_exceeded",
            retry=min(LONGEST_WAIT, max(1, seconds)),
        )

    def stuck_for(self) -> float:
        """For how many seconds there have been jobs and no movement."""
        return time.monotonic() - self.moved_at if self.held else 0.0

    def close(self) -> None:
        """No new jobs; the thread ends when it has answered what it holds."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    # ---- the thread

    def _live(self) -> None:
        """Whatever happens to a turn, the next one comes."""
        while True:
            try:
                while self._turn():
                    pass
                return
            except BaseException as error:  # even one that was meant to end the thread: requests wait for it
                self.report(f"the worker started again after {log_name(error)}")
                for held in (self._slots, self._rows, self._chores, self._waiting):
                    held.clear()
                for job in list(self._jobs.values()):
                    self._settle(job, error=error)
                self._deliver()

    def _turn(self) -> bool:
        """Look around, then one token more for everybody. False: all is done, and nothing more will come."""
        with self._changed:
            if not self._inbox and not self._jobs:
                if self._closing:
                    return False
                self._changed.wait(NAP)
            new = list(self._inbox)
            self._inbox.clear()
            self._jobs.update({job.id: job for job in new})
        self.moved_at = time.monotonic()
        self._chores.extend((job, self._make_rows(job)) for job in new)
        for job in [job for job in self._jobs.values() if job.cancelled]:
            self._fail(job)
        self._do_chores()
        self._feed()
        for key, slot in list(self._slots.items()):
            if slot.driver.busy:
                self._step(key, slot)
        self._tidy()
        self._deliver()
        return True

    def _do_chores(self) -> None:
        """For a moment: an item of each job in turn. A job that is over, or that nobody waits for any more, has none."""
        until = time.monotonic() + CHORE_SECONDS
        while self._chores and time.monotonic() < until:
            job, items = self._chores.popleft()
            if job.id not in self._jobs or job.cancelled:
                continue
            try:
                next(items)
                self._chores.append((job, items))
            except StopIteration:
                pass
            except Exception as error:
                self._fail(job, error)

    def _make_rows(self, job: ServerJob) -> Iterator[None]:
        """A job's rows, into the queue one by one; more than one request may have are refused."""
        samples = 0
        for row in job.rows(self.model):
            samples += row.settings.num_samples
            self.limits.check_rows(samples)
            job.pending_rows += 1
            self._queue(row)
            yield
        self._row_done(job)

    def _queue(self, row: QueuedText) -> None:
        self._waiting.setdefault(row.job.id, deque()).append(row)

    def _next_row(self, fits: Callable[[Any], bool]) -> QueuedText | None:
        """The first waiting row of the first job whose driver has room; the job's others are behind those of every other
        job then, so that a request of a thousand texts and one of a single text take turns."""
        for number, rows in self._waiting.items():
            if fits(rows[0].key):
                row = rows.popleft()
                del self._waiting[number]
                if rows:
                    self._waiting[number] = rows
                return row
        return None

    def _row_done(self, job: ServerJob) -> None:
        """Another row of the job is decoded, or all are made; after the last its answer is put together."""
        job.pending_rows -= 1
        if not job.pending_rows:
            self._chores.append((job, self._completed(job)))

    def _completed(self, job: ServerJob) -> Iterator[None]:
        value = yield from job.result(self.model)
        self._settle(job, value=value)

    def _fail(self, job: ServerJob, error: BaseException | None = None) -> None:
        """A job ends by an error, or because nobody waits: its rows leave the queue and the drivers."""
        self._waiting.pop(job.id, None)
        numbers = {number for number, row in self._rows.items() if row.job is job}
        for number in numbers:
            del self._rows[number]
        for slot in self._slots.values() if numbers else ():
            slot.driver.cancel(numbers)
        self._settle(job, error=error)

    def _feed(self) -> None:
        """Rows that wait go to drivers that have capacity.

        To take rows in (to encode them, to move the cache) costs much the same for one as for many, and everybody else waits
        meanwhile. So after a step that took some in a busy driver goes on without others for as long as that step took."""
        now = time.monotonic()

        def capacities() -> dict[Any, int]:
            return {
                key: 0 if slot.driver.busy and now < slot.closed_until else slot.driver.free_capacity
                for key, slot in self._slots.items()
            }

        free = capacities() if self._waiting else {}

        def fits(key: Any) -> bool:
            return free.get(key, 0) > 0 or (key not in free and len(self._slots) < DRIVERS)

        while self._waiting and (row := self._next_row(fits)) is not None:
            key = row.key
            if key not in self._slots:
                self._slots[key] = DriverSlot(self._open(row), now)
                free = capacities()
            free[key] -= 1
            row.number = next(self._numbers)
            self._rows[row.number] = row
            try:
                for number, hypotheses in self._slots[key].driver.add(row.number, row.request):
                    self._take(number, hypotheses)
            except Exception as error:
                self._fail(row.job, error)

    def _open(self, row: QueuedText) -> Driver:
        # What streams is looked at after every step, which captured steps do not allow.
        make = Driver if row.settings.beams == 1 else make_driver
        decode, special_tokens = self.model.tokenizers.target.decode, self.model.special_tokens
        return make(self.model._model, row.settings, special_tokens, text=decode)

    def _step(self, key: Any, slot: DriverSlot) -> None:
        slot.used_at = began = time.monotonic()
        takes_in = bool(slot.driver.pending)
        try:
            finished = slot.driver.step()
            if takes_in:
                ended = time.monotonic()
                slot.closed_until = ended + min(ended - began, PAUSE_SECONDS)
            streaming = {n for n, row in self._rows.items() if row.job.streams and row.key == key}
            growing = slot.driver.partial_outputs(streaming) if streaming else {}
        except Exception as error:
            self._try_alone(key, error)
            return
        self.steps += 1
        for (number, sample), tokens in growing.items():
            row = self._rows.get(number)  # None: its job has just failed by another of its samples
            if row is not None and (sample or len(tokens) > row.streamed_tokens):
                row.streamed_tokens = max(row.streamed_tokens, len(tokens))
                try:
                    row.job.written(row, sample, tokens)
                except Exception as error:
                    self._fail(row.job, error)
        for number, hypotheses in finished:
            self._take(number, hypotheses)

    def _try_alone(self, key: Any, error: Exception) -> None:
        """A step failed: its rows are tried again, each in a driver of its own; one that was alone already has failed."""
        self._slots.pop(key, None)
        rows = [row for row in self._rows.values() if row.key == key]
        for row in rows:
            del self._rows[row.number]
            if len(rows) == 1:
                self._fail(row.job, error)
            else:
                row.group = next(self._groups)
                self._queue(row)

    def _take(self, number: int, hypotheses: Any) -> None:
        row = self._rows.pop(number, None)
        if row is None or row.job.id not in self._jobs:
            return
        try:
            row.job.take(row, hypotheses)
        except Exception as error:
            self._fail(row.job, error)
        else:
            self._row_done(row.job)

    def _settle(self, job: ServerJob, *, value: Any = None, error: BaseException | None = None) -> None:
        """The job is done, one way or another, and done once."""
        if self._jobs.pop(job.id, None) is None:
            return
        with self._changed:
            self.held -= 1
            self.done_at.append(time.monotonic())
        if error is not None:
            api_error = as_api_error(error)
            if api_error.status >= 500 and api_error is not error:
                self.failures += 1
                self.report(f"a request failed: {log_name(error)}")
            job.fail(api_error)
        elif not job.cancelled:
            job.finish(value)

    def _deliver(self) -> None:
        """Wakes the event loop once for all of a turn: each waking is a system call, which gives Python's lock away."""
        calls = self._outbox.copy()
        self._outbox.clear()
        if calls and self._loop is not None:
            with suppress(RuntimeError):  # it is closed, and nobody waits any more
                self._loop.call_soon_threadsafe(run_all, calls)

    def _tidy(self) -> None:
        """Drivers that nobody has used for a while, or in whose place others may be wanted, give their memory back; one made for
        a second try, at once."""
        patience = 0.0 if len(self._slots) >= DRIVERS else IDLE_SECONDS
        for key, slot in list(self._slots.items()):
            if not slot.driver.busy and (key[1] or time.monotonic() - slot.used_at > patience):
                del self._slots[key]
