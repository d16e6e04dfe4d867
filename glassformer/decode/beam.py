"""Beam search: the k best beginnings of every sentence, a token longer at each step.

At every step each hypothesis is continued by every allowed token, and the 2k best of these candidates are looked at in
order. One that is EOS and among the first k has ended; the first k others go on. (So it is done in tensor2tensor, fairseq
and CTranslate2. A beam of one looks at one candidate: it is greedy search.) How hypotheses of different lengths compare,
and when the search of a sentence may stop, is said in lengths.py.

Diverse n-best (Vijayakumar et al. 2018): the beam is parted into groups that search side by side; a group pays a price for
every word that a group before it has just chosen. The price steers the choice and enters no score.

The sums are kept in float64, so that what is returned is what forced decoding of the same tokens gives. The module knows
of the model only its scores: `steps`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode.choose import best
from glassformer.decode.constraints import Controls, Terms, choose_with_terms
from glassformer.decode.lengths import is_settled, length_rule
from glassformer.decode.results import BeamTrace, Candidate, Ending, Hypothesis, ranked
from glassformer.decode.search import Filters, Task, log_probabilities
from glassformer.decode.steps import Steps


@dataclass
class Candidates:
    """For each sentence (of one group) its best continuations in order: sum, slot that is continued, token."""

    total: Float[Tensor, "N W"]
    parent: Int[Tensor, "N W"]
    token: Int[Tensor, "N W"]


def best_candidates(
    totals: Float[Tensor, "N K"], allowed: Float[Tensor, "N K V"], width: int, price: Float[Tensor, "N V"] | None = None
) -> Candidates:
    """The best of each row first, then the best of those: the same as the best of all, at a fraction of the sorting."""
    beams, vocabulary = allowed.shape[1:]
    steered = allowed if price is None else allowed - price[:, None]
    value, token = (t.unflatten(0, (-1, beams)) for t in best(steered.flatten(0, 1), min(width, vocabulary)))
    per_row = value.size(2)
    order = (totals[:, :, None] + value.double()).flatten(1).topk(min(width, beams * per_row)).indices
    parent = order // per_row
    token = token.flatten(1).gather(1, order)
    true = allowed.flatten(1).gather(1, parent * vocabulary + token).double()
    return Candidates(totals.gather(1, parent) + true, parent, token)


def put_terms_in(
    candidates: Candidates,
    tasks: Sequence[Task],
    written: Int[Tensor, "R T"],
    totals: Float[Tensor, "N K"],
    allowed: Float[Tensor, "N K V"],
    logprobs: Float[Tensor, "N K V"],
    eos: int | None,
) -> None:
    """Sentences with glossary terms get the candidates that the banks choose. A forced token leaves no choice."""
    width, beams = candidates.total.size(1), totals.size(1)
    place = written.size(1)
    for n, task in enumerate(tasks):
        if not task.demands.terms or task.demands.token_at(place) is not None:
            continue
        chosen = choose_with_terms(
            Terms(task.demands.terms),
            written[n * beams : (n + 1) * beams].tolist(),
            totals[n].tolist(),
            allowed[n],
            logprobs[n],
            slots=task.limit - place,
            width=width,
            eos=eos,
        )
        chosen += [(-math.inf, 0, 0)] * (width - len(chosen))
        for tensor, values in zip((candidates.total, candidates.parent, candidates.token), zip(*chosen)):
            tensor[n] = torch.tensor(values, dtype=tensor.dtype, device=tensor.device)


FATES: tuple[Literal["dropped", "ended", "kept"], ...] = ("dropped", "ended", "kept")


class BeamSearch:
    """The search of one batch. `parts` groups of `width` slots each make up a sentence's beam; row r of the model is slot
    r % beams of the sentence active[r // beams]. A slot whose sum is -inf is empty."""

    def __init__(
        self,
        steps: Steps,
        tasks: Sequence[Task],
        config: DecodeConfig,
        controls: Controls,
        *,
        device: torch.device,
        traced: bool = False,
    ) -> None:
        self.steps, self.tasks, self.config = steps, tasks, config
        self.rule = length_rule(config)
        self.beams, self.parts = config.beams, config.groups
        self.width = self.beams // self.parts
        self.looked_at = 2 * self.width if self.width > 1 else 1
        self.eos = -1 if controls.eos is None else controls.eos
        self.allow = Filters(tasks, config, controls, self.beams)
        self.active = list(range(len(tasks)))
        self.ended: list[list[list[Hypothesis]]] = [[[] for _ in range(self.parts)] for _ in tasks]
        self.over = [[False] * self.parts for _ in tasks]
        self.traces = [BeamTrace() for _ in tasks] if traced else None
        rows = len(tasks) * self.beams
        self.totals = torch.full((len(tasks), self.parts, self.width), -math.inf, dtype=torch.float64, device=device)
        self.totals[:, :, 0] = 0.0  # every hypothesis begins empty, so there is one of it
        self.written = torch.empty(rows, 0, dtype=torch.long, device=device)
        self.token_logprobs = torch.empty(rows, 0, dtype=torch.float64, device=device)

    def run(self, *, may_leave: bool = True, real: int | None = None) -> list[list[Hypothesis]]:
        """The n best of every task, best first. `real`: only the first so many tasks are waited for and returned."""
        waited_for = range(len(self.tasks) if real is None else real)
        while True:
            parents = self.step()
            self.settle()
            unfinished = [n for n, i in enumerate(self.active) if not all(self.over[i])]
            if not any(self.active[n] in waited_for for n in unfinished):
                break
            as_before = torch.arange(parents.size(0), device=parents.device)
            if may_leave and len(unfinished) < len(self.active):
                parents = self.leave(unfinished, parents)
            if not torch.equal(parents, as_before):
                self.steps.reorder(parents)
        traces: Sequence[BeamTrace | None] = self.traces or [None] * len(self.tasks)
        return [n_best(self.ended[i], self.config.n_best, traces[i]) for i in waited_for]

    def step(self) -> Int[Tensor, "R"]:
        """Every hypothesis a token longer. Returns for each row the one it continues."""
        logprobs = log_probabilities(self.steps.scores(self.written))
        shape = (len(self.active), self.parts, self.width, logprobs.size(1))
        allowed = self.allow(logprobs, self.written, self.active).view(shape)
        price = None if self.parts == 1 else allowed.new_zeros(shape[0], shape[3])
        rows, tokens, totals = [], [], []
        for g in range(self.parts):
            found = best_candidates(self.totals[:, g], allowed[:, g], self.looked_at, price)
            if self.parts == 1:
                tasks = [self.tasks[i] for i in self.active]
                put_terms_in(
                    found, tasks, self.written, self.totals[:, 0], allowed[:, 0], logprobs.view(shape)[:, 0], self.eos
                )
            first_row = torch.arange(shape[0], device=allowed.device) * self.beams
            row = first_row[:, None] + g * self.width + found.parent
            order, dead = self.sift(g, found, row, logprobs)
            rows.append(row.gather(1, order))
            tokens.append(found.token.gather(1, order).masked_fill(dead, 0))
            totals.append(found.total.gather(1, order).masked_fill(dead, -math.inf))
            if price is not None:
                price = price.scatter_add(1, tokens[g], self.config.diversity * (~dead).to(price.dtype))
        parents, chosen = torch.cat(rows, dim=1).flatten(), torch.cat(tokens, dim=1).flatten()
        self.totals = torch.stack(totals, dim=1)
        new_logprobs = logprobs[parents, chosen].double()
        self.token_logprobs = torch.cat([self.token_logprobs[parents], new_logprobs[:, None]], dim=1)
        self.written = torch.cat([self.written[parents], chosen[:, None]], dim=1)
        return parents

    def sift(
        self, g: int, found: Candidates, row: Int[Tensor, "N W"], logprobs: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, "N K"], Bool[Tensor, "N K"]]:
        """Enter what has ended; say which candidates go on, as their places in the ranking, and which slots stay empty."""
        impossible = found.total == -math.inf
        is_eos = (found.token == self.eos) & ~impossible
        for n, w in is_eos[:, : self.width].nonzero().tolist():
            r = int(row[n, w])
            self.end(self.active[n], g, r, "eos", float(found.total[n, w]), float(logprobs[r, self.eos]))
        out = is_eos | impossible
        order = out.to(torch.uint8).sort(dim=1, stable=True).indices[:, : self.width]
        dead = out.gather(1, order)
        if order.size(1) < self.width:
            missing = self.width - order.size(1)
            order = torch.cat([order, order.new_zeros(order.size(0), missing)], dim=1)
            dead = torch.cat([dead, dead.new_ones(dead.size(0), missing)], dim=1)
        if self.traces is not None:
            self.trace(g, found, row, logprobs, order, dead)
        for n in dead.all(dim=1).nonzero().flatten().tolist():
            i = self.active[n]
            if not self.over[i][g] and not self.ended[i][g]:
                # No token at all is allowed: the hypotheses end where they are.
                for slot, total in enumerate(self.totals[n, g].tolist()):
                    if total > -math.inf:
                        self.end(i, g, n * self.beams + g * self.width + slot, "length", total)
        return order, dead

    def end(self, i: int, g: int, row: int, ended: Ending, total: float, last: float | None = None) -> None:
        """Enter what a row has written as a hypothesis of task i; `last` is the log-probability of its EOS."""
        ids = self.written[row].tolist()
        logprobs = self.token_logprobs[row].tolist() + ([] if last is None else [last])
        score = self.rule.score(total, len(ids), ended == "eos")
        self.ended[i][g].append(Hypothesis(ids, score, math.fsum(logprobs), logprobs, ended))

    def settle(self) -> None:
        """End what has met a stop string or its limit, and whole groups in which nothing better can come."""
        length = self.written.size(1)
        for n, (i, parts) in enumerate(zip(self.active, self.totals.tolist())):
            task = self.tasks[i]
            for g, totals in enumerate(parts):
                if self.over[i][g]:
                    continue
                at_limit = length >= task.limit
                for slot, total in enumerate(totals):
                    if total == -math.inf or not (at_limit or task.stopped):
                        continue
                    row = n * self.beams + g * self.width + slot
                    if task.stopped and task.stopped(self.written[row].tolist()):
                        self.end(i, g, row, "stop", total)
                        totals[slot] = -math.inf
                        self.totals[n, g, slot] = -math.inf
                    elif at_limit:
                        self.end(i, g, row, "length", total)
                self.over[i][g] = at_limit or is_settled(
                    self.config,
                    [hypothesis.score for hypothesis in self.ended[i][g] if hypothesis.complete],
                    max(totals),
                    wanted=min(self.config.n_best, self.width),
                    width=self.width,
                    written=length,
                    minimum=task.minimum,
                    limit=task.limit,
                )
                if self.over[i][g]:
                    self.totals[n, g] = -math.inf

    def leave(self, staying: Sequence[int], rows: Int[Tensor, "R"]) -> Int[Tensor, "R2"]:
        """Only these sentences stay. Returns for each row that is left the one it continues."""
        stay = torch.tensor(list(staying), device=rows.device)
        kept = (stay[:, None] * self.beams + torch.arange(self.beams, device=rows.device)).flatten()
        self.active = [self.active[n] for n in staying]
        self.totals = self.totals.index_select(0, stay)
        self.written = self.written.index_select(0, kept)
        self.token_logprobs = self.token_logprobs.index_select(0, kept)
        return rows.index_select(0, kept)

    def trace(
        self,
        g: int,
        found: Candidates,
        row: Int[Tensor, "N W"],
        logprobs: Float[Tensor, "R V"],
        order: Int[Tensor, "N K"],
        dead: Bool[Tensor, "N K"],
    ) -> None:
        assert self.traces is not None
        place = self.written.size(1)
        for n, i in enumerate(self.active):
            if self.over[i][g]:
                continue
            steps = self.traces[i].steps
            if len(steps) == place:
                steps.append([])
            slots = {w: g * self.width + s for s, w in enumerate(order[n].tolist()) if not dead[n, s]}
            columns = (found.total[n].tolist(), found.parent[n].tolist(), found.token[n].tolist(), row[n].tolist())
            for w, (total, parent, token, r) in enumerate(zip(*columns)):
                if total == -math.inf:
                    continue
                is_eos = token == self.eos
                score = self.rule.score(total, place + (not is_eos), is_eos)
                slot = slots.get(w)
                ended = is_eos and w < self.width
                fate = FATES[2 if slot is not None else int(ended)]
                parent_slot = g * self.width + parent
                steps[place].append(Candidate(parent_slot, token, float(logprobs[r, token]), total, score, fate, slot))


def n_best(groups: Sequence[list[Hypothesis]], wanted: int, trace: BeamTrace | None) -> list[Hypothesis]:
    """The best of every group before the second best of any; then all in the order of their scores."""
    taken: dict[tuple[tuple[int, ...], bool], Hypothesis] = {}
    columns = [ranked(group) for group in groups]
    for rank in range(max(len(column) for column in columns)):
        for hypothesis in ranked([column[rank] for column in columns if rank < len(column)]):
            taken.setdefault((tuple(hypothesis.ids), hypothesis.complete), hypothesis)
    chosen = ranked(list(taken.values())[:wanted])
    return chosen if trace is None else [replace(hypothesis, trace=trace) for hypothesis in chosen]
