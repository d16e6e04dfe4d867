"""The one driver: requests come at any time, each leaves when it is done; a list, a file, a stream and a server are the same.

    for number, hypotheses in answer(model, requests, config, special=special, text=tokenizer.decode):
        ...

`answer` (generate.py) reads any iterable as far as it needs to, and gives results in the order of the requests, or as they
are finished. Below it is the Driver: `add` a request, `step` while `busy`, `cancel` at any time. `step` is one token more for
everybody: requests that wait take free slots, the model gives logits (stepper.py), the search chooses (search.py), and slots that
are done are free for others (continuous batching).

Whoever wants answers that depend on no neighbour, to the last digit, decodes texts one at a time (`decode.batch_size=1`): the
last digits of a matrix product depend on the shape of the matrix.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.align import alignments
from glassformer.decode.engines import (
    LogitsEngine,
    SearchEngine,
    converted,
    decoding_model,
    external_engine,
    slots_that_fit,
    suits_external,
)
from glassformer.decode.ensemble import Ensemble, EnsembleStepper
from glassformer.decode.filters import hash_ids
from glassformer.decode.lengths import limits_for
from glassformer.decode.request import (
    NO_CONSTRAINTS,
    BeamTrace,
    Hypothesis,
    Request,
    SpecialTokens,
    check_ids,
    check_request,
)
from glassformer.decode.search import SearchState
from glassformer.decode.slots import Job
from glassformer.decode.stepper import (
    ExternalStepper,
    ModelStepper,
    Stepper,
    context_start,
    has_bounded_context,
)
from glassformer.decode.streaming import Decode, cut_at_stop, stopping_criterion
from glassformer.errors import ConfigError, Notice
from glassformer.language import _
from glassformer.nn.modes import eval_mode

LOOKAHEAD_BATCHES = 4  # batches of requests that are sorted by length together
FIRST_BATCH = 256  # requests that are taken in before a batch's size is known
Result = tuple[int, list[Hypothesis]]


class Driver:
    """Decodes with one model under one set of settings. It is used by one thread; several drivers may share a model."""

    def __init__(
        self,
        model: Any,
        config: DecodeConfig | None = None,
        special: SpecialTokens | None = None,
        *,
        text: Decode | None = None,
        align: bool = False,
        trace: bool = False,
    ) -> None:
        # Apple's devices have no float64, in which the search adds up.
        if next(model.parameters()).device.type not in ("cpu", "cuda"):
            model = converted(model, torch.device("cpu"))
        self.model, self.config, self.special = model, config or DecodeConfig(), special or SpecialTokens()
        self.text, self.align, self.trace = text, align, trace
        self.engine = external_engine(self.config.engine)  # None: one of ours
        self.members: list[Any] = list(model.members) if isinstance(model, Ensemble) else [model]
        if len(self.members) > 1 and self.engine is not None:
            raise ConfigError(
                "decode.engine={engine} answers with one model, and this is an ensemble; set decode.engine=auto",
                engine=self.config.engine,
            )
        if self.config.shortlist and getattr(model, "shortlist", None) is None:
            raise ConfigError(
                "decode.shortlist=true, and this run has no shortlist; `glassformer improve RUN --only distill` makes one"
            )
        self.model_config: ModelConfig = model.config
        self.has_source = self.model_config.family == "transformer"
        self.limits: dict[int, tuple[int, int]] = {}  # fewest and most new tokens, by the length of the text
        self.samples = self.config.num_samples if self.config.temperature > 0 else 1
        self.pending: list[tuple[int, Request, Job]] = []  # with how long they are: the longest go first
        self.requests: dict[int, Request] = {}
        self.finished_samples: dict[int, dict[int, list[Hypothesis]]] = {}  # of requests that have others still alive
        self.stepper: Stepper | None = None
        self.state: SearchState | None = None
        self.n = 0  # slots in use
        self.warned = False
        if trace and self.config.temperature > 0:
            raise ConfigError("a trace shows a search; set decode.temperature to 0")

    @property
    def busy(self) -> bool:
        """Is anyone waiting or being answered?"""
        return bool(self.pending or self.n)

    def add(self, request_id: int, request: Request) -> list[Result]:
        """Take a request in. What needs no decoding is answered at once."""
        if request.constraints is not NO_CONSTRAINTS:
            check_request(self.model, request, self.config, self.special, self.text)
        if not request.ids and self.has_source:
            empty = Hypothesis([], 0.0, 0.0, [], "eos", trace=BeamTrace() if self.trace else None)
            return [(request_id, self.finish(request, [empty]))]
        if not isinstance(request.ids, list) or not request.ids:
            request = replace(request, ids=list(request.ids) or [self.special.bos])
        check_ids(self.model, request_id, request.ids)
        self.requests[request_id] = request
        self.pending.append((len(request.ids), request, self.make_job(request_id, request)))
        return []

    def make_job(self, request_id: int, request: Request) -> Job:
        """What the search has to know of a request: limits, constraints, and the hash that makes its random numbers its own."""
        config, c, constraints = self.config, self.model_config, request.constraints
        length = len(request.ids) if constraints is NO_CONSTRAINTS and request.limits is None else -1
        minimum, most = self.limits.get(length) or limits_for(c, config, request)
        if length >= 0:
            self.limits[length] = minimum, most
        if not self.has_source and has_bounded_context(c) and len(request.ids) > c.block_size and not self.warned:
            self.warned = True
            n, kept = len(request.ids), len(request.ids) - context_start(len(request.ids), c)
            text = _(
                "a prompt has {n:,} tokens, and this model reads {block_size} at once: only the last {kept} are read",
                n=n,
                block_size=c.block_size,
                kept=kept,
            )
            warnings.warn(Notice(text), stacklevel=5)
        return Job(
            limit=most,
            minimum=minimum,
            request_id=request_id,
            prompt=() if self.has_source else request.ids,
            text_hash=hash_ids(request.ids) if config.temperature > 0 else 0,
            seed=request.seed,
            constraints=constraints,
            stopping_criterion=self.text and stopping_criterion(self.text, constraints.stops),
            trace=BeamTrace() if self.trace else None,
        )

    # ---- who is decoded with whom

    def batch_size(self) -> int:
        """Requests at a time: as the settings say, or as many as bring something and fit."""
        longest = max(length for length, *_ in self.pending)
        slots = slots_that_fit(self.model, self.config, max(job.limit for *_, job in self.pending), longest)
        return self.config.batch_size or max(1, slots // self.samples)

    def start(self) -> tuple[Stepper, SearchState]:
        """The stepper and the search, for as many slots as there will be."""
        config, beams, bos = self.config, self.config.beams, self.special.bos
        self.max_requests = self.batch_size()
        slots = self.max_requests * self.samples
        if not self.more_may_come:
            slots = min(slots, len(self.pending) * self.samples)
        weight = next(self.model.parameters())
        stepper: Stepper
        if isinstance(self.engine, LogitsEngine) and suits_external(self.model):
            stepper = ExternalStepper(self.engine.net(self.model, [one[1:] for one in self.pending]), beams, bos)
        else:
            decodes = [decoding_model(member, config, slots * beams) for member in self.members]
            steppers = [ModelStepper(member, slots, beams, bos) for member in decodes]
            stepper = steppers[0] if len(steppers) == 1 else EnsembleStepper(steppers)
        limit, c = max(job.limit for *_, job in self.pending), self.model_config
        state = SearchState(
            slots, limit, config, self.special, device=weight.device, dtype=weight.dtype, vocab_size=c.vocab_size
        )
        return stepper, state

    more_may_come = True

    def admissible(self) -> int:
        """Requests that a step may take in now."""
        assert self.stepper is not None
        free = self.max_requests - -(-self.n // self.samples)
        closed = self.n and (not self.stepper.may_join or free * 4 < self.max_requests)
        return 0 if closed else free

    @property
    def free_capacity(self) -> int:
        """Requests that the next step would take in beside those that wait."""
        if self.stepper is None:
            free = self.config.batch_size or max(1, FIRST_BATCH // self.samples)
        else:
            free = self.admissible()
        return max(0, free - len(self.pending))

    def cancel(self, request_ids: Collection[int]) -> None:
        """These requests are wanted no more: from the next step on they cost nothing, and no answer comes."""
        self.pending = [one for one in self.pending if one[2].request_id not in request_ids]
        for request_id in request_ids:
            self.requests.pop(request_id, None)
            self.finished_samples.pop(request_id, None)
        if self.state is not None and self.n:
            jobs = self.state.jobs[: self.n]
            self.cancel_slots([slot for slot, job in enumerate(jobs) if job.request_id in request_ids])

    def cancel_slots(self, slots: Sequence[int]) -> None:
        """Free these slots."""
        assert self.state is not None
        if slots:
            self.state.cancel(slots)
            self.condense([job.request_id < 0 for job in self.state.jobs[: self.n]])

    def admit(self) -> None:
        """Requests that wait take free slots: all at once where nobody is being answered, else when a quarter is free."""
        if not self.pending:
            return
        if self.stepper is None or self.state is None:
            self.stepper, self.state = self.start()
        free = self.admissible()
        if not free:
            return
        self.pending.sort(key=itemgetter(0), reverse=True)
        chosen, self.pending = self.pending[:free], self.pending[free:]
        jobs = [job for *_, job in chosen]
        if self.samples > 1:
            jobs = [replace(job, sample=n) for job in jobs for n in range(self.samples)]
        self.stepper.prefill(self.n, jobs, [request.ids for _, request, _ in chosen], self.samples)
        self.state.begin(self.n, jobs)
        self.n += len(jobs)

    # ---- one token more

    @torch.no_grad()
    def step(self) -> list[Result]:
        """One token more for everybody; what is finished by it. A program with a search of its own answers all that waits."""
        with eval_mode(self.model):
            if isinstance(self.engine, SearchEngine) and suits_external(self.model):
                return self.answer_by(self.engine)
            self.admit()
            if not self.n or self.stepper is None or self.state is None:
                return []
            parents, tokens = self.state.step(self.stepper.logits(self.state, self.n), self.n)
            is_done = self.state.done[: self.n].tolist()
            done = [slot for slot, over in enumerate(is_done) if over]
            results = self.collect(done) if done else []
            if len(done) == self.n:
                self.n = 0
                return results
            self.stepper.reorder(parents, tokens)
            if done:
                self.condense(is_done)
            return results

    def answer_by(self, engine: SearchEngine) -> list[Result]:
        """What waits, answered by a program with a search of its own."""
        batch, self.pending = [one[1:] for one in self.pending], []
        hypotheses = engine.answer(self.model, batch, self.config, self.special, trace=self.trace)
        return [
            (job.request_id, self.finish(request, own)) for (request, job), own in zip(batch, hypotheses, strict=True)
        ]

    def partial_outputs(self, request_ids: Collection[int]) -> dict[tuple[int, int], list[tuple[int, float]]]:
        """What is being written for these requests: by request and sample, the tokens with their log-probabilities."""
        partial = {}
        for slot, job in enumerate(self.state.jobs[: self.n] if self.state is not None else ()):
            if job.request_id in request_ids and self.state is not None:
                own = (
                    part[slot, 0, : self.state.written_host[slot]].tolist()
                    for part in (self.state.ids, self.state.logprobs)
                )
                partial[job.request_id, job.sample] = list(zip(*own))
        return partial

    def condense(self, done: Sequence[bool]) -> None:
        """The last slots move to the places of those that are done."""
        assert self.stepper is not None and self.state is not None
        staying = [slot for slot, is_done in enumerate(done) if not is_done]
        n = len(staying)
        from_slots = [slot for slot in staying if slot >= n]
        to_slots = [slot for slot, is_done in enumerate(done[:n]) if is_done]
        self.stepper.move(from_slots, to_slots, n)
        self.state.move(from_slots, to_slots, n)
        self.n = n

    def collect(self, slots: Sequence[int]) -> list[Result]:
        """The requests that are finished with these slots."""
        assert self.state is not None
        jobs = [self.state.jobs[slot] for slot in slots]
        return [result for job, own in zip(jobs, self.state.collect(slots)) for result in self.complete_job(job, own)]

    def complete_job(self, job: Job, hypotheses: list[Hypothesis]) -> list[Result]:
        """What a slot has found; with it the request may be complete. One that was cancelled has no answer."""
        if job.request_id not in self.requests:
            return []
        if self.samples > 1:
            samples = self.finished_samples.setdefault(job.request_id, {})
            samples[job.sample] = hypotheses
            if len(samples) < self.samples:
                return []
            hypotheses = [h for sample in range(self.samples) for h in samples[sample]]
            del self.finished_samples[job.request_id]
        return [(job.request_id, self.finish(self.requests.pop(job.request_id), hypotheses))]

    def finish(self, request: Request, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """With text and alignment, where they are asked for."""
        if self.text is not None:
            stops = request.constraints.stops
            for h in hypotheses:
                h.text = cut_at_stop(self.text(h.ids), stops) if stops else self.text(h.ids)
        if self.align:
            if not request.ids:
                return [replace(h, alignment=[]) for h in hypotheses]
            ids, bos = [request.ids] * len(hypotheses), self.special.bos
            found = alignments(self.members[0], ids, [h.ids for h in hypotheses], bos=bos)
            for h, alignment in zip(hypotheses, found, strict=True):
                h.alignment = alignment
        return hypotheses
