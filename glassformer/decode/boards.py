"""What a search knows, one row a sentence, on memory that never moves, and its step: for engine_cuda.py.

  Lines     every row for itself: greedy or drawn, with temperature, top-k, top-p and min-p (search.py is the reference).
  Beams     the beam of beam.py with all its length and stop rules: sums, the pool of what has ended, what was cut.

Each step is tensor code without a look at a value, or a kernel of choice_kernels.py that does the same in one launch.
"""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode import choose
from glassformer.decode.constraints import Controls
from glassformer.decode.lengths import length_rule
from glassformer.decode.results import Ending, Hypothesis
from glassformer.decode.search import Task, shape
from glassformer.decode.static_decoder import Room, move_rows


class Board(ABC):
    """What both searches share. `minimum` and `limit` are each sentence's own; `written` counts steps, for all alike."""

    def __init__(
        self, sentences: int, longest: int, config: DecodeConfig, controls: Controls, like: Tensor, *, rows: int
    ) -> None:
        device = like.device
        self.config = config
        self.eos = -1 if controls.eos is None else controls.eos
        unknown = () if config.allow_unknown or controls.unknown is None else (controls.unknown,)
        never = sorted({*controls.never, *unknown})
        self.never = torch.tensor(never, dtype=torch.long, device=device)
        self.is_never = torch.zeros(like.size(0), dtype=torch.int8, device=device).index_fill_(0, self.never, 1)
        self.longest = longest
        self.dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        self.written = torch.zeros((), dtype=torch.long, device=device)
        self.minimum = torch.zeros(sentences, dtype=torch.long, device=device)
        self.limit = torch.ones(sentences, dtype=torch.long, device=device)
        self.kernels: Any = None  # choice_kernels.py, where it can be used
        self.side: Any = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.over = torch.ones(sentences, dtype=torch.bool, device=device)
        # `over`, as last looked at
        self.view = torch.ones(sentences, dtype=torch.bool, pin_memory=device.type == "cuda")
        self.shown: Any = torch.cuda.Event() if device.type == "cuda" else None
        self.ids = torch.zeros(sentences, rows, longest, dtype=torch.int32, device=device)
        self.logprobs = torch.zeros(sentences, rows, longest, dtype=self.dtype, device=device)

    def sentence_tensors(self) -> list[Tensor]:
        return [self.minimum, self.limit, self.over, self.ids, self.logprobs]

    def begin(self, sentences: int, tasks: Sequence[Task]) -> None:
        """Rows behind the tasks are over before they begin."""
        filler = sentences - len(tasks)

        def column(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long).to(self.limit.device, non_blocking=True)

        self.written.zero_()
        self.minimum[:sentences] = column([task.minimum for task in tasks] + [0] * filler)
        self.limit[:sentences] = column([task.limit for task in tasks] + [1] * filler)
        self.over[: len(tasks)] = False
        self.over[len(tasks) : sentences] = True

    def look(self, sentences: int) -> None:
        """Have the host told who is over now. `shown` happens when it has been, `seen` waits for it."""
        self.view[:sentences].copy_(self.over[:sentences], non_blocking=True)
        if self.shown is not None:
            self.shown.record()

    def seen(self, sentences: int) -> np.ndarray:
        if self.shown is not None:
            self.shown.synchronize()
        return self.view[:sentences].numpy().copy()

    def move(self, rows: Int[Tensor, "M"], places: Int[Tensor, "M"]) -> None:
        """These sentences take the places of others."""
        move_rows(self.sentence_tensors(), rows, places)

    def scores(self, logits: Float[Tensor, "R V"], sentences: int) -> Float[Tensor, "R V"]:
        """Log-probabilities; -inf where a token may not be written now."""
        scores = logits.log_softmax(-1, dtype=self.dtype)
        if self.never.numel():
            scores.index_fill_(1, self.never, -math.inf)
        if self.eos >= 0:
            early = (self.written < self.minimum[:sentences])[:, None].expand(-1, scores.size(0) // sentences)
            column = scores[:, self.eos]
            column.copy_(column.masked_fill(early.reshape(-1), -math.inf))
        return scores

    @abstractmethod
    def step(self, logits: Float[Tensor, "R V"], room: Room, sentences: int) -> None:
        """Choose by the scores of what may follow: what is written, what has ended, what the next step reads."""

    @abstractmethod
    def harvest(self, rows: Sequence[int]) -> Callable[[slice], list[list[Hypothesis]]]:
        """Sends these rows to the host. The function that is returned makes answers of some of them, when there is time."""

    def sent(self, rows: Sequence[int], *tensors: Tensor) -> Callable[[], list[np.ndarray]]:
        """These rows of each tensor, on their way to the host while the device goes on; the function waits for them."""
        # Not made on the device at once: the host would wait for all that is under way there.
        which = torch.tensor(rows).to(self.over.device, non_blocking=True)
        parts = [tensor.index_select(0, which) for tensor in tensors]
        if not self.over.is_cuda:
            return lambda: [part.numpy() for part in parts]
        main, side = torch.cuda.current_stream(), self.side
        side.wait_stream(main)
        with torch.cuda.stream(side):
            copies = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in parts]
            for part, copy in zip(parts, copies, strict=True):
                copy.copy_(part, non_blocking=True)
                part.record_stream(side)
            arrived = side.record_event()

        def received() -> list[np.ndarray]:
            arrived.synchronize()
            return [copy.numpy() for copy in copies]

        return received


