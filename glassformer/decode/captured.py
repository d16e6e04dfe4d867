"""Decoding on a CUDA device: the whole step, captured once for each bucket of shapes as a CUDA graph and replayed.

A small model's step is a few hundred kernels of a few microseconds; to launch them one by one, look at the result and
decide in Python what to do takes longer than the kernels. So the step is everything: embedding, layers, scores, the
search's choice, what has ended (by kernels where accel/decoding/triton.py has them). The host launches the next few steps,
then reads who was done before them (`poll`), starts to copy their answers to the host on a second stream, and makes
hypotheses of those that have arrived, all while the device works. Slots that are done are skipped by the kernels until others
take their places.

Cache, search state and graphs are a `GraphRunner`, kept on the copy that decodes, for the next call. What a
graph cannot do (glossaries, stop strings, traces, filters that look at what was written, a context that has to be recomputed)
is done step by step, as on a CPU, by the same model and the same search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from glassformer.config import DecodeConfig
from glassformer.decode.driver import Driver, Result
from glassformer.decode.engines import EXTERNAL_ENGINES, answers_itself, decoding_model
from glassformer.decode.ensemble import Ensemble
from glassformer.decode.graphs import GraphRunner, runner_pool
from glassformer.decode.search import SearchState
from glassformer.decode.slots import Job
from glassformer.decode.stepper import (
    ModelStepper,
    Stepper,
    Texts,
    has_bounded_context,
    next_power_of_2,
    slot_bucket,
    width_bucket,
)
from glassformer.nn.cache import KVCache
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import on_device

POLL_EVERY = 2  # steps


class CapturedStepper(ModelStepper):
    """A copy for decoding on the cache of a runner, by captured steps."""

    def __init__(self, runner: GraphRunner, bos: int) -> None:
        super().__init__(runner.model, runner.cache.n_slots, runner.cache.beams, bos)
        self.cache: KVCache = runner.cache
        self.runner = runner
        model = runner.model
        # Where empty columns cost nothing a bucket may be wide, and few are captured.
        skips = partial(model.decoding_ops.skips_empty_columns, cache=runner.cache)
        skips_self = all(skips(block.attention, source=False) for block in model.decoder.layers)
        self.wide_buckets = skips_self and all(
            skips(b.cross, source=True) for b in model.decoder.layers if b.cross is not None
        )

    def source_width(self, texts: Texts) -> int:
        """A bucket's width."""
        longest = super().source_width(texts)
        bucket = width_bucket(longest)
        return min(bucket, max(longest, self.config.block_size)) if self.config.positions == "learned" else bucket

    def prefill(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int) -> None:
        """As every stepper; what the graphs read is looked at."""
        super().prefill(start, jobs, texts, copies)
        c, n_positions = self.config, self.model.n_positions
        if c.positions == "learned" or (has_bounded_context(c) and not self.has_source):
            n_positions = min(n_positions, c.block_size)
        self.cache.last_position = n_positions - 1
        self.runner.check_inputs()

    def advance(self, n: int) -> None:
        """One token more for everybody, and the search's choice."""
        cache = self.cache
        n_keys, n_source = cache.filled(n) + self.beams, cache.source_width(n)
        if self.wide_buckets:
            n_keys = next_power_of_2(n_keys, least=32)
            n_source = next_power_of_2(n_source) if 0 < n_source <= 64 else n_source
        else:
            n_keys = width_bucket(n_keys, least=max(16, 8 * min(self.beams, 4)))
        self.runner.step((slot_bucket(n), min(n_keys, cache.capacity), min(n_source, cache.source_capacity)))


