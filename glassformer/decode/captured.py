"""Decoding on a CUDA device: the whole step, captured once for each bucket of shapes as a CUDA graph and replayed.

A small model's step is a few hundred kernels of a few microseconds; to launch them one by one, look at the result and
decide in Python what to do takes longer than the kernels. So the step is everything: embedding, layers, scores, the
search's choice, what has ended (decoder.py and search.py, by kernels where ops/triton.py has them). The host launches
the next few steps, then reads who was over before them (`poll`), sends for their answers, which come by a second
stream, and makes hypotheses of those that have arrived, all while the device works. Slots that are over are skipped by
the kernels until others take their places.

Cache, search state and graphs of a bucket are a `Session`, kept beside the decoder for the next call. What a graph
cannot do (glossaries, stop strings, traces, filters that look at what was written, a context that has to be read again)
is done step by step, as on a CPU, by the same decoder and the same search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from glassformer.config import DecodeConfig
from glassformer.decode.cache import Cache, on_device
from glassformer.decode.decoder import Decoder
from glassformer.decode.driver import Driver, Result
from glassformer.decode.engines import ELSEWHERE, kept_decoder, uses_plain_model
from glassformer.decode.graphs import GraphRunner, Session, sessions_of
from glassformer.decode.search import SearchState
from glassformer.decode.slots import Job
from glassformer.decode.stepper import CachedSteps, Steps, Texts, has_window
from glassformer.models.eval_mode import eval_mode

POLL = 2  # steps between two looks at who is done
STEP = 256  # slots from bucket to bucket, where there are many


def at_least(number: int) -> int:
    """The bucket of so many slots: few, since each is captured anew, and the fewer slots there are, the less one more costs."""
    return doubled(number, least=1) if number <= 2 * STEP else -(-number // STEP) * STEP


def doubled(number: int, *, least: int = 16) -> int:
    """The power of two that is at least so large."""
    return max(least, 1 << (number - 1).bit_length())


def rounded(number: int, *, least: int = 8) -> int:
    """The bucket of a width: steps of an eighth to a quarter of it, so that there are few and little is wasted."""
    step = least
    while number > 8 * step:
        step *= 2
    return -(-number // step) * step


class CapturedSteps(CachedSteps):
    """The decoder on a session's cache."""

    def __init__(self, decoder: Decoder, session: Session, bos: int, *, strict: bool) -> None:
        super().__init__(decoder, session.cache.slots, session.cache.beams, bos, strict=strict)
        self.cache: Cache = session.cache
        self.session = session
        self.whole_rows = True
        self.wide = decoder.skips_empty_columns(session.cache)  # if so, a bucket may be wide, and few are captured
        self.widths = np.zeros(session.cache.slots, dtype=np.int64)  # of the sources

    def enter(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int, width: int | None) -> None:
        """Sources in rows of a bucket's width."""
        if self.decoder.has_source:
            longest = max(map(len, texts))
            width = rounded(longest) if width is None else width
            if self.decoder.config.positions == "learned":
                width = min(width, max(longest, self.decoder.config.block_size))
            self.widths[start : start + len(jobs)] = width
        super().enter(start, jobs, texts, copies, width)
        c = self.decoder.config
        ends_at = c.block_size if (has_window(c) and not self.decoder.has_source) or c.positions == "learned" else 2**30
        self.cache.last_position = min(ends_at, self.tables()) - 1

    def tables(self) -> int:
        """So many positions are known."""
        found = [2**30]
        if self.decoder.positions is not None:
            positions = self.decoder.positions
            found.append((positions.weight if hasattr(positions, "weight") else positions.table).size(0))
        if self.decoder.model.rotary is not None:
            found.append(self.decoder.model.rotary.table.size(0))
        return min(found)

    def advance(self, n: int) -> None:
        """One token more for everybody, and the search's choice."""
        cache = self.cache
        reach = cache.filled(n) + self.beams
        source = int(self.widths[:n].max(initial=0)) if self.decoder.has_source else 0
        reach = doubled(reach, least=32) if self.wide else rounded(reach, least=max(16, 8 * min(self.beams, 4)))
        source = doubled(source) if self.wide and 0 < source <= 64 else source
        bucket = (at_least(n) if not self.strict else n, min(reach, cache.capacity), min(source, cache.source_capacity))
        self.session.runner.step(bucket)

    def move(self, rows: Sequence[int], places: Sequence[int], n: int) -> None:
        """As every stepper; the widths of the sources move along."""
        super().move(rows, places, n)
        self.widths[list(places)] = self.widths[list(rows)]


