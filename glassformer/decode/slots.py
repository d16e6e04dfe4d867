"""What a search remembers, slot by slot: what has been written, the sums, what has ended; who comes and who goes; the answers.

Slots are those of the cache: the first n are active, each with K rows in G groups of W; `written` counts a slot's own tokens, so
slots may have begun at different times. Every tensor begins with the slot and is only written in place (but by `grow`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode import choose
from glassformer.decode.cache import on_device
from glassformer.decode.lengths import length_rule
from glassformer.decode.request import (
    NO_CONSTRAINTS,
    BeamTrace,
    Ending,
    Hypothesis,
    SpecialTokens,
    TokenConstraints,
    ranked,
)

ENDINGS: tuple[Ending, ...] = ("length", "eos", "stop")


@dataclass(slots=True)
class Job:
    """One slot's part in a search: a request, or one sample of it."""

    limit: int  # at most so many new tokens, EOS included
    minimum: int = 0  # EOS not before so many
    number: int = -1  # of the request; -1: nobody's, to fill a batch
    sample: int = 0
    prompt: Sequence[int] = ()  # what came before, where repetition counts it
    fingerprint: int = 0  # of the text that is answered: its draws are its own
    seed: int | None = None  # of its draws, where it is not that of all
    constraints: TokenConstraints = NO_CONSTRAINTS
    stopped: Callable[[Sequence[int]], bool] | None = None  # has a stop string been written?
    trace: BeamTrace | None = field(default=None)


def n_best(groups: Sequence[list[Hypothesis]], wanted: int, trace: BeamTrace | None) -> list[Hypothesis]:
    """The best of every group before the second best of any; then all in the order of their scores."""
    if len(groups) == 1:
        chosen = groups[0]
    else:
        taken: dict[tuple[tuple[int, ...], bool], Hypothesis] = {}
        for rank in range(max(map(len, groups))):
            for hypothesis in ranked([group[rank] for group in groups if rank < len(group)]):
                taken.setdefault((tuple(hypothesis.ids), hypothesis.complete), hypothesis)
        chosen = ranked(list(taken.values())[:wanted])
    if trace is not None:
        for hypothesis in chosen:
            hypothesis.trace = trace
    return chosen


