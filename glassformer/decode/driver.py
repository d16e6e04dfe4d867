"""The one driver: requests come at any time, each leaves when it is done; a list, a file, a stream and a server are the same.

    for number, hypotheses in answer(model, requests, config, special=special, text=tokenizer.decode):
        ...

`answer` (generate.py) reads any iterable as far as it needs to, and gives results in the order of the requests, or as they
are finished. Below it is the Driver: `add` a request, `step` while `busy`, `cancel` at any time. `step` is one token more for
everybody: requests waiting take free slots, the model scores (stepper.py), the search chooses (search.py), slots that are over
are handed out.

Strict mode is a policy of who is decoded with whom. The last digits of a matrix product depend on the shape of the
matrix, so a sentence decoded among others may, once in a while, get another word than alone. In strict mode every shape
depends on the sentence's own length alone: sentences of one length bucket are decoded together, always in the same number of
rows (empty ones are filled up), and nobody joins or leaves. A bucket is wider than its sentences: padding, hence one kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.admission import BUCKET, bucket, check_ids, check_settings, limits_for, nothing
from glassformer.decode.align import alignments
from glassformer.decode.choose import fingerprint
from glassformer.decode.engines import kept_decoder, slots_that_fit, uses_plain_model
from glassformer.decode.request import NO_CONSTRAINTS, BeamTrace, Hypothesis, Request, SpecialTokens
from glassformer.decode.search import SearchState
from glassformer.decode.slots import Job
from glassformer.decode.stepper import CachedSteps, PlainSteps, Steps, context_start, has_window
from glassformer.decode.streaming import Decode, cut_at_stop, stop_watcher
from glassformer.errors import ConfigError
from glassformer.models.eval_mode import eval_mode

STRICT_ROWS = 32  # strict mode: sentences at a time, where the settings do not say
AHEAD = 4  # batches of requests that are looked at together, to be sorted by length
FIRST = 256  # requests of a batch, before there is one to tell
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
        cached: bool = True,
    ) -> None:
        self.model, self.config, self.special = model, config or DecodeConfig(), special or SpecialTokens()
        self.text, self.align, self.trace, self.cached = text, align, trace, cached
        self.shape: ModelConfig = model.config
        self.has_source = self.shape.family == "transformer"
        self.limits: dict[int, tuple[int, int]] = {}  # fewest and most new tokens, by the length of what is read
        self.samples = self.config.num_samples if self.config.temperature > 0 else 1
        self.pending: list[tuple[int, Request, Job]] = []  # with how long they are: the longest go first
        self.requests: dict[int, Request] = {}
        self.found: dict[int, dict[int, list[Hypothesis]]] = {}  # of samples whose others are still being written
        self.steps: Steps | None = None
        self.state: SearchState | None = None
        self.n = 0  # slots in use
        self.said = False
        if trace and self.config.temperature > 0:
            raise ConfigError("a trace shows a search; set decode.temperature to 0")

    @property
    def busy(self) -> bool:
        """Is anyone waiting or being answered?"""
        return bool(self.pending or self.n)

    def add(self, number: int, request: Request) -> list[Result]:
        """Take a request in. What needs no decoding is answered at once."""
        if request.constraints is not NO_CONSTRAINTS:
            check_settings(self.config, request, self.text)
        if not request.ids and self.has_source:
            return [(number, self.finish(request, nothing(self.trace)))]
        if not isinstance(request.ids, list) or not request.ids:
            request = replace(request, ids=list(request.ids) or [self.special.bos])
        check_ids(self.model, number, request.ids)
        self.requests[number] = request
        self.pending.append((len(request.ids), request, self.make_job(number, request)))
        return []

    def make_job(self, number: int, request: Request) -> Job:
        """What the search has to know of a request: limits, constraints, whose draws are its own."""
        config, c, constraints = self.config, self.shape, request.constraints
        if constraints:
            constraints.check(c.vocab_size, self.special)
        length = len(request.ids) if constraints is NO_CONSTRAINTS and request.limits is None else -1
        minimum, most = self.limits.get(length) or limits_for(c, config, request)
        if length >= 0:
            self.limits[length] = minimum, most
        if not self.has_source and has_window(c) and len(request.ids) > c.block_size and not self.said:
            self.said = True
            kept = len(request.ids) - context_start(len(request.ids), c)
            warnings.warn(
                f"a prompt has {len(request.ids):,} tokens, and this model reads {c.block_size} at once: "
                f"only the last {kept} are read",
                stacklevel=5,
            )
        return Job(
            limit=most,
            minimum=minimum,
            number=number,
            prompt=() if self.has_source else request.ids,
            fingerprint=fingerprint(request.ids) if config.temperature > 0 else 0,
            seed=request.seed,
            constraints=constraints,
            stopped=stop_watcher(self.text, constraints.stops) if constraints.stops and self.text is not None else None,
            trace=BeamTrace() if self.trace else None,
        )

    # ---- who is decoded with whom

    def batch_size(self) -> int:
        """Requests at a time: as the settings say, or as many as bring something and fit."""
        longest = max(length for length, *_ in self.pending)
        slots = slots_that_fit(self.model, self.config, max(job.limit for *_, job in self.pending), longest)
        if self.config.batch_size is not None:
            return self.config.batch_size
        return STRICT_ROWS if self.config.strict else max(1, slots // self.samples)

    def width_of(self, request: Request, job: Job) -> int | None:
        """Strict mode: how wide a request's rows are. A text that will outgrow its positions is read in again when it does, and
        so that its neighbours are then too, they have exactly its length."""
        if not self.config.strict:
            return None
        c, length = self.shape, len(request.ids)
        if self.has_source:
            return bucket(length, c.block_size if c.positions == "learned" else None)
        if not has_window(c):
            return bucket(length, None)
        length -= context_start(length, c)
        outgrows = len(request.ids) + job.limit > c.block_size - BUCKET
        return length if outgrows else bucket(length, c.block_size)

    def start(self) -> tuple[Steps, SearchState]:
        """The model and the search, for as many slots as there will be."""
        config, beams, bos = self.config, self.config.beams, self.special.bos
        self.size = self.batch_size()
        slots = self.size * self.samples
        if not self.more_may_come and not config.strict:
            slots = min(slots, len(self.pending) * self.samples)
        weight = next(self.model.parameters())
        steps: Steps
        best = None
        if not self.cached or uses_plain_model(self.model, config):
            steps = PlainSteps(self.model, beams, bos, cached=self.cached)
        elif config.engine == "onnx":
            from glassformer.decode.onnx import kept_net

            steps = PlainSteps(kept_net(self.model, [one[1:] for one in self.pending]), beams, bos)
        else:
            decoder = kept_decoder(self.model, config, slots * beams)
            steps = CachedSteps(decoder, slots, beams, bos, strict=config.strict)
            best = decoder.ops.topk
        limit, c = max(job.limit for *_, job in self.pending), self.shape
        state = SearchState(
            slots, limit, config, self.special, device=weight.device, dtype=weight.dtype, vocabulary=c.vocab_size
        )
        state.topk = best or state.topk
        return steps, state

    more_may_come = True

    def free(self) -> int:
        """Requests that a step may take in now."""
        assert self.steps is not None
        free = self.size - -(-self.n // self.samples)
        closed = self.n and (not self.steps.may_join or self.config.strict or free * 4 < self.size)
        return 0 if closed else free

    @property
    def room(self) -> int:
        """Requests that the next step would take in beside those that wait. A strict batch is decoded to its end first."""
        if self.config.strict and self.busy:
            return 0
        if self.steps is None:
            free = self.config.batch_size or max(1, (STRICT_ROWS if self.config.strict else FIRST) // self.samples)
        else:
            free = self.free()
        return max(0, free - len(self.pending))

    def cancel(self, numbers: Collection[int]) -> None:
        """These requests are wanted no more: from the next step on they cost nothing, and no answer comes."""
        self.pending = [one for one in self.pending if one[2].number not in numbers]
        for number in numbers:
            self.requests.pop(number, None)
            self.found.pop(number, None)
        if self.state is not None and self.n:
            self.drop([slot for slot, job in enumerate(self.state.jobs[: self.n]) if job.number in numbers])

    def drop(self, slots: Sequence[int]) -> None:
        """Free these slots; in strict mode, and where nobody is left, they stay until the batch is over."""
        assert self.state is not None
        if slots:
            self.state.drop(slots)
            if all(job.number < 0 for job in self.state.jobs[: self.n]):
                self.n = 0
            elif not self.config.strict:
                self.leave([job.number < 0 for job in self.state.jobs[: self.n]])

    def admit(self) -> None:
        """Requests that wait take free slots: all at once where nobody is being answered, else when a quarter is free."""
        if not self.pending:
            return
        if self.steps is None or self.state is None:
            self.steps, self.state = self.start()
        free = self.free()
        if not free:
            return
        self.pending.sort(key=itemgetter(0), reverse=True)
        if not self.config.strict:
            chosen, self.pending = self.pending[:free], self.pending[free:]
            width = None
        else:
            own, request, job = self.pending[0]
            width = self.width_of(request, job)
            # A text that fills its row whole is decoded among its like.
            alike = [one for one in self.pending if self.key(one) == self.key(self.pending[0])][:free]
            taken = {id(one) for one in alike}
            self.pending = [one for one in self.pending if id(one) not in taken]
            filler = 0, Request([self.special.bos] * (own if own == width else 1)), Job(limit=1)
            chosen = [*alike, *[filler] * (self.size - len(alike))]
        jobs = [job for *_, job in chosen]
        if self.samples > 1:
            jobs = [replace(job, sample=n) for job in jobs for n in range(self.samples)]
        self.steps.enter(self.n, jobs, [request.ids for _, request, _ in chosen], self.samples, width)
        self.state.begin(self.n, jobs)
        self.n += len(jobs)

    def key(self, one: tuple[int, Request, Job]) -> tuple[int | None, bool]:
        """Strict mode: those with equal keys may be decoded together."""
        length, request, job = one
        width = self.width_of(request, job)
        return width, width == length - (0 if self.has_source else context_start(length, self.shape))

    # ---- one token more

    @torch.no_grad()
    def step(self) -> list[Result]:
        """One token more for everybody; what is finished by it. CTranslate2 answers everything that waits, at once."""
        with eval_mode(self.model):
            if self.config.engine in ("int8", "ctranslate2") and not uses_plain_model(self.model, self.config):
                return self.hand_over()
            self.admit()
            if not self.n or self.steps is None or self.state is None:
                return []
            logits = self.steps.logits(self.state, self.n)
            parents, tokens = self.state.step(logits, self.n)
            over = self.state.over[: self.n].tolist()
            done = [
                slot for slot, (job, is_over) in enumerate(zip(self.state.jobs, over)) if is_over and job.number >= 0
            ]
            waiting = sum(job.number >= 0 for job in self.state.jobs) - len(done)
            if self.config.strict and waiting:
                self.steps.follow(parents, tokens)
                return []
            results = self.collect(done) if done else []
            if waiting:
                self.steps.follow(parents, tokens)
                if done:
                    self.leave(over)
            else:
                self.n = 0
            return results

    def hand_over(self) -> list[Result]:
        """What waits, answered by CTranslate2."""
        from glassformer.decode.ctranslate2 import answer_by_ctranslate2

        asked, self.pending = [one[1:] for one in self.pending], []
        found = answer_by_ctranslate2(self.model, asked, self.config, self.special, trace=self.trace)
        return [(job.number, self.finish(request, own)) for (request, job), own in zip(asked, found, strict=True)]

    def so_far(self, numbers: Collection[int]) -> dict[tuple[int, int], list[tuple[int, float]]]:
        """What is being written for these requests: by request and sample, the tokens with their log-probabilities."""
        found = {}
        for slot, job in enumerate(self.state.jobs[: self.n] if self.state is not None else ()):
            if job.number in numbers and self.state is not None:
                own = (
                    part[slot, 0, : self.state.ages[slot]].tolist() for part in (self.state.ids, self.state.logprobs)
                )
                found[job.number, job.sample] = list(zip(*own))
        return found

    def leave(self, over: Sequence[bool]) -> None:
        """The last slots take the places of those that are over."""
        assert self.steps is not None and self.state is not None
        staying = [slot for slot, is_over in enumerate(over) if not is_over]
        n = len(staying)
        rows = [slot for slot in staying if slot >= n]
        places = [slot for slot, is_over in enumerate(over[:n]) if is_over]
        self.steps.move(rows, places, n)
        self.state.move(rows, places, n)
        self.n = n

    def collect(self, slots: Sequence[int]) -> list[Result]:
        """The requests that are finished with these slots."""
        assert self.state is not None
        jobs = [self.state.jobs[slot] for slot in slots]
        return [result for job, own in zip(jobs, self.state.collect(slots)) for result in self.file(job, own)]

    def file(self, job: Job, hypotheses: list[Hypothesis]) -> list[Result]:
        """What a slot has found; with it the request may be finished. One that was cancelled has no answer."""
        if job.number not in self.requests:
            return []
        if self.samples > 1:
            found = self.found.setdefault(job.number, {})
            found[job.sample] = hypotheses
            if len(found) < self.samples:
                return []
            hypotheses = [h for sample in range(self.samples) for h in found[sample]]
            del self.found[job.number]
        return [(job.number, self.finish(self.requests.pop(job.number), hypotheses))]

    def finish(self, request: Request, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """With text and alignment, where they are asked for."""
        wanted = self.config.n_best
        if self.config.groups > 1 and len(hypotheses) < wanted and request.ids:
            warnings.warn(
                f"the groups of the beam found {len(hypotheses)} different texts, and decode.n_best={wanted} were asked for; "
                "raise decode.beam or decode.diversity",
                stacklevel=5,
            )
        if self.text is not None:
            stops = request.constraints.stops
            for h in hypotheses:
                h.text = cut_at_stop(self.text(h.ids), stops) if stops else self.text(h.ids)
        if self.align:
            if not request.ids:
                return [replace(h, alignment=[]) for h in hypotheses]
            ids, bos = [request.ids] * len(hypotheses), self.special.bos
            found = alignments(self.model, ids, [h.ids for h in hypotheses], bos=bos)
            for h, alignment in zip(hypotheses, found, strict=True):
                h.alignment = alignment
        return hypotheses
