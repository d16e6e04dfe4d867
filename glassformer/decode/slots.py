"""The state of a search, slot by slot: alive hypotheses with their sums, the best finished ones; jobs that come and go; the
answers.

Slots are those of the cache: the first n are active, each with K rows; `written` counts a slot's own tokens, so slots may have
begun at different times. Every tensor begins with the slot and is only written in place (but by `grow`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode.filters import uniforms
from glassformer.decode.lengths import length_rule
from glassformer.decode.request import (
    NO_CONSTRAINTS,
    BeamTrace,
    Ending,
    Hypothesis,
    SpecialTokens,
    TokenConstraints,
)
from glassformer.errors import UserError
from glassformer.nn.rows import move_slots, on_device

ENDINGS: tuple[Ending, ...] = ("length", "eos", "stop")


@dataclass(slots=True)
class Job:
    """One slot's part in a search: a request, or one sample of it."""

    limit: int  # the most new tokens, EOS included
    minimum: int = 0  # the fewest tokens before EOS
    request_id: int = -1  # -1: nobody's, of a request that was cancelled
    sample: int = 0
    prompt: Sequence[int] = ()  # what came before, where repetition counts it
    text_hash: int = 0  # of the text that is answered: its random numbers are its own
    seed: int | None = None  # of its random numbers, where it is not that of all
    constraints: TokenConstraints = NO_CONSTRAINTS
    stopping_criterion: Callable[[Sequence[int]], bool] | None = None  # has a stop string been written?
    trace: BeamTrace | None = None


