"""The one search, on tensors: what every slot has written, its sums, what has ended; and the step to one token more.

At every step each hypothesis is continued by every allowed token, and the 2k best of these candidates are looked at in
order. One that is EOS and among the first k has ended; the first k others go on. (So it is done in tensor2tensor, fairseq
and CTranslate2.) A beam of one looks at one candidate: it is greedy search. Sampling is another way to choose that one. How
hypotheses of different lengths compare, and when the search of a sentence may stop, is said in lengths.py.

Diverse n-best (Vijayakumar et al. 2018): the beam is parted into groups that search side by side; a group pays a price for
every word that a group before it has just chosen. The price steers the choice and enters no score. No group ends with the
text of another, so that there are as many different answers as are asked for.

The sums are kept in float64, so that what is returned is what forced decoding of the same tokens gives. The module knows of the
model only its scores.

What is remembered from step to step is in slots.py. `step` is free of a look at the device, but for what a host has to do:
glossary terms, stop strings and traces (`needs_host`). On a CPU, where looking costs nothing, it skips what has no effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.decode import choose, filters
from glassformer.decode.constraints import Terms, choose_with_terms
from glassformer.decode.lengths import Lengths, length_rule, nothing_better_can_come
from glassformer.decode.request import Candidate
from glassformer.decode.slots import Slots


@dataclass
class Candidates:
    """For each slot (in one group) its best continuations in order: sum, row of the group that is continued, token and the
    model's own log-probability of it."""

    total: Float[Tensor, "n C"]
    parent: Int[Tensor, "n C"]
    token: Int[Tensor, "n C"]
    logprob: Float[Tensor, "n C"]