class Slots:
    """What a search knows of `slots` slots whose texts have at most `longest` tokens."""

    def __init__(
        self,
        slots: int,
        longest: int,
        config: DecodeConfig,
        special: SpecialTokens,
        *,
        device: torch.device,
        dtype: torch.dtype,
        vocabulary: int,
        static: bool = False,
    ) -> None:
        self.config, self.static, self.vocabulary = config, static, vocabulary
        self.looks = device.type == "cpu" and not static  # may the host look at values?
        self.dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self.draws_tokens = config.temperature > 0
        self.beams, self.groups = config.beams, config.groups
        self.width = self.beams // self.groups
        self.wanted = min(config.n_best, self.width)  # of each group
        self.looked_at = 2 * self.width if self.width > 1 else 1
        self.eos = -1 if special.eos is None else special.eos
        never = sorted(token for token in special.banned(config.allow_unknown) if token < vocabulary)
        self.never = torch.tensor(never, dtype=torch.long, device=device)
        self.jobs: list[Job] = []
        self.note_jobs(0)
        # What the host knows by itself: `written`, `minimum`, `limit`.
        self.ages, self.minimums, self.limits = (np.zeros(slots, dtype=np.int64) for _ in range(3))
        self.topk = choose.topk
        self.fused: Callable[..., None] | None = None

        def numbers(*shape: int, value: float | int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.full((slots, *shape), value, dtype=dtype, device=device)

        whole, groups, wanted = torch.long, self.groups, self.wanted
        self.written, self.minimum = numbers(dtype=whole), numbers(dtype=whole)
        self.limit = numbers(value=1, dtype=whole)
        self.has_stops, self.over = numbers(dtype=torch.bool), numbers(value=True, dtype=torch.bool)
        self.group_over = numbers(groups, value=True, dtype=torch.bool)
        self.totals = numbers(groups, self.width, value=-math.inf)
        self.ids = numbers(self.beams, longest, dtype=torch.int32)
        self.logprobs = numbers(self.beams, longest, dtype=self.dtype)
        self.draws = numbers(longest if self.draws_tokens else 0)
        # The best of what has ended in each group, best first: how many there were, score, way of ending, length, EOS's share.
        self.count = numbers(groups, dtype=whole)
        self.score = numbers(groups, wanted, value=-math.inf)
        self.ending, self.length = numbers(groups, wanted, dtype=whole), numbers(groups, wanted, dtype=whole)
        self.last = numbers(groups, wanted, dtype=self.dtype)
        self.pool_ids = numbers(groups, wanted, longest, dtype=torch.int32)
        self.pool_logprobs = numbers(groups, wanted, longest, dtype=self.dtype)
        # What was still being written when a group was over: sums, and one length for all.
        self.cut_totals = numbers(groups, self.width, value=-math.inf)
        self.cut_length = numbers(groups, dtype=whole)
        self.set_divisors(longest)

    def set_divisors(self, longest: int) -> None:
        """How the sum of so many tokens is divided: [0] where it was cut or stopped, [1] where it ends with EOS."""
        rule = length_rule(self.config)
        rows = [[rule.divisor(n, ended) for n in range(longest + 2)] for ended in (False, True)]
        self.divisors = torch.tensor(rows, dtype=torch.float64, device=self.written.device)

    @property
    def longest(self) -> int:
        """So many tokens a text may have."""
        return self.ids.size(2)

    def tensors(self) -> list[Tensor]:
        """Everything that begins with the slot."""
        mine = [self.written, self.minimum, self.limit, self.has_stops, self.over, self.group_over, self.totals]
        mine += [self.ids, self.logprobs, self.draws, self.count, self.score, self.ending, self.length, self.last]
        return [*mine, self.pool_ids, self.pool_logprobs, self.cut_totals, self.cut_length]

    def grow(self, longest: int) -> None:
        """Room for longer texts."""
        more = longest - self.longest
        if more > 0:
            for name in ("ids", "logprobs", "pool_ids", "pool_logprobs", *(["draws"] if self.draws_tokens else [])):
                setattr(self, name, F.pad(getattr(self, name), (0, more)))
            self.set_divisors(longest)

    # ---- coming and going

    def begin(self, start: int, jobs: Sequence[Job]) -> None:
        """These jobs take the slots from `start` on. One that is nobody's is over before it begins."""
        end, device = start + len(jobs), self.written.device
        self.jobs[start:] = jobs
        self.note_jobs(start)
        self.grow(max(job.limit for job in jobs) + self.static)  # static: what is over writes behind the end
        for tensor in (self.totals, self.score, self.cut_totals):
            tensor[start:end] = -math.inf
        for tensor in (self.written, self.count, self.cut_length):
            tensor[start:end] = 0
        known = np.array([[job.minimum, job.limit, job.stopped is not None, job.number < 0] for job in jobs])
        minimum, limit, stops, over = on_device(known, device).unbind(1)
        self.minimum[start:end], self.limit[start:end] = minimum, limit
        self.has_stops[start:end], self.over[start:end] = stops.bool(), over.bool()
        self.group_over[start:end] = over.bool()[:, None]
        # Every hypothesis begins empty, so there is one of it.
        self.totals[start:end, :, 0] = torch.where(over.bool(), -math.inf, 0.0)[:, None].double()
        self.ages[start:end] = 0
        self.minimums[start:end], self.limits[start:end] = known[:, 0], known[:, 1]
        if self.draws_tokens:
            most = max(job.limit for job in jobs)
            seeds = [self.config.seed if job.seed is None else job.seed for job in jobs]
            for seed in dict.fromkeys(seeds):
                mine = [place for place, own in enumerate(seeds) if own == seed]
                texts, samples = [jobs[i].fingerprint for i in mine], [jobs[i].sample for i in mine]
                slots = on_device(mine, device) + start
                self.draws[slots, :most] = choose.uniforms(seed, texts, samples, most).to(device)

    def move(self, rows: Sequence[int], places: Sequence[int], n: int) -> None:
        """These slots take the places of others; n are left."""
        if rows:
            both = on_device([rows, places], self.written.device)
            for tensor in self.tensors():
                tensor.index_copy_(0, both[1], tensor.index_select(0, both[0]))
            for known in (self.ages, self.minimums, self.limits):
                known[places] = known[rows]
            for row, place in zip(rows, places, strict=True):
                self.jobs[place] = self.jobs[row]
        self.jobs = self.jobs[:n]

    def drop(self, slots: Sequence[int]) -> None:
        """What these slots write is wanted no more: they are nobody's, and over."""
        which = on_device(list(slots), self.written.device)
        self.over[which], self.group_over[which], self.totals[which] = True, True, -math.inf
        for slot in slots:
            self.jobs[slot] = Job(limit=1)

    def note_jobs(self, start: int) -> None:
        """What a step has to see to, for the jobs from `start` on and, until all have left, those before."""
        c, jobs = self.config, self.jobs[start:]
        if start == 0:
            self.any_terms = self.any_stops = self.any_traces = False
            self.filters = c.repetition_penalty != 1 or c.no_repeat_ngram > 0
        self.any_terms |= any(job.constraints.terms for job in jobs)
        self.any_stops |= any(job.stopped is not None for job in jobs)
        self.any_traces |= any(job.trace is not None for job in jobs)
        # Does anything change with what has been written, beyond a minimum length?
        self.filters |= any(job.constraints is not NO_CONSTRAINTS and bool(job.constraints) for job in jobs)

    @property
    def needs_host(self) -> bool:
        """Is there something that a step has to ask the host for, or that a captured step does not do?"""
        return self.any_terms or self.any_stops or self.any_traces or self.filters

    # ---- results

    def collect(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        """The answers of these slots: of each group its best, the unfinished behind what has ended."""
        jobs = [self.jobs[slot] for slot in slots]
        which = on_device(list(slots), self.written.device)
        return self.answers(jobs, [part.cpu().numpy() for part in self.results(which)])

    def results(self, which: Tensor) -> list[Tensor]:
        """Everything that `answers` needs of these slots."""
        ended = (self.score, self.ending, self.length, self.last, self.pool_ids, self.pool_logprobs)
        cut = (self.cut_totals, self.cut_length, self.ids, self.logprobs)
        return [tensor.index_select(0, which) for tensor in (*ended, *cut)]

    def answers(self, jobs: Sequence[Job], parts: Sequence[np.ndarray]) -> list[list[Hypothesis]]:
        """Hypotheses from `results` on the host, many at a time and no more than are wanted: thousands are made while a
        device waits."""
        score, ending, length, last, pool_ids, pool_logprobs, *cut = parts
        found: list[list[Hypothesis]] = [[] for _ in range(len(jobs) * self.groups)]  # of each slot's groups
        (there,) = np.nonzero(score.ravel() > -math.inf)
        columns = [part.ravel()[there].tolist() for part in (score, ending, length, last)]
        columns += [rows_of(part, there, max(columns[2], default=0)) for part in (pool_ids, pool_logprobs)]
        for place, value, kind, words, end, tokens, chances in zip(
            (there // self.wanted).tolist(), *columns, strict=True
        ):
            chances = chances[:words]
            if kind == 1:
                chances.append(end)
            found[place].append(Hypothesis(tokens[:words], value, math.fsum(chances), chances, ENDINGS[kind]))
        if len(there) < len(found) * self.wanted:
            self.add_cut(found, *cut)
        if self.groups == 1 and not any(job.trace is not None for job in jobs):
            return found
        groups = (found[at : at + self.groups] for at in range(0, len(found), self.groups))
        return [n_best(own, self.config.n_best, job.trace) for own, job in zip(groups, jobs, strict=True)]

    def add_cut(
        self,
        found: Sequence[list[Hypothesis]],
        totals: np.ndarray,
        lengths: np.ndarray,
        ids: np.ndarray,
        logprobs: np.ndarray,
    ) -> None:
        """Where too few have ended, what was cut. In a group those are equally long: their sums rank them."""
        missing = self.wanted - np.array([len(made) for made in found])
        (few,) = np.nonzero(missing)
        own = totals.reshape(-1, self.width)[few]
        order = np.argsort(-own, axis=1, kind="stable")[:, : self.wanted]
        sums = np.take_along_axis(own, order, 1)
        which, rank = np.nonzero((np.arange(self.wanted) < missing[few, None]) & (sums > -math.inf))
        places, rows = few[which], few[which] * self.width + order[which, rank]
        words = lengths.ravel()[places].tolist()
        rule, upto = length_rule(self.config), max(words, default=0)
        columns = (
            places.tolist(),
            sums[which, rank].tolist(),
            words,
            rows_of(ids, rows, upto),
            rows_of(logprobs, rows, upto),
        )
        for place, total, length, tokens, chances in zip(*columns, strict=True):
            own_chances, value = chances[:length], rule.score(total, length, False)
            found[place].append(Hypothesis(tokens[:length], value, math.fsum(own_chances), own_chances, "length"))


def rows_of(part: np.ndarray, rows: np.ndarray, upto: int) -> list[list[Any]]:
    """The beginnings of these rows of tokens."""
    return part.reshape(-1, part.shape[-1])[rows, :upto].tolist()  # type: ignore[no-any-return]