class CapturedDriver(Driver):
    """A driver that launches steps before it knows how the last ones ended."""

    stepper: Any

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        weight = next(self.model.parameters())
        self.device = weight.device
        self.pending_poll: tuple[int, Any, torch.Tensor] | None = None  # slots, event, flags
        self.copies_in_flight: deque[tuple[list[Job], Any, list[torch.Tensor]]] = deque()
        self.copied = np.zeros(0, dtype=bool)  # slots whose answers are being copied to the host
        self.outgrows = False  # does a context have to be recomputed?

    @property
    def busy(self) -> bool:
        """Is anything waiting, being answered, or on its way to the host?"""
        return bool(self.pending or self.n or self.copies_in_flight)

    def start(self) -> tuple[Stepper, SearchState]:
        """A runner of the right kind: one that is free, or a new one."""
        config, beams = self.config, self.config.beams
        self.max_requests = self.batch_size()
        self.decodes = model = decoding_model(self.model, config, self.max_requests * beams)
        if not self.more_may_come:
            self.max_requests = min(self.max_requests, len(self.pending))
        slots = slot_bucket(self.max_requests * self.samples)
        # Twice as much as the next smaller: memory that grows later has to be captured on anew.
        longest = next_power_of_2(max(job.limit for *_, job in self.pending), least=64) + 1
        texts = next_power_of_2(max(length for length, *_ in self.pending), least=64)
        prompt, source = (0, texts) if self.has_source else (texts, 0)
        columns = width_bucket(prompt + longest * beams)
        sizes = (slots, columns, source, longest)
        self.kind = (replace(config, seed=0, batch_size=None, engine="auto"), self.special)
        runner = runner_pool(model).acquire(self.kind, sizes)
        if runner is None:
            cache = model.make_cache(slots, columns, beams=beams, source=source, static=True)
            state = SearchState(
                slots, longest, config, self.special, device=self.device, dtype=cache.bias.dtype,
                vocab_size=self.model_config.vocab_size, static=True,
            )  # fmt: skip
            runner = GraphRunner(model, cache, state)
        runner.state.config = config
        runner.state.jobs = []
        self.copied = np.zeros(runner.cache.n_slots, dtype=bool)
        return CapturedStepper(runner, self.special.bos), runner.state

    def admit(self) -> None:
        """As every driver; what joins is not copied yet."""
        before = self.n
        super().admit()
        if self.n > before and self.state is not None:
            self.copied[before : self.n] = False
            if not self.has_source and has_bounded_context(self.model_config):
                whole = (len(text) + job.limit for text, job in zip(self.stepper.texts, self.state.jobs, strict=True))
                self.outgrows = any(length > self.model_config.block_size for length in whole)

    @torch.no_grad()
    def step(self) -> list[Result]:
        """The next few tokens for everybody; what has arrived since the last call."""
        with eval_mode(self.model), torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            self.admit()
            if not self.n or self.state is None:
                return self.collect_copied(wait=True)
            if self.state.needs_host or self.outgrows:
                self.remove_copied()
                return [*self.collect_copied(wait=True), *super().step()]
            for _ in range(POLL_EVERY):
                self.stepper.advance(self.n)
            if self.pending_poll is not None:
                self.wait_for_poll()
            if self.n:
                self.poll()
            return self.collect_copied(wait=False)

    def cancel_slots(self, slots: Sequence[int]) -> None:
        """Done on the device, and nothing is copied; the next poll frees them."""
        assert self.state is not None
        if slots:
            self.state.cancel(slots)
            self.copied[list(slots)] = True

    def remove_copied(self) -> None:
        """Before steps that are made one by one: slots whose answers were copied leave."""
        self.pending_poll = None
        if self.copied[: self.n].any():
            self.condense(self.copied[: self.n].tolist())
        self.copied[:] = False

    def poll(self) -> None:
        """Start to copy to the host which slots are done now."""
        assert self.state is not None
        flags = torch.empty(self.n, dtype=torch.bool, pin_memory=self.device.type == "cuda")
        flags.copy_(self.state.done[: self.n], non_blocking=True)
        self.pending_poll = (self.n, self.event(), flags)

    def event(self) -> Any:
        """Recorded after what has been launched so far; None where nothing runs by itself."""
        return torch.cuda.current_stream().record_event() if self.device.type == "cuda" else None

    def wait_for_poll(self) -> None:
        """Wait for the flags of the last poll; copy the answers of slots that were done, and let others take their places
        where that brings something."""
        assert self.pending_poll is not None and self.state is not None
        count, event, flags = self.pending_poll
        self.pending_poll = None
        if event is not None:
            event.synchronize()
        done = np.zeros(self.n, dtype=bool)
        done[:count] = flags.numpy()
        jobs = self.state.jobs
        fresh = [slot for slot in np.flatnonzero(done & ~self.copied[: self.n]).tolist() if jobs[slot].request_id >= 0]
        if fresh:
            self.copy_to_host(fresh)
            self.copied[fresh] = True
        staying = np.flatnonzero(~done)
        fewer, free = len(staying), self.max_requests * self.samples - len(staying)
        if fewer == 0:
            self.n = 0
            self.copied[:] = False
        elif slot_bucket(fewer) < slot_bucket(self.n) or (
            self.pending and 4 * free >= self.max_requests * self.samples
        ):
            from_slots = staying[staying >= fewer].tolist()
            to_slots = np.flatnonzero(done[:fewer]).tolist()
            self.stepper.move(from_slots, to_slots, fewer)
            self.state.move(from_slots, to_slots, fewer)
            self.state.done[fewer : self.n] = True
            self.copied[:fewer], self.copied[fewer:] = False, False
            self.n = fewer

    def copy_to_host(self, slots: list[int]) -> None:
        """Start to copy what these slots have written to the host."""
        assert self.state is not None
        jobs = [self.state.jobs[slot] for slot in slots]
        parts = self.state.result_tensors(on_device(slots, self.device))
        if self.device.type != "cuda":
            self.copies_in_flight.append((jobs, None, parts))
            return
        main, side = torch.cuda.current_stream(), side_stream(self.device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            copies = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in parts]
            for part, copy in zip(parts, copies, strict=True):
                copy.copy_(part, non_blocking=True)
                part.record_stream(side)
            self.copies_in_flight.append((jobs, side.record_event(), copies))

    def collect_copied(self, *, wait: bool) -> list[Result]:
        """The answers whose copies have arrived; `wait`: all of them."""
        results: list[Result] = []
        while self.copies_in_flight and (
            wait or self.copies_in_flight[0][1] is None or self.copies_in_flight[0][1].query()
        ):
            jobs, event, copies = self.copies_in_flight.popleft()
            if event is not None:
                event.synchronize()
            assert self.state is not None
            answers = self.state.to_hypotheses(jobs, [copy.numpy() for copy in copies])
            for job, hypotheses in zip(jobs, answers, strict=True):
                results += self.complete_job(job, hypotheses)
        if not self.busy and self.stepper is not None:
            self.close()
        return results

    def close(self) -> None:
        """The runner is free for others."""
        if self.stepper is not None and not self.n:
            runner_pool(self.decodes).release(self.kind, self.stepper.runner)
            self.stepper = self.state = None
            self.pending_poll = None


side_streams: dict[torch.device, Any] = {}


def side_stream(device: torch.device) -> Any:
    """The stream on which answers are copied."""
    if device not in side_streams:
        side_streams[device] = torch.cuda.Stream(device)
    return side_streams[device]


def make_driver(model: Any, config: DecodeConfig | None = None, *given: Any, **named: Any) -> Driver:
    """The driver for this model: on a CUDA device the one that captures its steps."""
    settings = config or DecodeConfig()
    plain = isinstance(model, Ensemble) or named.get("trace") or settings.engine in EXTERNAL_ENGINES
    if plain or not next(model.parameters()).is_cuda or answers_itself(model, settings):
        return Driver(model, config, *given, **named)
    try:
        from glassformer.accel.decoding.block import is_whole
    except ImportError:  # without that room the model itself decodes
        return Driver(model, config, *given, **named)
    return (CapturedDriver if is_whole(model) else Driver)(model, config, *given, **named)
