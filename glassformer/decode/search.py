"""The one search, on tensors: the step from what every slot has written to one token more.

At every step each hypothesis is continued by every allowed token, and the 2k best of these candidates are looked at in order.
One that is EOS and among the first k has finished; the first k others stay alive. (So it is done in tensor2tensor, fairseq
and CTranslate2.) A beam of one looks at one candidate: it is greedy search. Sampling is another way to choose that one. How
hypotheses of different lengths compare, and when the search of a sentence may stop, is said in lengths.py.

Diverse beam search (Vijayakumar et al. 2018): the beam is split into groups that search side by side; a group pays a penalty
for every token that a group before it has just chosen. The penalty steers the choice and enters no score. No group finishes
with the text of another, so that there are as many different answers as are asked for.

The sums are kept in float64, so that what is returned is what forced decoding of the same tokens gives. The module knows of
the model only its logits.

    n   slots that are active              R   rows, of all of them: n * K
    K   beams of a slot (its rows)         C   candidates that are looked at, in order
    G   groups of a slot; g: one of them   M   hypotheses that end
    W   rows of a group: K / G             V   vocabulary;   T   tokens written

The state from step to step is in slots.py. `step` never waits for the device, but for what a host has to do: glossary terms,
stop strings and traces (`needs_host`). On a CPU, where reading a value costs nothing, it skips what has no effect
(`may_sync`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.decode.constraints import Terms, choose_with_terms
from glassformer.decode.filters import ban_sequences, force, no_repeat_ngram, repetition_penalty, sample, topk, warp
from glassformer.decode.lengths import Lengths, length_rule, nothing_better_can_come
from glassformer.decode.request import Candidate
from glassformer.decode.slots import ENDINGS, Slots


@dataclass
class Candidates:
    """For each slot (in one group) its best continuations in order: cumulative log-probability, row of the group that is
    continued, token and the model's own log-probability of it."""

    total: Float[Tensor, "n C"]
    parent: Int[Tensor, "n C"]
    token: Int[Tensor, "n C"]
    logprob: Float[Tensor, "n C"]


