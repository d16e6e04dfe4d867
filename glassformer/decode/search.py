"""The one search, on tensors: the step from what every slot has written to one token more.

At every step each hypothesis is continued by every allowed token, and the 2k best of these candidates are looked at in order.
One that is EOS and among the first k has finished; the first k others stay alive. (So it is done in tensor2tensor, fairseq
and CTranslate2.) A beam of one looks at one candidate: it is greedy search. Sampling is another way to choose that one. How
hypotheses of different lengths compare, and when the search of a sentence may stop, is said in lengths.py.

The sums are kept in float64, so that what is returned is what forced decoding of the same tokens gives. The module knows of
the model only its logits.

    n   slots that are active              C   candidates that are looked at, in order
    K   beams of a slot (its rows)         M   hypotheses that end
    R   rows of all slots: n * K           V   vocabulary;   T   tokens written

The state from step to step is in slots.py. `step` never waits for the device, but for what a host has to do: glossary terms,
stop strings and traces (`needs_host`). On a CPU, where reading a value costs nothing, it skips what has no effect
(`may_sync`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.decode.constraints import choose_with_terms
from glassformer.decode.filters import ban_sequences, force, no_repeat_ngram, repetition_penalty, sample, topk, warp
from glassformer.decode.lengths import best_reachable, length_rule
from glassformer.decode.request import Candidate, Ending, Fate
from glassformer.decode.slots import ENDINGS, Slots


@dataclass
class Candidates:
    """For each slot its best continuations in order: cumulative log-probability, row of the slot that is continued, token and
    the model's own log-probability of it."""

    total: Float[Tensor, "n C"]
    parent: Int[Tensor, "n C"]
    token: Int[Tensor, "n C"]
    logprob: Float[Tensor, "n C"]