class SearchState(Slots):
    """The slots, and how they are made a token longer."""

    def step(self, logits: Float[Tensor, "R V"], n: int) -> tuple[Int[Tensor, "n K"], Int[Tensor, "n K"]]:
        """Every hypothesis of the first n slots a token longer. Returns the row that each continues, and its token."""
        groups, width = self.groups, self.width
        logprobs = logits.log_softmax(-1, dtype=self.dtype)
        allowed = self.allowed(logprobs, n)
        shape = (n, groups, width, logits.size(1))
        scores, raw = allowed.view(shape), logprobs.view(shape)
        price = None if groups == 1 else scores.new_zeros(n, logits.size(1))
        parents: list[Tensor] = []
        tokens: list[Tensor] = []
        parts: list[Tensor] = []
        for g in range(groups):
            if g and self.eos >= 0:
                self.keep_apart(n, g, scores[:, : g + 1], parents, tokens)
            found = self.candidates(n, g, scores[:, g], raw[:, g], price)
            if self.any_terms:
                self.put_terms_in(found, scores[:, g], raw[:, g])
            order, dead = self.sift(n, g, found)
            # Where nothing is left, all stays as it is.
            same = torch.arange(width, device=order.device)
            parent = torch.where(dead.all(dim=1, keepdim=True), same, found.parent.gather(1, order))
            parents.append(parent + g * width)
            tokens.append(found.token.gather(1, order).masked_fill(dead, 0))
            parts.append(found.logprob.gather(1, order))
            self.totals[:n, g] = found.total.gather(1, order).masked_fill(dead, -math.inf)
            if price is not None:
                price = price.scatter_add(1, tokens[g], self.config.diversity * (~dead).to(price.dtype))
        rows, chosen, logprob = (part[0] if groups == 1 else torch.cat(part, 1) for part in (parents, tokens, parts))
        self.follow(n, rows, chosen, logprob)
        if self.any_stops:
            self.end_at_stops(n)
        self.settle(n)
        return rows, chosen

    def allowed(self, logprobs: Float[Tensor, "R V"], n: int) -> Float[Tensor, "R V"]:
        """The log-probabilities of what may be written now, -inf elsewhere; the same tensor where nobody needs the old one."""
        config, jobs, beams = self.config, self.jobs[:n], self.beams
        scores = logprobs
        if self.filters:
            history = self.history(n)
            scores = filters.repetition_penalty(logprobs.clone(), history, config.repetition_penalty)
            scores = filters.no_repeat_ngram(scores, history, config.no_repeat_ngram)
            if any(job.constraints.banned for job in jobs):
                parts = zip(scores.split(beams), history.split(beams), jobs)
                scores = torch.cat([filters.ban_sequences(s, h, job.constraints.banned) for s, h, job in parts])
        if self.never.numel():
            scores.index_fill_(1, self.never, -math.inf)
        if self.eos >= 0 and not (self.looks and (self.ages[:n] >= self.minimums[:n]).all()):
            early = (self.written[:n] < self.minimum[:n])[:, None].expand(-1, beams).reshape(-1)
            scores[:, self.eos].masked_fill_(early, -math.inf)
        if not self.filters:
            return scores
        forced = [job.constraints.token_at(int(age)) for job, age in zip(jobs, self.ages)]
        if any(token is not None for token in forced):
            # What is forced is forced even where another filter is against it, and counts as the model scores it.
            wanted = torch.tensor([-1 if token is None else token for token in forced]).to(scores.device)
            wanted = wanted.repeat_interleave(beams)
            scores = torch.where((wanted >= 0)[:, None], filters.force(logprobs, wanted), scores)
        return scores

    def history(self, n: int) -> Int[Tensor, "R all"]:
        """What each row has read and written, padded on the left with -1."""
        jobs, device = self.jobs[:n], self.written.device
        before = max((len(job.prompt) for job in jobs), default=0)
        prompts = torch.tensor([[*[-1] * (before - len(job.prompt)), *job.prompt] for job in jobs], dtype=torch.long)
        length = self.upto(n)
        own = torch.arange(before + length, device=device) - (length - self.written[:n])[:, None]
        rows = torch.cat(
            [prompts.view(n, -1).to(device)[:, None].expand(-1, self.beams, -1), self.ids[:n, :, :length]], 2
        )
        shifted = rows.gather(2, own.clamp(min=0)[:, None].expand(-1, self.beams, -1).long())
        return shifted.masked_fill((own < 0)[:, None], -1).flatten(0, 1).long()

    def upto(self, n: int) -> int:
        """No active slot has written more tokens."""
        return self.longest if self.static else int(self.ages[:n].max(initial=0))

    def candidates(
        self, n: int, g: int, scores: Float[Tensor, "n W V"], raw: Float[Tensor, "n W V"], price: Tensor | None
    ) -> Candidates:
        """The best of each row first, then the best of those: the same as the best of all, at a fraction of the sorting.
        Where tokens are drawn, the one that is."""
        before, words = self.totals[:n, g], scores.size(2)
        steered = scores if price is None else scores - price[:, None]
        if self.looked_at == 1:
            if self.draws_tokens:
                at = self.written[:n, None].clamp(max=self.longest - 1)
                uniform = self.draws[:n].gather(1, at).squeeze(1)
                token = choose.sample(choose.shape(scores[:, 0], self.config), uniform)[:, None]
            else:
                token = self.topk(steered[:, 0], 1)[1]
            value, parent = scores[:, 0].gather(1, token), torch.zeros_like(token)
        else:
            best = self.topk(steered.flatten(0, 1), min(self.looked_at, words))
            per_row = best[0].size(1)
            totals = (before[:, :, None] + best[0].double().view(n, self.width, -1)).flatten(1)
            order = totals.topk(min(self.looked_at, self.width * per_row)).indices
            parent, token = order // per_row, best[1].view(n, -1).gather(1, order)
            value = scores.flatten(1).gather(1, parent * words + token)
        logprob = raw.flatten(1).gather(1, parent * words + token) if self.filters else value
        return Candidates(before.gather(1, parent) + value.double(), parent, token, logprob)

    def put_terms_in(self, found: Candidates, scores: Float[Tensor, "n W V"], raw: Float[Tensor, "n W V"]) -> None:
        """Slots with glossary terms get the candidates that the banks choose. A forced token leaves no choice."""
        for n in range(found.total.size(0)):
            job, age, width = self.jobs[n], int(self.ages[n]), found.total.size(1)
            if not job.constraints.terms or job.constraints.token_at(age) is not None:
                continue
            chosen = choose_with_terms(
                Terms.of(job.constraints.terms),
                self.ids[n, :, :age].tolist(),
                self.totals[n, 0].tolist(),
                scores[n],
                raw[n],
                slots=job.limit - age,
                width=width,
                eos=self.eos,
            )
            chosen += [(-math.inf, 0, 0)] * (width - len(chosen))
            total, parent, token = (torch.tensor(part, device=found.total.device) for part in zip(*chosen))
            found.total[n], found.parent[n], found.token[n] = total, parent, token
            found.logprob[n] = raw[n, parent, token]

    def sift(self, n: int, g: int, found: Candidates) -> tuple[Int[Tensor, "n W"], Bool[Tensor, "n W"]]:
        """Enter what has ended; say which candidates go on, as their places in the ranking, and which rows stay empty."""
        impossible = found.total == -math.inf
        is_eos = (found.token == self.eos) & ~impossible
        first = min(self.width, found.total.size(1))
        ends = is_eos[:, :first]
        if not self.looks or bool(ends.any()):
            self.enter(n, g, ends, found.total[:, :first], found.parent[:, :first], found.logprob[:, :first], 1)
        out = is_eos | impossible
        if self.looked_at == 1:
            order, dead = torch.zeros_like(found.parent), out
        else:
            order = out.to(torch.uint8).sort(dim=1, stable=True).indices[:, : self.width]
            dead = out.gather(1, order)
        missing = self.width - order.size(1)
        if missing:
            order, dead = F.pad(order, (0, missing)), F.pad(dead, (0, missing), value=True)
        if self.any_traces:
            self.tell(n, g, found, order, dead)
        # Where no token at all is allowed and nothing has ended, the hypotheses end where they are.
        if not self.looks or bool(dead.any()):
            stuck = dead.all(dim=1) & ~self.group_over[:n, g] & (self.count[:n, g] == 0)
            self.cut(n, g, stuck, self.written[:n])
        return order, dead

    def cut(self, n: int, g: int, where: Bool[Tensor, "n"], length: Int[Tensor, "n"]) -> None:
        """In these slots, what is being written ends here, unfinished."""
        self.cut_totals[:n, g] = torch.where(where[:, None], self.totals[:n, g], self.cut_totals[:n, g])
        self.cut_length[:n, g] = torch.where(where, length, self.cut_length[:n, g])

    def enter(
        self,
        n: int,
        g: int,
        ends: Bool[Tensor, "n M"],
        total: Float[Tensor, "n M"],
        row: Int[Tensor, "n M"],
        logprob: Float[Tensor, "n M"],
        ending: int,
    ) -> None:
        """What has just ended, into the group's pool of the best; of equals the one that was there before. `row`: which row of
        the group it has written."""
        upto = max(1, self.upto(n))
        past = (row + g * self.width)[:, :, None].expand(-1, -1, upto)
        ids, parts = self.ids[:n, :, :upto].gather(1, past), self.logprobs[:n, :, :upto].gather(1, past)
        length = self.written[:n, None].expand_as(ends)
        if self.groups > 1:
            ends = ends & ~self.known(n, g, ids, length)
        self.count[:n, g] += ends.sum(dim=1)
        divisor = self.divisors[int(ending == 1)].gather(0, self.written[:n].clamp(max=self.longest))
        score = torch.where(ends, total / divisor[:, None], -math.inf)
        every = torch.cat([self.score[:n, g], score], dim=1)
        best = every.sort(dim=1, descending=True, stable=True).indices[:, : self.wanted]
        self.score[:n, g] = every.gather(1, best)
        deep = best[:, :, None].expand(-1, -1, upto)
        for old, new in (
            (self.pool_ids[:n, g, :, :upto], ids),
            (self.pool_logprobs[:n, g, :, :upto], parts),
            (self.length[:n, g], length),
            (self.last[:n, g], logprob),
            (self.ending[:n, g], torch.full_like(length, ending)),
        ):
            both = torch.cat([old, new.to(old.dtype)], dim=1)
            old.copy_(both.gather(1, deep if both.dim() == 3 else best))

    def keep_apart(
        self, n: int, g: int, scores: Float[Tensor, "n g W V"], parents: Sequence[Tensor], tokens: Sequence[Tensor]
    ) -> None:
        """A group does not end with a text that another has ended with, nor, at the limit, with one that a group before it
        has just come to: those candidates are out."""
        upto, mine = max(1, self.upto(n)), scores[:, g]
        first, length = g * self.width, self.written[:n, None].expand(-1, self.width)
        own = self.ids[:n, first : first + self.width, :upto]
        mine[..., self.eos].masked_fill_(self.known(n, g, own, length), -math.inf)
        last = (self.written[:n] + 1 >= self.limit[:n])[:, None]
        beyond = torch.arange(upto, device=own.device) >= self.written[:n, None, None]
        for rows, chosen in zip(parents, tokens, strict=True):
            past = rows[:, :, None].expand(-1, -1, upto)
            theirs = self.ids[:n, :, :upto].gather(1, past)
            same = ((own[:, :, None] == theirs[:, None]) | beyond[:, None]).all(-1) & last[..., None]
            out = torch.zeros_like(mine, dtype=torch.bool)
            out.scatter_(2, chosen[:, None].expand(-1, self.width, -1), same)
            mine.masked_fill_(out, -math.inf)

    def known(self, n: int, g: int, ids: Int[Tensor, "n M T"], length: Int[Tensor, "n M"]) -> Bool[Tensor, "n M"]:
        """Has another group ended with this text already?"""
        upto = ids.size(2)
        others = [other for other in range(self.groups) if other != g]
        pool, lengths = self.pool_ids[:n, others, :, :upto].flatten(1, 2), self.length[:n, others].flatten(1)
        there = (self.score[:n, others] > -math.inf).flatten(1)
        beyond = torch.arange(upto, device=ids.device) >= length[:, :, None]
        same = ((pool[:, None] == ids[:, :, None]) | beyond[:, :, None]).all(-1)
        return (same & (lengths[:, None] == length[:, :, None]) & there[:, None]).any(-1)

    def follow(self, n: int, parents: Tensor, tokens: Tensor, logprob: Float[Tensor, "n K"]) -> None:
        """Every hypothesis takes the place of the one it continues, with one token more."""
        upto = self.upto(n)
        at = self.written[:n, None, None].clamp(max=self.longest - 1).expand(-1, self.beams, 1)
        for tensor, new in ((self.ids, tokens), (self.logprobs, logprob)):
            if self.beams > 1:
                past = parents[:, :, None].expand(-1, -1, upto)
                tensor[:n, :, :upto] = tensor[:n, :, :upto].gather(1, past)
            tensor[:n].scatter_(2, at, new[:, :, None].to(tensor.dtype))
        self.written[:n] += 1
        self.ages[:n] += 1

    def end_at_stops(self, n: int) -> None:
        """End what has just written a stop string."""
        ends = torch.zeros(n, self.beams, dtype=torch.bool)
        for slot, job in enumerate(self.jobs[:n]):
            if job.stopped is not None:
                alive = (self.totals[slot].flatten() > -math.inf).tolist()
                texts = self.ids[slot, :, : self.ages[slot]].tolist()
                ends[slot] = torch.tensor([ok and job.stopped(ids) for ok, ids in zip(alive, texts)])
        if not bool(ends.any()):
            return
        ends = ends.to(self.totals.device).view(n, self.groups, self.width)
        rows = torch.arange(self.width, device=ends.device).expand(n, -1)
        for g in range(self.groups):
            totals = self.totals[:n, g]
            self.enter(n, g, ends[:, g], totals, rows, torch.zeros_like(totals), 2)
            totals.masked_fill_(ends[:, g], -math.inf)

    def settled(self, n: int, best: Float[Tensor, "n G"]) -> Bool[Tensor, "n G"]:
        """By the stop rule, may the search of a group end? `best`: the highest sum of what it is still writing."""
        if self.config.stop_rule == "first-k":
            return self.count[:n] >= self.width
        columns = (one[:n, None] for one in (self.written, self.minimum, self.limit, self.has_stops))
        over = nothing_better_can_come(self.divisors, best, self.score[:n, :, -1], Lengths(*columns))
        return (self.count[:n] >= self.wanted) & over

    def settle(self, n: int) -> None:
        """End what has met its limit, and whole groups in which nothing better can come."""
        if self.looks and self.beams == 1 and (self.ages[:n] < self.limits[:n]).all():
            # A beam of one has nothing to compare itself with: it is over where it has ended.
            self.over[:n] = self.totals[:n, 0, 0] == -math.inf
            self.group_over[:n, 0] = self.over[:n]
            return
        at_limit = self.written[:n] >= self.limit[:n]
        best = self.totals[:n].amax(dim=2)
        alive = best > -math.inf
        may_be_cut = not self.looks or (self.ages[:n] >= self.limits[:n]).any()
        for g in range(self.groups if may_be_cut else 0):
            self.cut(n, g, ~self.group_over[:n, g] & at_limit & alive[:, g], self.written[:n])
        self.group_over[:n] |= at_limit[:, None] | ~alive
        if self.beams > 1:
            self.group_over[:n] |= self.settled(n, best)
        self.totals[:n].masked_fill_(self.group_over[:n, :, None], -math.inf)
        self.over[:n] = self.group_over[:n].all(dim=1)

    def tell(self, n: int, g: int, found: Candidates, order: Int[Tensor, "n W"], dead: Bool[Tensor, "n W"]) -> None:
        """Write a step into the traces."""
        rule = length_rule(self.config)
        for slot, job in enumerate(self.jobs[:n]):
            if job.trace is None or bool(self.group_over[slot, g]):
                continue
            steps, place = job.trace.steps, int(self.ages[slot])
            while len(steps) <= place:
                steps.append([])
            kept = {w: g * self.width + s for s, w in enumerate(order[slot].tolist()) if not dead[slot, s]}
            columns = (part[slot].tolist() for part in (found.total, found.parent, found.token, found.logprob))
            for w, (total, parent, token, logprob) in enumerate(zip(*columns)):
                if total == -math.inf:
                    continue
                is_eos = token == self.eos
                score = rule.score(total, place + (not is_eos), is_eos)
                fate = "kept" if w in kept else "ended" if is_eos and w < self.width else "dropped"
                row = g * self.width + parent
                steps[place].append(Candidate(row, token, logprob, total, score, fate, kept.get(w)))  # type: ignore[arg-type]