ENDED: tuple[Ending, ...] = ("length", "eos")


class Lines(Board):
    """One row a sentence."""

    def __init__(self, sentences: int, longest: int, config: DecodeConfig, controls: Controls, like: Tensor) -> None:
        super().__init__(sentences, longest, config, controls, like, rows=1)
        self.lengths = torch.zeros(sentences, dtype=torch.long, device=like.device)  # scores entered, EOS's included
        self.by_eos = torch.zeros(sentences, dtype=torch.bool, device=like.device)
        self.draws = torch.zeros(
            sentences, longest if config.temperature > 0 else 0, dtype=torch.float64, device=like.device
        )

    def sentence_tensors(self) -> list[Tensor]:
        return [*super().sentence_tensors(), self.lengths, self.by_eos, self.draws]

    def begin(self, sentences: int, tasks: Sequence[Task]) -> None:
        super().begin(sentences, tasks)
        self.lengths[:sentences].zero_()
        self.by_eos[:sentences].zero_()
        if self.config.temperature > 0:
            samples = self.config.num_samples
            texts, numbers = [task.fingerprint for task in tasks], [n % samples for n in range(len(tasks))]
            most = min(self.longest, max(task.limit for task in tasks))
            draws = choose.uniforms(self.config.seed, texts, numbers, most)
            self.draws[: len(tasks), :most] = draws.to(self.draws.device)

    def step(self, logits: Float[Tensor, "N V"], room: Room, sentences: int) -> None:
        if self.kernels is not None and self.config.temperature == 0 and self.dtype == torch.float32:
            self.kernels.best_words(self, logits, room.tokens, self.is_never)
            return
        scores = self.scores(logits, sentences)
        if self.config.temperature > 0:
            uniform = self.draws[:sentences].index_select(1, self.written[None]).squeeze(1)
            tokens = choose.sample(shape(scores, self.config), uniform)
        else:
            tokens = scores.argmax(-1)
        logprob = scores.gather(1, tokens[:, None]).squeeze(1)
        over, lengths = self.over[:sentences], self.lengths[:sentences]
        stuck = ~over & (logprob == -math.inf)  # no token is allowed
        goes_on = ~over & ~stuck
        ended = goes_on & (tokens == self.eos)
        self.ids[:sentences, 0].index_copy_(1, self.written[None], tokens[:, None].to(torch.int32))
        self.logprobs[:sentences, 0].index_copy_(1, self.written[None], logprob[:, None])
        lengths += goes_on
        self.by_eos[:sentences] |= ended
        self.written += 1
        over |= stuck | ended | (self.written >= self.limit[:sentences])
        room.tokens[:sentences, 0] = tokens

    def harvest(self, rows: Sequence[int]) -> Callable[[slice], list[list[Hypothesis]]]:
        received = self.sent(rows, self.ids[:, 0], self.logprobs[:, 0], self.lengths, self.by_eos)
        rule = length_rule(self.config)

        def answer(ids: list[int], logprobs: list[float], length: int, eos: bool) -> list[Hypothesis]:
            own, parts = ids[: length - eos], logprobs[:length]
            return [Hypothesis(own, rule.score(sum(parts), len(own), eos), math.fsum(parts), parts, ENDED[eos])]

        return lambda some: [answer(*row) for row in zip(*(part[some].tolist() for part in received()), strict=True)]