class Slots:
    """The state of a search of `n_slots` slots whose texts have at most `max_length` tokens."""

    def __init__(
        self,
        n_slots: int,
        max_length: int,
        config: DecodeConfig,
        special: SpecialTokens,
        *,
        device: torch.device,
        dtype: torch.dtype,
        vocab_size: int,
        static: bool = False,
    ) -> None:
        self.config, self.static, self.vocab_size = config, static, vocab_size
        self.may_sync = device.type == "cpu" and not static  # may the host read values of the device?
        self.dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self.do_sample = config.temperature > 0
        self.beams, self.ends = config.beams, special.ends
        # Finished hypotheses of a slot: those that are wanted, or those that the stop rule looks at.
        self.n_keep = self.beams if config.stop_rule == "best-now" else min(config.n_best, self.beams)
        self.n_candidates = (1 + max(1, len(self.ends))) * self.beams if self.beams > 1 else 1
        never = sorted(token for token in special.banned(config.allow_unknown) if token < vocab_size)
        self.never = torch.tensor(never, dtype=torch.long, device=device)
        self.jobs: list[Job] = []
        self.update_flags(0)
        # What the host knows of them without asking the device.
        self.written_host, self.minimum_host, self.limit_host = (np.zeros(n_slots, dtype=np.int64) for _ in range(3))

        def full(*shape: int, value: float | int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.full((n_slots, *shape), value, dtype=dtype, device=device)

        long, n_keep = torch.long, self.n_keep
        self.written, self.minimum = full(dtype=long), full(dtype=long)
        self.limit = full(value=1, dtype=long)
        self.has_stops, self.done = full(dtype=torch.bool), full(value=True, dtype=torch.bool)
        self.totals = full(self.beams, value=-math.inf)
        self.ids = full(self.beams, max_length, dtype=torch.int32)
        self.logprobs = full(self.beams, max_length, dtype=self.dtype)
        self.uniforms = full(max_length if self.do_sample else 0)
        # The best finished hypotheses of each slot, best first, and how many there were in all.
        self.finished_count = full(dtype=long)
        self.finished_score = full(n_keep, value=-math.inf)
        self.finished_ending, self.finished_length = full(n_keep, dtype=long), full(n_keep, dtype=long)
        self.finished_eos_logprob = full(n_keep, dtype=self.dtype)
        self.finished_ids = full(n_keep, max_length, dtype=torch.int32)
        self.finished_logprobs = full(n_keep, max_length, dtype=self.dtype)
        # What was still alive when a slot was done: sums, and one length for all.
        self.unfinished_totals = full(self.beams, value=-math.inf)
        self.unfinished_length = full(dtype=long)
        self.set_divisors(max_length)

    def set_divisors(self, max_length: int) -> None:
        """The length rule's divisors by number of tokens: [0] without EOS (cut or stopped), [1] with EOS at the end."""
        rule = length_rule(self.config)
        rows = [[rule.divisor(n, ended) for n in range(max_length + 2)] for ended in (False, True)]
        self.divisors = torch.tensor(rows, dtype=torch.float64, device=self.written.device)

    @property
    def max_length(self) -> int:
        """The most tokens a text may have."""
        return self.ids.size(2)

    def tensors(self) -> list[Tensor]:
        """Everything that begins with the slot."""
        alive = [self.written, self.minimum, self.limit, self.has_stops, self.done, self.totals, self.uniforms]
        return [*alive, self.finished_count, *self.answers()]

    def answers(self) -> list[Tensor]:
        """The finished hypotheses (scores, endings, lengths, EOS's log-probabilities, ids and their log-probabilities), and the
        unfinished (sums, length, ids, log-probabilities)."""
        finished = [self.finished_score, self.finished_ending, self.finished_length, self.finished_eos_logprob]
        unfinished = [self.unfinished_totals, self.unfinished_length, self.ids, self.logprobs]
        return [*finished, self.finished_ids, self.finished_logprobs, *unfinished]

    def grow(self, max_length: int) -> None:
        """Memory for longer texts."""
        more = max_length - self.max_length
        if more > 0:
            names = ["ids", "logprobs", "finished_ids", "finished_logprobs", *(["uniforms"] if self.do_sample else [])]
            for name in names:
                setattr(self, name, F.pad(getattr(self, name), (0, more)))
            self.set_divisors(max_length)

    # ---- coming and going

    def begin(self, start: int, jobs: Sequence[Job]) -> None:
        """These jobs take the slots from `start` on."""
        end, device = start + len(jobs), self.written.device
        self.jobs[start:] = jobs
        self.update_flags(start)
        self.grow(max(job.limit for job in jobs) + self.static)  # static: what is done writes behind the end
        for tensor in (self.totals, self.finished_score, self.unfinished_totals):
            tensor[start:end] = -math.inf
        for tensor in (self.written, self.finished_count, self.unfinished_length, self.done):
            tensor[start:end] = 0
        given = np.array([[job.minimum, job.limit, job.stopping_criterion is not None] for job in jobs])
        self.minimum[start:end], self.limit[start:end], has_stops = on_device(given, device).unbind(1)
        self.has_stops[start:end] = has_stops.bool()
        self.totals[start:end, 0] = 0.0  # every hypothesis begins empty, so there is one of it
        self.written_host[start:end] = 0
        self.minimum_host[start:end], self.limit_host[start:end] = given[:, 0], given[:, 1]
        if self.do_sample:
            most = max(job.limit for job in jobs)
            seeds = [self.config.seed if job.seed is None else job.seed for job in jobs]
            for seed in dict.fromkeys(seeds):
                which = [i for i, job_seed in enumerate(seeds) if job_seed == seed]
                texts, samples = [jobs[i].text_hash for i in which], [jobs[i].sample for i in which]
                slots = on_device(which, device) + start
                self.uniforms[slots, :most] = uniforms(seed, texts, samples, most).to(device)

    def move(self, from_slots: Sequence[int], to_slots: Sequence[int], n: int) -> None:
        """Slots move to the places of others, which are free; n are left."""
        if from_slots:
            move_slots(self.tensors(), from_slots, to_slots)
            for known in (self.written_host, self.minimum_host, self.limit_host):
                known[to_slots] = known[from_slots]
            for source, target in zip(from_slots, to_slots, strict=True):
                self.jobs[target] = self.jobs[source]
        self.jobs = self.jobs[:n]

    def cancel(self, slots: Sequence[int]) -> None:
        """What these slots write is wanted no more: they are nobody's, and done."""
        which = on_device(list(slots), self.written.device)
        self.done[which], self.totals[which] = True, -math.inf
        for slot in slots:
            self.jobs[slot] = Job(limit=1)

    def update_flags(self, start: int) -> None:
        """What a step has to see to, for the jobs from `start` on and, until all have left, those before."""
        c, jobs = self.config, self.jobs[start:]
        if start == 0:
            self.any_terms = self.any_stops = self.any_traces = False
            self.any_filters = c.repetition_penalty != 1 or c.no_repeat_ngram > 0
        self.any_terms |= any(job.constraints.terms for job in jobs)
        self.any_stops |= any(job.stopping_criterion is not None for job in jobs)
        self.any_traces |= any(job.trace is not None for job in jobs)
        # Does anything change with what has been written, beyond a minimum length?
        self.any_filters |= any(job.constraints is not NO_CONSTRAINTS and bool(job.constraints) for job in jobs)

    @property
    def needs_host(self) -> bool:
        """Is there something that a step has to ask the host for, or that a captured step does not do?"""
        return self.any_terms or self.any_stops or self.any_traces or self.any_filters

    # ---- results

    def collect(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        """The answers of these slots, the unfinished behind the finished."""
        parts = self.result_tensors(on_device(list(slots), self.written.device))
        return self.to_hypotheses([self.jobs[slot] for slot in slots], [part.cpu().numpy() for part in parts])

    def result_tensors(self, which: Tensor) -> list[Tensor]:
        """Everything that `to_hypotheses` needs of these slots."""
        return [tensor.index_select(0, which) for tensor in self.answers()]

    def to_hypotheses(self, jobs: Sequence[Job], parts: Sequence[np.ndarray]) -> list[list[Hypothesis]]:
        """Hypotheses from `result_tensors` on the host, many at a time and no more than are wanted: thousands are made while a
        device waits."""
        score, ending, length, eos_logprobs, ids, token_logprobs, *unfinished = parts
        hypotheses: list[list[Hypothesis]] = [[] for _ in jobs]
        (kept,) = np.nonzero(score.ravel() > -math.inf)
        columns = [part.ravel()[kept].tolist() for part in (score, ending, length, eos_logprobs)]
        longest = max(columns[2], default=0)
        columns += [part.reshape(-1, part.shape[-1])[kept, :longest].tolist() for part in (ids, token_logprobs)]
        for slot, value, ending_id, n_tokens, eos_logprob, tokens, logprobs in zip(
            (kept // self.n_keep).tolist(), *columns, strict=True
        ):
            logprobs = logprobs[:n_tokens]
            if ending_id == 1:
                logprobs.append(eos_logprob)
            hypotheses[slot].append(
                Hypothesis(tokens[:n_tokens], value, math.fsum(logprobs), logprobs, ENDINGS[ending_id])
            )
        if len(kept) < len(jobs) * self.n_keep:
            self.add_unfinished(hypotheses, *unfinished)
        if not all(hypotheses):
            raise UserError(
                "the model's scores are not numbers (NaN), so no token can be chosen: its weights have grown without bound; "
                "use an earlier checkpoint, or train with a lower train.learning_rate"
            )
        for of_slot, job in zip(hypotheses, jobs, strict=True):
            del of_slot[self.config.n_best :]
            for hypothesis in of_slot if job.trace is not None else ():
                hypothesis.trace = job.trace
        return hypotheses

    def add_unfinished(
        self,
        hypotheses: Sequence[list[Hypothesis]],
        totals: np.ndarray,
        lengths: np.ndarray,
        ids: np.ndarray,
        logprobs: np.ndarray,
    ) -> None:
        """Where too few have finished, what was cut. In a slot those are equally long: their sums rank them."""
        rule = length_rule(self.config)
        for slot, of_slot in enumerate(hypotheses):
            missing, length = self.n_keep - len(of_slot), int(lengths[slot])
            for row in np.argsort(-totals[slot], kind="stable")[:missing] if missing else ():
                total = float(totals[slot, row])
                if total > -math.inf:
                    own = logprobs[slot, row, :length].tolist()
                    tokens, score = ids[slot, row, :length].tolist(), rule.score(total, length, False)
                    of_slot.append(Hypothesis(tokens, score, math.fsum(own), own, "length"))