class SearchState(Slots):
    """The slots' state, and the step that makes their hypotheses a token longer."""

    def step(self, logits: Float[Tensor, "R V"], n: int) -> tuple[Int[Tensor, "n K"], Int[Tensor, "n K"]]:
        """Every hypothesis of the first n slots a token longer. Returns the row that each continues, its parent, and its
        token."""
        logprobs = logits.log_softmax(-1, dtype=self.dtype)
        scores = self.apply_filters(logprobs, n).view(n, self.beams, -1)
        raw = logprobs.view_as(scores)
        candidates = self.candidates(n, scores, raw)
        if self.any_terms:
            self.constrain(candidates, scores, raw)
        order, exhausted = self.select_alive(n, candidates)
        # Where nothing is left, all stays as it is: every row is its own parent.
        identity = torch.arange(self.beams, device=order.device)
        parents = torch.where(exhausted.all(dim=1, keepdim=True), identity, candidates.parent.gather(1, order))
        tokens = candidates.token.gather(1, order).masked_fill(exhausted, 0)
        self.totals[:n] = candidates.total.gather(1, order).masked_fill(exhausted, -math.inf)
        self.reorder_and_append(n, parents, tokens, candidates.logprob.gather(1, order))
        if self.any_stops:
            self.finish_at_stops(n)
        self.update_done(n)
        return parents, tokens

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

    def candidates(self, n: int, scores: Float[Tensor, "n K V"], raw: Float[Tensor, "n K V"]) -> Candidates:
        """The topk of each row first, then the topk of those: the same as the topk of all, at a fraction of the sorting. With
        sampling, the one token that is drawn."""
        before, vocab_size = self.totals[:n], scores.size(2)
        if self.n_candidates == 1:
            if self.do_sample:
                at = self.written[:n, None].clamp(max=self.max_length - 1)
                uniform = self.uniforms[:n].gather(1, at).squeeze(1)
                token = sample(warp(scores[:, 0], self.config), uniform)[:, None]
            else:
                token = topk(scores[:, 0], 1)[1]
            value, parent = scores[:, 0].gather(1, token), torch.zeros_like(token)
        else:
            best = topk(scores.flatten(0, 1), min(self.n_candidates, vocab_size))
            per_row = best[0].size(1)
            totals = (before[:, :, None] + best[0].double().view(n, self.beams, -1)).flatten(1)
            order = totals.topk(min(self.n_candidates, self.beams * per_row)).indices
            parent, token = order // per_row, best[1].view(n, -1).gather(1, order)
            value = scores.flatten(1).gather(1, parent * vocab_size + token)
        logprob = raw.flatten(1).gather(1, parent * vocab_size + token) if self.any_filters else value
        return Candidates(before.gather(1, parent) + value.double(), parent, token, logprob)

    def constrain(self, candidates: Candidates, scores: Float[Tensor, "n K V"], raw: Float[Tensor, "n K V"]) -> None:
        """Slots with glossary terms get the candidates that the banks choose. A prefix leaves no choice."""
        width = candidates.total.size(1)
        for n in range(candidates.total.size(0)):
            job, length = self.jobs[n], int(self.written_host[n])
            if not job.constraints.terms or job.constraints.token_at(length) is not None:
                continue
            chosen = choose_with_terms(
                job.constraints.terms,
                self.ids[n, :, :length].tolist(),
                self.totals[n].tolist(),
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

    def select_alive(self, n: int, candidates: Candidates) -> tuple[Int[Tensor, "n K"], Bool[Tensor, "n K"]]:
        """Keep what has finished; the candidates that stay alive (indices in the ranking), and the rows without one."""
        impossible = candidates.total == -math.inf
        is_eos = self.is_end(candidates.token) & ~impossible
        # Only an end among the first K is a finished hypothesis; one that ranks lower is dropped.
        first = min(self.beams, candidates.total.size(1))
        ends = is_eos[:, :first]
        if not self.may_sync or bool(ends.any()):
            total, parent, logprob = (
                column[:, :first] for column in (candidates.total, candidates.parent, candidates.logprob)
            )
            self.add_finished(n, ends, total, parent, logprob, "eos")
        out = is_eos | impossible
        if self.n_candidates == 1:
            order, exhausted = torch.zeros_like(candidates.parent), out
        else:
            # A stable sort: the candidates that go on come first, in their own order.
            order = out.to(torch.uint8).sort(dim=1, stable=True).indices[:, : self.beams]
            exhausted = out.gather(1, order)
        missing = self.beams - order.size(1)
        if missing:
            order, exhausted = F.pad(order, (0, missing)), F.pad(exhausted, (0, missing), value=True)
        if self.any_traces:
            self.record_trace(n, candidates, order, exhausted)
        # Where no token at all is allowed and nothing has ended, the hypotheses end where they are.
        if not self.may_sync or bool(exhausted.any()):
            self.keep_unfinished(n, exhausted.all(dim=1) & ~self.done[:n] & (self.finished_count[:n] == 0))
        return order, exhausted

    def keep_unfinished(self, n: int, where: Bool[Tensor, "n"]) -> None:
        """In these slots, what is alive ends here, unfinished."""
        self.unfinished_totals[:n] = torch.where(where[:, None], self.totals[:n], self.unfinished_totals[:n])
        self.unfinished_length[:n] = torch.where(where, self.written[:n], self.unfinished_length[:n])

    def add_finished(
        self,
        n: int,
        ends: Bool[Tensor, "n M"],
        total: Float[Tensor, "n M"],
        row: Int[Tensor, "n M"],
        logprob: Float[Tensor, "n M"],
        ending: Ending,
    ) -> None:
        """What has just ended, among the slot's best finished hypotheses; of equals the one that was there before. `row`: the
        row of the slot that it continues."""
        longest = max(1, self.longest_written(n))
        parents = row[:, :, None].expand(-1, -1, longest)
        ids, logprobs = self.ids[:n, :, :longest].gather(1, parents), self.logprobs[:n, :, :longest].gather(1, parents)
        length = self.written[:n, None].expand_as(ends)
        self.finished_count[:n] += ends.sum(dim=1)
        divisor = self.divisors[int(ending == "eos")].gather(0, self.written[:n].clamp(max=self.max_length))
        score = torch.where(ends, total / divisor[:, None], -math.inf)
        # Those that were there stand first, and the sort is stable: of equals the older one stays.
        scores = torch.cat([self.finished_score[:n], score], dim=1)
        best = scores.sort(dim=1, descending=True, stable=True).indices[:, : self.n_keep]
        self.finished_score[:n] = scores.gather(1, best)
        deep = best[:, :, None].expand(-1, -1, longest)
        for old, new in (
            (self.finished_ids[:n, :, :longest], ids),
            (self.finished_logprobs[:n, :, :longest], logprobs),
            (self.finished_length[:n], length),
            (self.finished_eos_logprob[:n], logprob),
            (self.finished_ending[:n], torch.full_like(length, ENDINGS.index(ending))),
        ):
            both = torch.cat([old, new.to(old.dtype)], dim=1)
            old.copy_(both.gather(1, deep if both.dim() == 3 else best))

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
        ends = ends.to(self.totals.device)
        totals, rows = self.totals[:n], torch.arange(self.beams, device=ends.device).expand(n, -1)
        self.add_finished(n, ends, totals, rows, torch.zeros_like(totals), "stop")
        totals.masked_fill_(ends, -math.inf)

    def stop_rule_met(self, n: int, best: Float[Tensor, "n"]) -> Bool[Tensor, "n"]:
        """By the stop rule, may the search of a slot stop? `best`: the highest sum of what is alive."""
        worst = self.finished_score[:n, -1]
        if self.config.stop_rule == "first-k":
            return self.finished_count[:n] >= self.beams
        if self.config.stop_rule == "best-now":
            now = best / self.divisors[0].gather(0, self.written[:n].clamp(max=self.max_length))
            return (self.finished_count[:n] >= self.beams) & (now <= worst)
        lengths = (self.written[:n], self.minimum[:n], self.limit[:n], self.has_stops[:n])
        return (self.finished_count[:n] >= self.n_keep) & (best_reachable(self.divisors, best, *lengths) <= worst)

    def update_done(self, n: int) -> None:
        """A slot is done at its limit, where nothing is alive, or by the stop rule."""
        if self.may_sync and self.beams == 1 and (self.written_host[:n] < self.limit_host[:n]).all():
            # A beam of one has nothing to compare itself with: it is done where it has finished.
            self.done[:n] = self.totals[:n, 0] == -math.inf
            return
        at_limit = self.written[:n] >= self.limit[:n]
        best = self.totals[:n].amax(dim=1)
        alive = best > -math.inf
        if not self.may_sync or (self.written_host[:n] >= self.limit_host[:n]).any():
            self.keep_unfinished(n, ~self.done[:n] & at_limit & alive)
        self.done[:n] |= at_limit | ~alive
        if self.beams > 1:
            self.done[:n] |= self.stop_rule_met(n, best)
        self.totals[:n].masked_fill_(self.done[:n, None], -math.inf)

    def record_trace(
        self, n: int, candidates: Candidates, order: Int[Tensor, "n K"], exhausted: Bool[Tensor, "n K"]
    ) -> None:
        """Write a step into the traces."""
        rule = length_rule(self.config)
        for slot, job in enumerate(self.jobs[:n]):
            if job.trace is None or bool(self.done[slot]):
                continue
            length, step = int(self.written_host[slot]), []
            kept = {rank: s for s, rank in enumerate(order[slot].tolist()) if not exhausted[slot, s]}
            columns = (candidates.parent, candidates.token, candidates.logprob, candidates.total)
            for rank, (row, token, logprob, total) in enumerate(zip(*(column[slot].tolist() for column in columns))):
                is_eos = token in self.ends
                fate: Fate = "kept" if rank in kept else "ended" if is_eos and rank < self.beams else "dropped"
                score = rule.score(total, length + (not is_eos), is_eos)
                if total > -math.inf:
                    step.append(Candidate(row, token, logprob, total, score, fate, kept.get(rank)))
            job.trace.steps.append(step)