class CapturedDriver(Driver):
    """A driver that runs ahead of what it knows."""

    steps: Any

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        weight = next(self.model.parameters())
        self.device = weight.device
        self.polled: tuple[int, Any, torch.Tensor] | None = None  # slots, event, flags
        self.arriving: deque[tuple[list[Job], Any, list[torch.Tensor]]] = deque()
        self.gone = np.zeros(0, dtype=bool)  # slots whose answers have been sent for
        self.outgrows = False  # does a context have to be read again?

    @property
    def busy(self) -> bool:
        """Is anything waiting, being answered, or on its way to the host?"""
        return bool(self.pending or self.n or self.arriving)

    def start(self) -> tuple[Steps, SearchState]:
        """A session of the right kind: one that is free, or a new one."""
        config, beams = self.config, self.config.beams
        self.size = self.batch_size()
        self.decoder = decoder = kept_decoder(self.model, config, self.size * beams)
        if not self.more_may_come and not config.strict:
            self.size = min(self.size, len(self.pending))
        slots = at_least(self.size * self.samples) if not config.strict else self.size * self.samples
        # Twice as much as the next smaller: memory that grows later has to be captured on anew.
        longest = doubled(max(job.limit for *_, job in self.pending), least=64) + 1
        texts = doubled(max(length for length, *_ in self.pending), least=64)
        prompt, source = (0, texts) if self.has_source else (texts, 0)
        columns = rounded(prompt + longest * beams)
        sizes = (slots, columns, source, longest)
        # In strict mode every shape depends on the sentence alone, the memory's too.
        self.kind = (replace(config, seed=0, batch_size=None, engine="auto"), self.special, config.strict and sizes)
        session = sessions_of(decoder).take(self.kind, sizes)
        if session is None:
            cache = decoder.make_cache(slots, beams, columns, source, static=True)
            state = SearchState(
                slots, longest, config, self.special, device=self.device, dtype=cache.bias.dtype,
                vocabulary=self.shape.vocab_size, static=True,
            )  # fmt: skip
            state.topk = decoder.ops.topk
            session = Session(cache, state, GraphRunner(decoder, cache, state))
        session.state.config = config
        session.state.jobs = []
        self.gone = np.zeros(session.cache.slots, dtype=bool)
        return CapturedSteps(decoder, session, self.special.bos, strict=config.strict), session.state

    def admit(self) -> None:
        """As every driver; what joins has no answer on its way yet."""
        before = self.n
        super().admit()
        if self.n > before and self.state is not None:
            self.gone[before : self.n] = False
            if not self.has_source and has_window(self.shape):
                whole = (len(text) + job.limit for text, job in zip(self.steps.texts, self.state.jobs, strict=True))
                self.outgrows = any(length > self.shape.block_size for length in whole)

    @torch.no_grad()
    def step(self) -> list[Result]:
        """The next few tokens for everybody; what has arrived since the last call."""
        with eval_mode(self.model), torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            self.admit()
            if not self.n or self.state is None:
                return self.receive(wait=True)
            if self.state.needs_host or self.outgrows:
                self.catch_up()
                return [*self.receive(wait=True), *super().step()]
            for _ in range(POLL):
                self.steps.advance(self.n)
            if self.polled is not None:
                self.handle_poll()
            if self.n:
                self.poll()
            return self.receive(wait=False)

    def drop(self, slots: Sequence[int]) -> None:
        """Over on the device, and nothing is sent for; the next poll makes room."""
        assert self.state is not None
        if slots:
            self.state.drop(slots)
            self.gone[list(slots)] = True

    def catch_up(self) -> None:
        """Before steps that are made one by one: whoever's answer was sent for leaves."""
        self.polled = None
        if self.gone[: self.n].any():
            self.leave(self.gone[: self.n].tolist())
        self.gone[:] = False

    def poll(self) -> None:
        """Have the host told who is over now."""
        assert self.state is not None
        flags = torch.empty(self.n, dtype=torch.bool, pin_memory=self.device.type == "cuda")
        flags.copy_(self.state.over[: self.n], non_blocking=True)
        self.polled = (self.n, self.event(), flags)

    def event(self) -> Any:
        """What has been launched so far; None where nothing runs by itself."""
        return torch.cuda.current_stream().record_event() if self.device.type == "cuda" else None

    def handle_poll(self) -> None:
        """Send for the answers of those that were over, and let others take their places where that brings something."""
        assert self.polled is not None and self.state is not None
        count, event, flags = self.polled
        self.polled = None
        if event is not None:
            event.synchronize()
        over = np.zeros(self.n, dtype=bool)
        over[:count] = flags.numpy()
        if self.config.strict and not over.all():
            return
        jobs = self.state.jobs
        fresh = [slot for slot in np.flatnonzero(over & ~self.gone[: self.n]).tolist() if jobs[slot].number >= 0]
        if fresh:
            self.send_for(fresh)
            self.gone[fresh] = True
        staying = np.flatnonzero(~over)
        fewer, free = len(staying), self.size * self.samples - len(staying)
        if fewer == 0:
            self.n = 0
            self.gone[:] = False
        elif at_least(fewer) < at_least(self.n) or (self.pending and 4 * free >= self.size * self.samples):
            rows = staying[staying >= fewer].tolist()
            places = np.flatnonzero(over[:fewer]).tolist()
            self.steps.move(rows, places, fewer)
            self.state.move(rows, places, fewer)
            self.state.over[fewer : self.n] = True
            self.gone[:fewer], self.gone[fewer:] = False, False
            self.n = fewer

    def send_for(self, slots: list[int]) -> None:
        """Copies of what these slots have written, on their way to the host."""
        assert self.state is not None
        jobs = [self.state.jobs[slot] for slot in slots]
        parts = self.state.results(on_device(slots, self.device))
        if self.device.type != "cuda":
            self.arriving.append((jobs, None, parts))
            return
        main, side = torch.cuda.current_stream(), side_stream(self.device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            copies = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in parts]
            for part, copy in zip(parts, copies, strict=True):
                copy.copy_(part, non_blocking=True)
                part.record_stream(side)
            self.arriving.append((jobs, side.record_event(), copies))

    def receive(self, *, wait: bool) -> list[Result]:
        """The answers that have arrived."""
        results: list[Result] = []
        while self.arriving and (wait or self.arriving[0][1] is None or self.arriving[0][1].query()):
            jobs, event, copies = self.arriving.popleft()
            if event is not None:
                event.synchronize()
            assert self.state is not None
            answers = self.state.answers(jobs, [copy.numpy() for copy in copies])
            for job, hypotheses in zip(jobs, answers, strict=True):
                results += self.file(job, hypotheses)
        if not self.busy and self.steps is not None:
            self.close()
        return results

    def close(self) -> None:
        """The session is free for others."""
        if self.steps is not None and not self.n:
            sessions_of(self.decoder).give(self.kind, self.steps.session)
            self.steps = self.state = None
            self.polled = None


side_streams: dict[torch.device, Any] = {}


def side_stream(device: torch.device) -> Any:
    """The stream on which answers travel."""
    if device not in side_streams:
        side_streams[device] = torch.cuda.Stream(device)
    return side_streams[device]


def make_driver(model: Any, config: DecodeConfig | None = None, *given: Any, **named: Any) -> Driver:
    """The driver for this model: on a CUDA device the one that captures its steps."""
    settings = config or DecodeConfig()
    plain = not named.get("cached", True) or named.get("trace") or settings.engine in ELSEWHERE
    if plain or not next(model.parameters()).is_cuda or uses_plain_model(model, settings):
        return Driver(model, config, *given, **named)
    return CapturedDriver(model, config, *given, **named)