BEAM_KERNEL = True  # may be switched off to measure what it gives
CLEAR = 1e-4  # so far apart are the sums it is tried on
HELD: dict[tuple[object, ...], bool] = {}
"""Kinds of beam steps for which the kernel has been held to torch's, and whether it did the same."""


class Beams(Board):
    """The beam search of beam.py, without groups, terms, stop strings and traces."""

    def __init__(self, sentences: int, longest: int, config: DecodeConfig, controls: Controls, like: Tensor) -> None:
        super().__init__(sentences, longest, config, controls, like, rows=config.beams)
        device, self.beams, self.wanted = like.device, config.beams, config.n_best
        self.looked_at = 2 * self.beams if self.beams > 1 else 1
        rule = length_rule(config)
        # How a sum is divided that ends with EOS after so many tokens, and one that was cut.
        self.divisor = torch.tensor(
            [rule.divisor(n, True) for n in range(longest + 2)], dtype=torch.float64, device=device
        )

        def numbers(*shape: int, value: float = 0.0, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.full((sentences, *shape), value, dtype=dtype, device=device)

        self.totals = numbers(self.beams, value=-math.inf)
        # What has ended by EOS: how many, and the best of them, best first.
        self.count = numbers(dtype=torch.long)
        self.score = numbers(self.wanted, value=-math.inf)
        self.length = numbers(self.wanted, dtype=torch.long)
        self.last = numbers(self.wanted, dtype=self.dtype)
        self.pool_ids = numbers(self.wanted, longest, dtype=torch.int32)
        self.pool_logprobs = numbers(self.wanted, longest, dtype=self.dtype)
        # What was still being written when the search of a sentence was over: sums, and one length for all.
        self.cut_totals = numbers(self.beams, value=-math.inf)
        self.cut_length = numbers(dtype=torch.long)

    def sentence_tensors(self) -> list[Tensor]:
        pool = [self.count, self.score, self.length, self.last, self.pool_ids, self.pool_logprobs]
        return [*super().sentence_tensors(), self.totals, *pool, self.cut_totals, self.cut_length]

    def begin(self, sentences: int, tasks: Sequence[Task]) -> None:
        super().begin(sentences, tasks)
        for tensor in (self.totals, self.score, self.cut_totals):
            tensor[:sentences].fill_(-math.inf)
        self.totals[: len(tasks), 0] = 0.0
        self.count[:sentences].zero_()

    def step(self, logits: Float[Tensor, "R V"], room: Room, sentences: int) -> None:
        if self.kernel_holds(logits, room, sentences):
            self.kernels.beam_step(self, logits, room, sentences)
        else:
            self.step_by_torch(logits, room, sentences)

    def step_by_torch(self, logits: Float[Tensor, "R V"], room: Room, sentences: int) -> None:
        beams = self.beams
        value, token = self.best_words(logits, sentences)
        value, token = value.double().view(sentences, beams, -1), token.view(sentences, beams, -1)
        per_row = value.size(2)
        before = self.totals[:sentences]
        total, place = (before[:, :, None] + value).flatten(1).topk(min(self.looked_at, beams * per_row))
        parent = place // per_row
        token = token.flatten(1).gather(1, place)
        logprob = value.flatten(1).gather(1, place).to(self.dtype)

        impossible = total == -math.inf
        is_eos = (token == self.eos) & ~impossible
        self.enter(sentences, total, parent, logprob, is_eos)

        # The first `beams` candidates that are no EOS go on.
        out = is_eos | impossible
        order = out.to(torch.uint8).sort(dim=1, stable=True).indices[:, :beams]
        dead = out.gather(1, order)
        if order.size(1) < beams:
            missing = beams - order.size(1)
            order, dead = F.pad(order, (0, missing)), F.pad(dead, (0, missing), value=True)
        nothing_left = dead.all(dim=1, keepdim=True)
        # Where no token at all is allowed and nothing has ended, the hypotheses end where they are.
        stuck = nothing_left & ~self.over[:sentences, None] & (self.count[:sentences, None] == 0)
        self.cut_totals[:sentences] = torch.where(stuck, before, self.cut_totals[:sentences])
        self.cut_length[:sentences] = torch.where(stuck[:, 0], self.written, self.cut_length[:sentences])

        same = torch.arange(beams, device=order.device)
        parents = torch.where(nothing_left, same, parent.gather(1, order))
        tokens = token.gather(1, order).masked_fill(dead, 0)
        totals = total.gather(1, order).masked_fill(dead, -math.inf)
        self.follow(sentences, parents, tokens, logprob.gather(1, order), room)
        self.written += 1
        self.settle(sentences, totals)

    def best_words(self, logits: Float[Tensor, "R V"], sentences: int) -> tuple[Tensor, Tensor]:
        """The best of each row, with their log-probabilities."""
        words, wanted = logits.size(1), min(self.looked_at, logits.size(1))
        if self.kernels is None or self.dtype != torch.float32 or words < 4 * wanted * self.kernels.STRETCH:
            return choose.best(self.scores(logits, sentences), wanted)
        peak, part = self.kernels.peaks(logits, self.is_never, self.minimum, self.written, self.eos, beams=self.beams)
        # The best words stand in the stretches with the highest peaks. The last stretch may be short: its words that do not
        # exist are those of the last place, counted out below.
        highest = peak.topk(wanted).indices
        place = highest[:, :, None] * self.kernels.STRETCH + torch.arange(self.kernels.STRETCH, device=logits.device)
        place = place.flatten(1)
        found = logits.gather(1, place.clamp(max=words - 1)).float().masked_fill(place >= words, -math.inf)
        value, which = found.topk(wanted)
        return value - part.logsumexp(dim=1)[:, None], place.gather(1, which)

    def kernel_holds(self, logits: Float[Tensor, "R V"], room: Room, sentences: int) -> bool:
        """May the kernel make this step? A kernel is what a compiler makes of it, and one version was met that made words of
        twice their number; so before it is used on a device, it is held to the code below there, once for each kind."""
        words = logits.size(1)
        if not BEAM_KERNEL or self.kernels is None or self.dtype != torch.float32:
            return False
        if not self.kernels.suits_beam_step(self.beams, words):
            return False
        # A compiler makes something else of round numbers.
        numbers = [number % 16 == 0 for number in (logits.stride(0), self.longest, room.shade.size(2))]
        dtypes, search = (logits.dtype, room.shade.dtype), (self.beams, self.wanted, self.config.stop_rule)
        kind = (str(logits.device), *dtypes, words, *search, *numbers)
        if kind not in HELD:
            try:
                HELD[kind], why = self.trial(logits, room, min(sentences, 8)), "does not compute what it should"
            except Exception as error:  # whatever a compiler may say
                HELD[kind], why = False, f"cannot be used ({str(error).splitlines()[0] if str(error) else error!r})"
            if not HELD[kind]:
                warnings.warn(
                    f"the kernel of the beam {why} with this version of Triton; the beam runs without it, and slower",
                    stacklevel=2,
                )
        return HELD[kind]

    def trial(self, logits: Float[Tensor, "R V"], room: Room, sentences: int) -> bool:
        """A few steps on scores of our own, by the kernel and by torch, on copies of everything."""
        draw = torch.Generator().manual_seed(1)
        rows, words, beams = sentences * self.beams, logits.size(1), self.beams

        def start() -> tuple[Beams, Room]:
            board = copy.copy(self)
            for name, value in vars(self).items():
                if isinstance(value, Tensor):
                    setattr(board, name, value.clone())
            board.written.zero_()
            board.minimum.zero_()
            board.limit.fill_(self.longest)
            board.over.zero_()
            board.count.zero_()
            for tensor in (board.totals, board.score):
                tensor.fill_(-math.inf)
            board.totals[:, 0] = 0.0
            return board, replace(
                room, shade=room.shade.clone(), tokens=room.tokens.clone(), column=room.column.clone()
            )

        def drawn() -> Tensor:
            """Mostly low; some words of each row stand out, and now and then the end is among them."""
            made = torch.rand(rows, words, generator=draw) * 4 - 12
            places = torch.stack([torch.randperm(words, generator=draw)[: 4 * beams] for _ in range(rows)])
            heights = torch.stack([torch.randperm(4 * beams, generator=draw) for _ in range(rows)]) / 4
            made.scatter_(1, places, heights + torch.rand(rows, 4 * beams, generator=draw) / 8)
            if self.eos >= 0:
                made[torch.arange(rows) % 3 == 1, self.eos] = beams - 0.06
            return made.to(logits.dtype)

        def clear(made: Tensor, totals: Tensor) -> bool:
            """Are the best continuations far enough apart that rounding cannot change their order?"""
            chances = made.double().log_softmax(-1).index_fill(1, self.never.cpu(), -math.inf).view(sentences, -1)
            every = chances + totals[:sentences].cpu().repeat_interleave(words, 1)
            best = every.topk(self.looked_at + 1).values
            apart = best[:, :-1] - best[:, 1:]
            return bool((apart[apart.isfinite()] > CLEAR).all())

        def scores(totals: Tensor) -> Tensor:
            made = next((made for made in (drawn() for _ in range(200)) if clear(made, totals)), drawn())
            given = torch.empty_strided(made.shape, logits.stride(), dtype=logits.dtype, device=logits.device)
            return given.copy_(made)

        (ours, our_room), (theirs, their_room) = start(), start()
        theirs.kernels = None
        for step in range(min(3, self.longest)):
            given = scores(theirs.totals)
            again = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device).copy_(
                given
            )
            for board, its_room, one_step, mine in (
                (ours, our_room, self.kernels.beam_step, given),
                (theirs, their_room, Beams.step_by_torch, again),
            ):
                columns = its_room.column.fill_(step * beams) + torch.arange(beams, device=logits.device)
                its_room.shade[:sentences].index_copy_(2, columns, its_room.own.expand(sentences, -1, -1))
                its_room.column += beams
                one_step(board, mine, its_room, sentences)
            if not alike(ours, our_room, theirs, their_room, sentences):
                return False
        return True

    def enter(self, sentences: int, total: Tensor, parent: Tensor, logprob: Tensor, is_eos: Tensor) -> None:
        """What has just ended, into the pool of the best; of equals the one that was there before."""
        first = min(self.beams, total.size(1))
        is_eos, parent = is_eos[:, :first], parent[:, :first]
        self.count[:sentences] += is_eos.sum(dim=1)
        score = torch.where(is_eos, total[:, :first] / self.divisor.index_select(0, self.written[None]), -math.inf)
        all_scores = torch.cat([self.score[:sentences], score], dim=1)
        best = all_scores.sort(dim=1, descending=True, stable=True).indices[:, : self.wanted]
        deep = best[:, :, None].expand(-1, -1, self.longest)
        past = parent[:, :, None].expand(-1, -1, self.longest)

        def among(old: Tensor, new: Tensor) -> None:
            every = torch.cat([old[:sentences], new], dim=1)
            old[:sentences] = every.gather(1, deep if every.dim() == 3 else best)

        among(self.pool_ids, self.ids[:sentences].gather(1, past))
        among(self.pool_logprobs, self.logprobs[:sentences].gather(1, past))
        among(self.length, self.written.expand(sentences, first))
        among(self.last, logprob[:, :first])
        self.score[:sentences] = all_scores.gather(1, best)

    def follow(self, sentences: int, parents: Tensor, tokens: Tensor, logprob: Tensor, room: Room) -> None:
        """Every hypothesis takes the place of the one it continues: its words, its past, its next token."""
        past = parents[:, :, None].expand(-1, -1, self.longest)
        ids, logprobs = self.ids[:sentences].gather(1, past), self.logprobs[:sentences].gather(1, past)
        ids.index_copy_(2, self.written[None], tokens[:, :, None].to(torch.int32))
        logprobs.index_copy_(2, self.written[None], logprob[:, :, None])
        self.ids[:sentences], self.logprobs[:sentences] = ids, logprobs
        seen = parents[:, :, None].expand(-1, -1, room.shade.size(2))
        room.shade[:sentences] = room.shade[:sentences].gather(1, seen)
        room.tokens[:sentences] = tokens

    def settle(self, sentences: int, totals: Float[Tensor, "N K"]) -> None:
        over, limit = self.over[:sentences], self.limit[:sentences]
        at_limit = self.written >= limit
        best_total = totals.amax(dim=1)
        alive = best_total > -math.inf
        cut = ~over & at_limit & alive
        self.cut_totals[:sentences] = torch.where(cut[:, None], totals, self.cut_totals[:sentences])
        self.cut_length[:sentences] = torch.where(cut, self.written, self.cut_length[:sentences])
        if self.config.stop_rule == "first-k":
            settled = self.count[:sentences] >= self.beams
        else:
            shortest, longest = torch.maximum(self.written, self.minimum[:sentences]), limit - 1
            last = self.divisor.numel() - 1
            reachable = torch.maximum(
                best_total / self.divisor[shortest.clamp(max=last)], best_total / self.divisor[longest.clamp(min=0)]
            ).masked_fill(shortest > longest, -math.inf)
            settled = (self.count[:sentences] >= self.wanted) & (reachable <= self.score[:sentences, -1])
        over |= at_limit | ~alive | settled
        self.totals[:sentences] = totals.masked_fill(over[:, None], -math.inf)

    def harvest(self, rows: Sequence[int]) -> Callable[[slice], list[list[Hypothesis]]]:
        rule, wanted = length_rule(self.config), self.wanted
        pool = (self.count, self.score, self.length, self.last, self.pool_ids, self.pool_logprobs)
        received = self.sent(rows, *pool, self.cut_totals, self.cut_length, self.ids, self.logprobs)

        divisors = np.array([rule.divisor(n, False) for n in range(self.longest + 1)])

        def answers(some: slice) -> list[list[Hypothesis]]:
            count, score, length, last, pool_ids, pool_logprobs, cut_totals, cut_length, ids, logprobs = (
                part[some] for part in received()
            )
            found: list[list[Hypothesis]] = [[] for _ in count]
            many = np.flatnonzero(count)
            if len(many):
                upto = length[many].max()
                ended = zip(
                    *(part[many].tolist() for part in (count, score, length, last)),
                    *(part[many, :, :upto].tolist() for part in (pool_ids, pool_logprobs)),
                    strict=True,
                )
                for number, (there, *several) in zip(many.tolist(), ended, strict=True):
                    for value, words, end, own, parts in islice(zip(*several, strict=True), there):
                        parts = [*parts[:words], end]
                        found[number].append(Hypothesis(own[:words], value, math.fsum(parts), parts, "eos"))
            few = np.flatnonzero(count < wanted)
            if len(few):
                # Those that were cut are equally long: their sums rank them.
                best = np.argsort(-cut_totals[few], axis=1, kind="stable")[:, :wanted]
                lengths, whose = cut_length[few], few[:, None]
                upto = lengths.max()
                cut = zip(
                    lengths.tolist(),
                    (cut_totals[whose, best] / divisors[lengths][:, None]).tolist(),
                    *(part[whose, best, :upto].tolist() for part in (ids, logprobs)),
                    strict=True,
                )
                for number, (words, *several) in zip(few.tolist(), cut, strict=True):
                    for value, own, parts in islice(zip(*several, strict=True), wanted - len(found[number])):
                        if value > -math.inf:
                            parts = parts[:words]
                            found[number].append(Hypothesis(own[:words], value, math.fsum(parts), parts, "length"))
            return found

        return answers