class SearchState(Slots):
    """The slots' state, and the step that makes their hypotheses a token longer."""

    def step(self, logits: Float[Tensor, "R V"], n: int) -> tuple[Int[Tensor, "n K"], Int[Tensor, "n K"]]:
        """Every hypothesis of the first n slots a token longer. Returns the row that each continues, its parent, and its
        token."""
        groups, group_size = self.groups, self.group_size
        if self.outside is not None and self.any_shortlists:
            rows = logits.view(n, self.beams, -1)
            logits = rows.masked_fill(self.outside[:n, None], -math.inf).flatten(0, 1)
        logprobs = logits.log_softmax(-1, dtype=self.dtype)
        filtered = self.apply_filters(logprobs, n)
        shape = (n, groups, group_size, logits.size(1))
        scores, raw = filtered.view(shape), logprobs.view(shape)
        penalty = None if groups == 1 else scores.new_zeros(n, logits.size(1))
        parents: list[Tensor] = []
        tokens: list[Tensor] = []
        new_logprobs: list[Tensor] = []
        for g in range(groups):
            if g and self.ends:
                self.ban_duplicates(n, g, scores[:, : g + 1], parents, tokens)
            candidates = self.candidates(n, g, scores[:, g], raw[:, g], penalty)
            if self.any_terms:
                self.constrain(candidates, scores[:, g], raw[:, g])
            order, exhausted = self.select_alive(n, g, candidates)
            # Where nothing is left, all stays as it is: every row is its own parent.
            identity = torch.arange(group_size, device=order.device)
            parent = torch.where(exhausted.all(dim=1, keepdim=True), identity, candidates.parent.gather(1, order))
            parents.append(parent + g * group_size)
            tokens.append(candidates.token.gather(1, order).masked_fill(exhausted, 0))
            new_logprobs.append(candidates.logprob.gather(1, order))
            self.totals[:n, g] = candidates.total.gather(1, order).masked_fill(exhausted, -math.inf)
            if penalty is not None:
                # The groups after this one pay for the tokens that it has chosen.
                penalty = penalty.scatter_add(1, tokens[g], self.config.diversity * (~exhausted).to(penalty.dtype))
        rows, chosen, logprob = (p[0] if groups == 1 else torch.cat(p, 1) for p in (parents, tokens, new_logprobs))
        self.reorder_and_append(n, rows, chosen, logprob)
        if self.any_stops:
            self.finish_at_stops(n)
        self.update_done(n)
        return rows, chosen

    def apply_filters(self, logprobs: Float[Tensor, "R V"], n: int) -> Float[Tensor, "R V"]:
        """The log-probabilities of the tokens that may be written now, -inf elsewhere; in place where nobody needs the old
        ones."""
        config, jobs, beams = self.config, self.jobs[:n], self.beams
        scores = logprobs
        if self.any_filters:
            history = self.history(n)
            scores = repetition_penalty(logprobs.clone(), history, config.repetition_penalty)
            scores = no_repeat_ngram(scores, history, config.no_repeat_ngram)
            if any(job.constraints.banned for job in jobs):
                parts = zip(scores.split(beams), history.split(beams), jobs)
                scores = torch.cat([ban_sequences(s, h, job.constraints.banned) for s, h, job in parts])
        if self.never.numel():
            scores.index_fill_(1, self.never, -math.inf)
        if self.ends and not (self.may_sync and (self.written_host[:n] >= self.minimum_host[:n]).all()):
            early = (self.written[:n] < self.minimum[:n])[:, None].expand(-1, beams).reshape(-1)
            for end in self.ends:
                scores[:, end].masked_fill_(early, -math.inf)
        if not self.any_filters:
            return scores
        forced = [job.constraints.token_at(int(length)) for job, length in zip(jobs, self.written_host)]
        if any(token is not None for token in forced):
            # A prefix is written even where another filter is against it, and counts as the model scores it.
            forced_ids = torch.tensor([-1 if token is None else token for token in forced]).to(scores.device)
            forced_ids = forced_ids.repeat_interleave(beams)
            scores = torch.where((forced_ids >= 0)[:, None], force(logprobs, forced_ids), scores)
            unscored = [job.constraints.unscored > length for job, length in zip(jobs, self.written_host)]
            if any(unscored):
                (rows,) = np.nonzero(np.repeat(unscored, beams))
                where = torch.from_numpy(rows).to(scores.device)
                scores[where, forced_ids[where]] = 0.0
        return scores

    def history(self, n: int) -> Int[Tensor, "R all"]:
        """The prompt and the tokens of each row, padded on the left with -1."""
        jobs, device = self.jobs[:n], self.written.device
        before = max((len(job.prompt) for job in jobs), default=0)
        prompts = torch.tensor([[*[-1] * (before - len(job.prompt)), *job.prompt] for job in jobs], dtype=torch.long)
        length = self.longest_written(n)
        # Texts that are shorter than the longest move to the right, so that all end in the last column.
        places = torch.arange(before + length, device=device) - (length - self.written[:n])[:, None]
        rows = torch.cat(
            [prompts.view(n, -1).to(device)[:, None].expand(-1, self.beams, -1), self.ids[:n, :, :length]], 2
        )
        shifted = rows.gather(2, places.clamp(min=0)[:, None].expand(-1, self.beams, -1).long())
        return shifted.masked_fill((places < 0)[:, None], -1).flatten(0, 1).long()

    def longest_written(self, n: int) -> int:
        """The most tokens that an active slot has written, or may have."""
        return self.max_length if self.static else int(self.written_host[:n].max(initial=0))

    def candidates(
        self, n: int, g: int, scores: Float[Tensor, "n W V"], raw: Float[Tensor, "n W V"], penalty: Tensor | None
    ) -> Candidates:
        """The topk of each row first, then the topk of those: the same as the topk of all, at a fraction of the sorting. With
        sampling, the one token that is drawn."""
        before, vocab_size = self.totals[:n, g], scores.size(2)
        penalised = scores if penalty is None else scores - penalty[:, None]
        if self.n_candidates == 1:
            if self.do_sample:
                at = self.written[:n, None].clamp(max=self.max_length - 1)
                uniform = self.uniforms[:n].gather(1, at).squeeze(1)
                token = sample(warp(scores[:, 0], self.config), uniform)[:, None]
            else:
                token = topk(penalised[:, 0], 1)[1]
            value, parent = scores[:, 0].gather(1, token), torch.zeros_like(token)
        else:
            best = topk(penalised.flatten(0, 1), min(self.n_candidates, vocab_size))
            per_row = best[0].size(1)
            totals = (before[:, :, None] + best[0].double().view(n, self.group_size, -1)).flatten(1)
            order = totals.topk(min(self.n_candidates, self.group_size * per_row)).indices
            parent, token = order // per_row, best[1].view(n, -1).gather(1, order)
            value = scores.flatten(1).gather(1, parent * vocab_size + token)
        logprob = raw.flatten(1).gather(1, parent * vocab_size + token) if self.any_filters else value
        return Candidates(before.gather(1, parent) + value.double(), parent, token, logprob)

    def constrain(self, candidates: Candidates, scores: Float[Tensor, "n W V"], raw: Float[Tensor, "n W V"]) -> None:
        """Slots with glossary terms get the candidates that the banks choose. A prefix leaves no choice."""
        width = candidates.total.size(1)
        for n in range(candidates.total.size(0)):
            job, length = self.jobs[n], int(self.written_host[n])
            if not job.constraints.terms or job.constraints.token_at(length) is not None:
                continue
            chosen = choose_with_terms(
                Terms.of(job.constraints.terms),
                self.ids[n, :, :length].tolist(),
                self.totals[n, 0].tolist(),
                scores[n],
                raw[n],
                tokens_left=job.limit - length,
                width=width,
                ends=self.ends,
            )
            chosen += [(-math.inf, 0, 0)] * (width - len(chosen))
            total, parent, token = (torch.tensor(column, device=candidates.total.device) for column in zip(*chosen))
            candidates.total[n], candidates.parent[n], candidates.token[n] = total, parent, token
            candidates.logprob[n] = raw[n, parent, token]

    def is_end(self, token: Int[Tensor, "n C"]) -> Bool[Tensor, "n C"]:
        """Which of these tokens end a text."""
        ends = token == (self.ends[0] if self.ends else -1)
        for end in self.ends[1:]:
            ends = ends | (token == end)
        return ends

    def select_alive(self, n: int, g: int, candidates: Candidates) -> tuple[Int[Tensor, "n W"], Bool[Tensor, "n W"]]:
        """Keep what has finished; the candidates that stay alive (indices in the ranking), and the rows without one."""
        impossible = candidates.total == -math.inf
        is_eos = self.is_end(candidates.token) & ~impossible
        # Only an end among the first W is a finished hypothesis; one that ranks lower is dropped.
        first = min(self.group_size, candidates.total.size(1))
        ends = is_eos[:, :first]
        if not self.may_sync or bool(ends.any()):
            logprob = candidates.logprob[:, :first]
            total, parent = candidates.total[:, :first], candidates.parent[:, :first]
            self.add_finished(n, g, ends, total, parent, logprob, ENDINGS.index("eos"))
        out = is_eos | impossible
        if self.n_candidates == 1:
            order, exhausted = torch.zeros_like(candidates.parent), out
        else:
            # A stable sort: the candidates that go on come first, in their own order.
            order = out.to(torch.uint8).sort(dim=1, stable=True).indices[:, : self.group_size]
            exhausted = out.gather(1, order)
        missing = self.group_size - order.size(1)
        if missing:
            order, exhausted = F.pad(order, (0, missing)), F.pad(exhausted, (0, missing), value=True)
        if self.any_traces:
            self.record_trace(n, g, candidates, order, exhausted)
        # Where no token at all is allowed and nothing has ended, the hypotheses end where they are.
        if not self.may_sync or bool(exhausted.any()):
            stuck = exhausted.all(dim=1) & ~self.group_done[:n, g] & (self.finished_count[:n, g] == 0)
            self.keep_unfinished(n, g, stuck, self.written[:n])
        return order, exhausted

    def keep_unfinished(self, n: int, g: int, where: Bool[Tensor, "n"], length: Int[Tensor, "n"]) -> None:
        """In these slots, what is alive ends here, unfinished."""
        self.unfinished_totals[:n, g] = torch.where(where[:, None], self.totals[:n, g], self.unfinished_totals[:n, g])
        self.unfinished_length[:n, g] = torch.where(where, length, self.unfinished_length[:n, g])

    def add_finished(
        self,
        n: int,
        g: int,
        ends: Bool[Tensor, "n M"],
        total: Float[Tensor, "n M"],
        row: Int[Tensor, "n M"],
        logprob: Float[Tensor, "n M"],
        ending: int,
    ) -> None:
        """What has just ended, among the group's best finished hypotheses; of equals the one that was there before. `row`:
        the row of the group that it continues."""
        longest = max(1, self.longest_written(n))
        parents = (row + g * self.group_size)[:, :, None].expand(-1, -1, longest)
        ids, logprobs = self.ids[:n, :, :longest].gather(1, parents), self.logprobs[:n, :, :longest].gather(1, parents)
        length = self.written[:n, None].expand_as(ends)
        if self.groups > 1:
            ends = ends & ~self.is_duplicate(n, g, ids, length)
        self.finished_count[:n, g] += ends.sum(dim=1)
        divisor = self.divisors[int(ENDINGS[ending] == "eos")].gather(0, self.written[:n].clamp(max=self.max_length))
        score = torch.where(ends, total / divisor[:, None], -math.inf)
        # Those that were there stand first, and the sort is stable: of equals the older one stays.
        scores = torch.cat([self.finished_score[:n, g], score], dim=1)
        best = scores.sort(dim=1, descending=True, stable=True).indices[:, : self.n_keep]
        self.finished_score[:n, g] = scores.gather(1, best)
        deep = best[:, :, None].expand(-1, -1, longest)
        for old, new in (
            (self.finished_ids[:n, g, :, :longest], ids),
            (self.finished_logprobs[:n, g, :, :longest], logprobs),
            (self.finished_length[:n, g], length),
            (self.finished_eos_logprob[:n, g], logprob),
            (self.finished_ending[:n, g], torch.full_like(length, ending)),
        ):
            both = torch.cat([old, new.to(old.dtype)], dim=1)
            old.copy_(both.gather(1, deep if both.dim() == 3 else best))

    def ban_duplicates(
        self, n: int, g: int, scores: Float[Tensor, "n g W V"], parents: Sequence[Tensor], tokens: Sequence[Tensor]
    ) -> None:
        """A group does not finish with a text that another has finished with, nor, at the limit, with one that a group before
        it has just come to: those candidates get -inf."""
        longest, mine = max(1, self.longest_written(n)), scores[:, g]
        first, length = g * self.group_size, self.written[:n, None].expand(-1, self.group_size)
        texts = self.ids[:n, first : first + self.group_size, :longest]
        duplicate = self.is_duplicate(n, g, texts, length)
        for end in self.ends:
            mine[..., end].masked_fill_(duplicate, -math.inf)
        last = (self.written[:n] + 1 >= self.limit[:n])[:, None]
        beyond = torch.arange(longest, device=texts.device) >= self.written[:n, None, None]
        for rows, chosen in zip(parents, tokens, strict=True):
            theirs = self.ids[:n, :, :longest].gather(1, rows[:, :, None].expand(-1, -1, longest))
            same = ((texts[:, :, None] == theirs[:, None]) | beyond[:, None]).all(-1) & last[..., None]
            # Added up, since two rows of the other group may have come to the same token from different texts.
            out = torch.zeros_like(mine, dtype=torch.int32)
            out.scatter_add_(2, chosen[:, None].expand(-1, self.group_size, -1), same.int())
            mine.masked_fill_(out > 0, -math.inf)

    def is_duplicate(
        self, n: int, g: int, ids: Int[Tensor, "n M T"], length: Int[Tensor, "n M"]
    ) -> Bool[Tensor, "n M"]:
        """Has another group finished with this text already?"""
        longest = ids.size(2)
        others = [other for other in range(self.groups) if other != g]
        finished = self.finished_ids[:n, others, :, :longest].flatten(1, 2)
        lengths = self.finished_length[:n, others].flatten(1)
        there = (self.finished_score[:n, others] > -math.inf).flatten(1)
        beyond = torch.arange(longest, device=ids.device) >= length[:, :, None]
        same = ((finished[:, None] == ids[:, :, None]) | beyond[:, :, None]).all(-1)
        return (same & (lengths[:, None] == length[:, :, None]) & there[:, None]).any(-1)

    def reorder_and_append(self, n: int, parents: Tensor, tokens: Tensor, logprob: Float[Tensor, "n K"]) -> None:
        """Every hypothesis takes the place of its parent's, with one token more."""
        longest = self.longest_written(n)
        at = self.written[:n, None, None].clamp(max=self.max_length - 1).expand(-1, self.beams, 1)
        for tensor, new in ((self.ids, tokens), (self.logprobs, logprob)):
            if self.beams > 1:
                of_parents = parents[:, :, None].expand(-1, -1, longest)
                tensor[:n, :, :longest] = tensor[:n, :, :longest].gather(1, of_parents)
            tensor[:n].scatter_(2, at, new[:, :, None].to(tensor.dtype))
        self.written[:n] += 1
        self.written_host[:n] += 1

    def finish_at_stops(self, n: int) -> None:
        """Finish what has just written a stop string."""
        ends = torch.zeros(n, self.beams, dtype=torch.bool)
        for slot, job in enumerate(self.jobs[:n]):
            if job.stopping_criterion is not None:
                alive = (self.totals[slot].flatten() > -math.inf).tolist()
                texts = self.ids[slot, :, : self.written_host[slot]].tolist()
                ends[slot] = torch.tensor([ok and job.stopping_criterion(ids) for ok, ids in zip(alive, texts)])
        if not bool(ends.any()):
            return
        ends = ends.to(self.totals.device).view(n, self.groups, self.group_size)
        rows = torch.arange(self.group_size, device=ends.device).expand(n, -1)
        for g in range(self.groups):
            totals = self.totals[:n, g]
            self.add_finished(n, g, ends[:, g], totals, rows, torch.zeros_like(totals), ENDINGS.index("stop"))
            totals.masked_fill_(ends[:, g], -math.inf)

    def stop_rule_met(self, n: int, best: Float[Tensor, "n G"]) -> Bool[Tensor, "n G"]:
        """By the stop rule, may the search of a group stop? `best`: the highest sum of what is alive."""
        if self.config.stop_rule == "first-k":
            return self.finished_count[:n] >= self.group_size
        if self.config.stop_rule == "best-now":
            now = best / self.divisors[0].gather(0, self.written[:n].clamp(max=self.max_length))[:, None]
            return (self.finished_count[:n] >= self.group_size) & (now <= self.finished_score[:n, :, -1])
        columns = (tensor[:n, None] for tensor in (self.written, self.minimum, self.limit, self.has_stops))
        final = nothing_better_can_come(self.divisors, best, self.finished_score[:n, :, -1], Lengths(*columns))
        return (self.finished_count[:n] >= self.n_keep) & final

    def update_done(self, n: int) -> None:
        """A group is done at its limit, where nothing is alive, or by the stop rule; a slot when all its groups are."""
        if self.may_sync and self.beams == 1 and (self.written_host[:n] < self.limit_host[:n]).all():
            # A beam of one has nothing to compare itself with: it is done where it has finished.
            self.done[:n] = self.totals[:n, 0, 0] == -math.inf
            self.group_done[:n, 0] = self.done[:n]
            return
        at_limit = self.written[:n] >= self.limit[:n]
        best = self.totals[:n].amax(dim=2)
        alive = best > -math.inf
        may_be_cut = not self.may_sync or (self.written_host[:n] >= self.limit_host[:n]).any()
        for g in range(self.groups if may_be_cut else 0):
            self.keep_unfinished(n, g, ~self.group_done[:n, g] & at_limit & alive[:, g], self.written[:n])
        self.group_done[:n] |= at_limit[:, None] | ~alive
        if self.beams > 1:
            self.group_done[:n] |= self.stop_rule_met(n, best)
        self.totals[:n].masked_fill_(self.group_done[:n, :, None], -math.inf)
        self.done[:n] = self.group_done[:n].all(dim=1)

    def record_trace(
        self, n: int, g: int, candidates: Candidates, order: Int[Tensor, "n W"], exhausted: Bool[Tensor, "n W"]
    ) -> None:
        """Write a step into the traces."""
        rule = length_rule(self.config)
        for slot, job in enumerate(self.jobs[:n]):
            if job.trace is None or bool(self.group_done[slot, g]):
                continue
            steps, place = job.trace.steps, int(self.written_host[slot])
            while len(steps) <= place:
                steps.append([])
            kept = {w: g * self.group_size + s for s, w in enumerate(order[slot].tolist()) if not exhausted[slot, s]}
            columns = (candidates.total, candidates.parent, candidates.token, candidates.logprob)
            for w, (total, parent, token, logprob) in enumerate(zip(*(column[slot].tolist() for column in columns))):
                if total == -math.inf:
                    continue
                is_eos = token in self.ends
                score = rule.score(total, place + (not is_eos), is_eos)
                fate = "kept" if w in kept else "ended" if is_eos and w < self.group_size else "dropped"
                row = g * self.group_size + parent
                steps[place].append(Candidate(row, token, logprob, total, score, fate, kept.get(w)))  # type: ignore[arg-type]