def alike(ours: Beams, our_room: Room, theirs: Beams, their_room: Room, sentences: int) -> bool:
    """Have two boards come to the same? What belongs to no living hypothesis may be anything."""
    written, column = int(theirs.written), int(their_room.column)
    live = ~theirs.over[:sentences]
    ended = torch.arange(theirs.wanted, device=live.device) < theirs.count[:sentences, None]
    past = torch.arange(theirs.longest, device=live.device) < theirs.length[:sentences, :, None]

    def same(name: str, where: Tensor, upto: int | None = None) -> bool:
        a, b = (getattr(board, name)[:sentences] for board in (ours, theirs))
        a, b = (t[where] if upto is None else t[where][..., :upto] for t in (a, b))
        return torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-4)

    everywhere = torch.ones_like(live)
    return (
        same("over", everywhere)
        and same("count", everywhere)
        and torch.equal(our_room.tokens[:sentences][live], their_room.tokens[:sentences][live])
        and torch.equal(
            our_room.shade[:sentences][live][..., :column], their_room.shade[:sentences][live][..., :column]
        )
        and all(same(name, live, written) for name in ("ids", "logprobs"))
        and same("totals", live)
        and all(same(name, ended) for name in ("score", "length", "last"))
        and all(same(name, ended[:, :, None] & past) for name in ("pool_ids", "pool_logprobs"))
    )
