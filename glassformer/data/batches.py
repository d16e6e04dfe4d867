"""Batches: examples laid into rows, in an order that a seed and a position determine.

An epoch is a list of micro-batches; the training stream is the list of epoch 0, then that of epoch 1, and so on for
ever. Micro-batch k of a list goes to rank k mod world. Each list holds every example exactly once. Which examples a
micro-batch holds, and in what shape, follows from (seed, epoch, k): nothing is remembered, so a stream starts anywhere.

Two layouts of sentences, one rule for reading them (see nn/rows.py):

    packed  several sentences a row, all micro-batches of a run in one shape, so nothing ever recompiles on a GPU.
            The last row of a batch may be empty.
    padded  shapes as they come. One sentence a row, sorted by length, where that wastes little. A small corpus cut
            into large batches cannot be sorted tightly by two lengths at once; then rows hold several sentences here
            too, only as narrow as can be, since attention on a CPU pays for width.

A text is cut into blocks of equal length, from another first token (the phase) each epoch. With N tokens and blocks of
L, an epoch reads K = max(1, (N - L) // L) blocks end to end: every token of that stretch exactly once, and the at most
2L - 1 tokens before and after it not at all, which are different ones each epoch.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.config import DataConfig
from glassformer.data.examples import IGNORE, Classify, Examples, Pairs, Prompts, Tag
from glassformer.data.packing import Packing, Shape, cut_by_budget, cut_waste, even_batches, pack, share_out
from glassformer.data.stream import Position, Stream, epoch_order, unit, words
from glassformer.data.tokens import TokenFile, ranges
from glassformer.errors import ConfigError, UserError
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, CONTROL, MASK, PAD

TIGHT = 0.045  # one sentence a row, as long as padding stays below this
WELL_PACKED = 0.02  # a row shape is good enough below this
SAMPLE = 2000  # sentences on which row shapes are tried
NOTHING = np.empty(0, np.int64)
START = Position(0, 0)


@dataclass(frozen=True)
class Batch:
    """`labels` say what is to be found at each place of `rows`, IGNORE where nothing is; `target_tokens` counts them.

    `examples` are numbers in the file (of blocks in the epoch, for a text), in the order of rows and segments. A batch
    without examples keeps ranks in step. Among whole rows there may be some that are all padding, at the end: they
    need no mask, since nobody looks at them."""

    source: Rows | None
    rows: Rows
    labels: Int[Tensor, "B T"]
    target_tokens: int
    examples: tuple[int, ...]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        source = self.source.to(device, non_blocking) if self.source is not None else None
        labels = self.labels.to(device, non_blocking=non_blocking)
        return replace(self, source=source, rows=self.rows.to(device, non_blocking), labels=labels)

    def pin_memory(self) -> Batch:
        source = pinned(self.source) if self.source is not None else None
        return replace(self, source=source, rows=pinned(self.rows), labels=self.labels.pin_memory())


def pinned(rows: Rows) -> Rows:
    return Rows(rows.tokens.pin_memory(), rows.segments.pin_memory(), rows.positions.pin_memory(), rows.layout)


def waste(batches: Iterable[Batch]) -> float:
    """The part of all positions, source and target, that is padding."""
    real = total = 0
    for batch in batches:
        for rows in (batch.source, batch.rows):
            if rows is not None:
                real += int(rows.real.sum())
                total += rows.tokens.numel()
    return 1 - real / total if total else 0.0


@dataclass(frozen=True)
class Places:
    """Where each of some sentences goes: its row, its segment number in the row, and (for a side) its first column."""

    row: Int[np.ndarray, " n"]
    segment: Int[np.ndarray, " n"]

    @staticmethod
    def in_rows(row: Int[np.ndarray, " n"]) -> Places:
        """`row` ascends; sentences of a row are numbered 1, 2, 3 …"""
        return Places(row, np.arange(len(row)) - np.searchsorted(row, row) + 1)

    def columns(self, lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        starts = np.cumsum(lengths) - lengths
        return starts - starts[np.searchsorted(self.row, self.row)] if len(starts) else starts

    def widest(self, lengths: Int[np.ndarray, " n"]) -> int:
        return int((self.columns(lengths) + lengths).max(initial=1))

    def lay(self, flat: Int[np.ndarray, " m"], lengths: Int[np.ndarray, " n"], height: int, width: int) -> Rows:
        """Sentences given end to end, as rows."""
        inside = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = np.repeat(self.row * width + self.columns(lengths), lengths) + inside
        tokens = spread(flat, at, height, width, PAD)
        segments = spread(np.repeat(self.segment, lengths), at, height, width, 0)
        positions = spread(inside, at, height, width, 0)
        return Rows(tokens, segments, positions, "packed")


def spread(values: Int[np.ndarray, " m"], at: Int[np.ndarray, " m"], height: int, width: int, empty: int) -> Tensor:
    out = np.full(height * width, empty, np.int64)
    out[at] = values
    return torch.from_numpy(out).view(height, width)


def one_a_row(rows: Rows, lengths: Int[np.ndarray, " n"]) -> Rows:
    """What the maker of such rows knows about their layout."""
    return Rows.padded(rows.tokens, lengths.tolist())


class Plan(ABC):
    """An epoch's list of micro-batches, each made when asked for. A number past the end gives an empty one."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def build(self, number: int) -> Batch: ...


class Batches(ABC):
    """An endless stream of micro-batches for one rank, and the same examples once in order for evaluation."""

    dropped: int = 0  # examples left out because they are too long

    def __init__(self, *, seed: int, rank: int = 0, world: int = 1, workers: int = 0) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world}")
        self.seed, self.rank, self.world, self.workers = seed, rank, world, workers
        self.plans: dict[int, Plan] = {}
        self.planning = threading.Lock()

    @abstractmethod
    def plan(self, epoch: int) -> Plan:
        """How an epoch is cut into micro-batches."""

    @abstractmethod
    def in_order(self, budget: int | None = None, *, limit: int | None = None) -> Iterator[Batch]:
        """For evaluation: every example once (the first `limit`), in the order of the file, one a row, padded."""

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Rows, source width and target width of every training batch; None where shapes come as they may."""
        return None

    def planned(self, epoch: int) -> Plan:
        if (known := self.plans.get(epoch)) is not None:
            return known
        with self.planning:
            if epoch not in self.plans:
                self.plans = {e: p for e, p in self.plans.items() if e == epoch - 1} | {epoch: self.plan(epoch)}
            return self.plans[epoch]

    def epoch_length(self, epoch: int = 0) -> int:
        """Micro-batches in this epoch, over all ranks (empty ones, which keep ranks in step, included)."""
        return -(-len(self.planned(epoch)) // self.world) * self.world

    def starting_at(self, position: Position = START) -> Iterator[tuple[Batch, Position]]:
        """This rank's micro-batches from `position` on, each with the position after it (the same on all ranks)."""
        if self.workers:
            yield from self.ahead(position)
        else:
            for epoch, number, following in self.itinerary(position):
                yield self.planned(epoch).build(number), following

    def itinerary(self, position: Position) -> Iterator[tuple[int, int, Position]]:
        index = position.index
        for epoch in itertools.count(position.epoch):
            end = len(self.planned(epoch))
            while index < end:
                mine, index = index + self.rank, index + self.world
                yield epoch, mine, Position(epoch, index) if index < end else Position(epoch + 1, 0)
            index = 0

    def ahead(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        """The same, made by background threads: a micro-batch follows from its number, no matter who makes it."""
        itinerary = self.itinerary(position)
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="batches")
        pending: deque[tuple[Future[Batch], Position]] = deque()
        latest = -1

        def submit() -> None:
            nonlocal latest
            epoch, number, following = next(itinerary)
            pending.append((pool.submit(self.planned(epoch).build, number), following))
            if epoch != latest:
                latest = epoch
                pool.submit(self.planned, epoch + 1)

        try:
            for _ in range(2 * self.workers):
                submit()
            while True:
                made, following = pending.popleft()
                batch = made.result()
                submit()
                yield batch, following
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class SentencePlan(Plan):
    """Sentences `order[starts[k]:starts[k+1]]` make micro-batch k; `rows` numbers the row of each within its batch."""

    lay: Callable[[np.ndarray, np.ndarray | None], Batch]
    order: Int[np.ndarray, " n"]
    rows: Int[np.ndarray, " n"] | None  # None: one sentence a row
    starts: Int[np.ndarray, " k"]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def build(self, number: int) -> Batch:
        if number >= len(self):
            return self.lay(NOTHING, None if self.rows is None else NOTHING)
        span = slice(int(self.starts[number]), int(self.starts[number + 1]))
        return self.lay(self.order[span], None if self.rows is None else self.rows[span])


class SentenceBatches(Batches):
    """Sentences, pairs or labelled lines, by token budget.

    budget   positions of the target side a micro-batch may have, padding included (a longer sentence goes alone)
    limit    sentences longer than this on either side, control tokens included, are left out and counted in `dropped`
    parts    micro-batches that make up a step, over all devices; packed epochs are a multiple of it where they can be
    """

    def __init__(
        self,
        examples: Examples,
        *,
        budget: int,
        limit: int,
        layout: Literal["padded", "packed"],
        seed: int,
        row_width: int = 128,
        parts: int = 1,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
    ) -> None:
        super().__init__(seed=seed, rank=rank, world=world, workers=workers)
        if budget < 1 or limit < 1:
            raise ValueError("a batch needs a budget and a limit of at least 1")
        self.examples, self.budget, self.layout, self.parts, self.row_width = examples, budget, layout, parts, row_width
        source, target = examples.source_lengths, examples.row_lengths
        self.kept = np.flatnonzero((source <= limit) & (target <= limit))
        self.dropped = len(target) - len(self.kept)
        if not len(self.kept):
            raise UserError(
                f"all {len(target)} examples are longer than {limit} tokens; raise data.max_length and model.block_size"
                if len(target)
                else "there is not a single example to learn from; look at the data files"
            )
        self.source, self.target = source[self.kept], target[self.kept]

    @cached_property
    def strips(self) -> int | None:
        """Into how many strips to sort for one sentence a row; None: rows hold several sentences."""
        if self.layout == "packed":
            return None
        most = max(1.0, float(self.target.sum()) / self.budget)
        candidates = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) if n <= 2 * most**0.5 + 1]
        found: dict[int, float] = {}
        for strips in candidates if self.examples.has_source else [1]:
            cut = cut_by_budget(self.source, self.target, self.budget, strips, self.seed, 0)
            found[strips] = cut_waste(self.source, self.target, *cut)
            if found[strips] < TIGHT / 2:
                break
        best = min(found, key=lambda n: found[n])
        return best if found[best] < TIGHT else None

    @cached_property
    def shapes(self) -> list[Shape]:
        """The row shapes in use, ascending: one for all where the shape is fixed."""
        longest_s, longest_t = int(self.source.max()), int(self.target.max())
        ratio = float(self.source.sum()) / float(self.target.sum())
        if self.layout == "packed":
            # Very long sources would make very wide rows: keep the wider side within twice the width asked for.
            asked = min(self.row_width, self.budget) if ratio <= 2 else min(self.row_width * 2 / ratio, self.budget)
            width = max(up_to_8(longest_t), int(asked) // 8 * 8)
            return [self.tightest(width, up_to_8(longest_t), up_to_8(longest_s), ratio)]
        widest = max(longest_t, self.budget)
        width = min(widest, max(16, round(4 * float(self.target.mean())), round(longest_t / 8)))
        shapes = [Shape(round(width * ratio), width)]
        while longest_t > width or (longest_s > shapes[-1].source and width < widest):
            width = min(2 * width, widest)
            shapes.append(Shape(round(width * ratio), width))
        shapes[-1] = Shape(max(longest_s, shapes[-1].source), width)
        return shapes

    def tightest(self, width: int, least_t: int, least_s: int, ratio: float) -> Shape:
        """Of shapes `width` wide or a little less, in multiples of 8, the first that a sample packs into well."""
        by_length = np.lexsort((self.source, self.target))
        sample = by_length[:: max(1, len(by_length) // SAMPLE)]
        source, target = self.source[sample], self.target[sample]
        tried: dict[Shape, float] = {}
        for width_t in range(width, max(least_t, width - 24) - 1, -8):
            below = int(width_t * ratio) // 8 * 8
            widths_s = (max(least_s, below), max(least_s, below + 8)) if self.examples.has_source else (0,)
            shape = min((Shape(width_s, width_t) for width_s in widths_s), key=self.least_waste)
            rows = len(pack(source, target, [shape]).shape_of)
            tried[shape] = 1 - float(source.sum() + target.sum()) / (rows * (shape.source + shape.target))
            if tried[shape] < WELL_PACKED:
                return shape
        return min(tried, key=lambda shape: tried[shape])

    def least_waste(self, shape: Shape) -> float:
        """Of rows of this shape, if the fuller side were packed without a gap."""
        real_s, real_t = float(self.source.sum()), float(self.target.sum())
        rows = max(real_s / max(shape.source, 1), real_t / shape.target)
        return 1 - (real_s + real_t) / (rows * (shape.source + shape.target))

    @cached_property
    def packing(self) -> Packing:
        return pack(self.source, self.target, self.shapes)

    @cached_property
    def batches_in_epoch(self) -> int:
        """Packed: always the same number, of the same height."""
        rows = len(self.packing.shape_of)
        return even_batches(rows, max(1, self.budget // self.shapes[0].target), self.parts)

    @cached_property
    def rows_in_batch(self) -> int:
        return -(-len(self.packing.shape_of) // self.batches_in_epoch)

    @property
    def shape(self) -> tuple[int, int, int] | None:
        if self.layout == "padded":
            return None
        return self.rows_in_batch, self.shapes[0].source, self.shapes[0].target

    def plan(self, epoch: int) -> SentencePlan:
        if self.strips is not None:
            order, starts = cut_by_budget(self.source, self.target, self.budget, self.strips, self.seed, epoch)
            turn = epoch_order(len(starts) - 1, self.seed, epoch, Stream.BATCHES)
            sizes = np.diff(starts)[turn]
            shuffled = order[ranges(starts[turn], sizes)]
            return SentencePlan(self.lay, self.kept[shuffled], None, np.concatenate([[0], np.cumsum(sizes)]))
        sentences = self.packing.deal(self.seed, epoch)
        shuffled_rows = epoch_order(len(self.packing.shape_of), self.seed, epoch, Stream.ROWS)
        batches: list[np.ndarray] = []  # the rows of each
        for number, shape in enumerate(self.shapes):
            rows = shuffled_rows[self.packing.shape_of[shuffled_rows] == number]
            if not len(rows):
                continue
            needed = -(-len(rows) // max(1, self.budget // shape.target))
            cuts = share_out(len(rows), self.batches_in_epoch if self.layout == "packed" else needed)
            batches += [rows[a:b] for a, b in itertools.pairwise(cuts)]
        batches = [batches[k] for k in epoch_order(len(batches), self.seed, epoch, Stream.BATCHES)]
        heights = np.array([len(rows) for rows in batches], np.int64)
        places, sizes = self.packing.places(np.concatenate(batches))
        row_in_batch = np.arange(len(sizes)) - np.repeat(np.cumsum(heights) - heights, heights)
        sentences_before = np.concatenate([[0], np.cumsum(sizes)])
        starts = sentences_before[np.concatenate([[0], np.cumsum(heights)])]
        return SentencePlan(self.lay, self.kept[sentences[places]], np.repeat(row_in_batch, sizes), starts)

    def lay(self, ids: Int[np.ndarray, " n"], row: Int[np.ndarray, " n"] | None) -> Batch:
        places = Places.in_rows(np.arange(len(ids)) if row is None else row)
        lengths_s, lengths_t = self.examples.source_lengths[ids], self.examples.row_lengths[ids]
        if self.layout == "packed" and row is not None:
            height, width_s, width_t = self.rows_in_batch, self.shapes[0].source, self.shapes[0].target
        else:
            height = int(places.row.max(initial=0)) + 1
            width_s, width_t = places.widest(lengths_s), places.widest(lengths_t)
        tokens, labels = self.examples.rows(ids)
        rows = places.lay(tokens, lengths_t, height, width_t)
        # Labels lie where the tokens of their example lie.
        laid = places.lay(labels - IGNORE, lengths_t, height, width_t).tokens + IGNORE
        source = None
        if self.examples.has_source:
            source = places.lay(self.examples.sources(ids), lengths_s, height, width_s)
        if row is None and len(ids):
            rows = one_a_row(rows, lengths_t)
            source = one_a_row(source, lengths_s) if source is not None else None
        return Batch(source, rows, laid, int((labels != IGNORE).sum()), tuple(ids.tolist()))

    def in_order(self, budget: int | None = None, *, limit: int | None = None) -> Iterator[Batch]:
        budget = budget or self.budget
        ids = self.kept[:limit]
        lengths = self.examples.row_lengths[ids]
        start = 0
        while start < len(ids):
            widths = np.maximum.accumulate(lengths[start : start + budget])
            fits = int(np.searchsorted(widths * np.arange(1, len(widths) + 1), budget, side="right"))
            yield self.lay(ids[start : start + max(1, fits)], None)
            start += max(1, fits)


def up_to_8(n: int) -> int:
    return -(-n // 8) * 8


@dataclass(frozen=True)
class BlockPlan(Plan):
    lay: Callable[[np.ndarray, np.ndarray, int, int], Batch]
    epoch: int
    stride: int
    height: int | None  # None: as many rows as blocks
    phase: int
    order: Int[np.ndarray, " n"]
    starts: Int[np.ndarray, " k"]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def build(self, number: int) -> Batch:
        inside = number < len(self)
        blocks = self.order[self.starts[number] : self.starts[number + 1]] if inside else NOTHING
        return self.lay(blocks, self.phase + blocks * self.stride, self.epoch, self.height or max(1, len(blocks)))


class BlockBatches(Batches):
    """A text in blocks of `block_size` tokens.

    next token (GPT)    row = tokens i … i+L-1, labels = tokens i+1 … i+L
    masked (BERT)       row = BOS and L-1 tokens; `mask_fraction` of the ordinary tokens are to be guessed, at least one
                        a row: 80% of them are replaced by MASK, 10% by a random token, 10% left (Devlin et al., 2019)
    respect_documents   each document in a block is a segment of its own, its positions begin at 0, and its last token
                        is not asked for the first of the next

    What separates documents (an EOS, say) must be in the file already."""

    def __init__(
        self,
        text: TokenFile,
        *,
        block_size: int,
        budget: int,
        task: Literal["next", "masked"],
        seed: int,
        fixed_shape: bool = False,
        respect_documents: bool = False,
        mask_fraction: float = 0.15,
        parts: int = 1,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
    ) -> None:
        super().__init__(seed=seed, rank=rank, world=world, workers=workers)
        self.text, self.block_size, self.budget, self.task = text, block_size, budget, task
        self.fixed_shape, self.respect_documents, self.mask_fraction = fixed_shape, respect_documents, mask_fraction
        self.parts = parts
        self.beyond = 1 if task == "next" else 0  # tokens needed after a block
        self.stride = block_size if task == "next" else block_size - 1
        self.size = len(text.tokens)
        if task == "masked" and (text.vocab_size is None or text.vocab_size <= CONTROL):
            raise ValueError("masking draws random tokens, so the token file must know its vocabulary")
        if self.stride < 1:
            raise ConfigError("model.block_size must be at least 2 to learn from masked text")

    def check_long_enough(self) -> None:
        if self.size < self.stride + self.beyond:
            raise UserError(
                f"the text has {self.size} tokens, which is less than one block of {self.block_size}; "
                "set a smaller model.block_size or give more text"
            )

    @cached_property
    def blocks(self) -> int:
        """As many as fit whatever the phase."""
        self.check_long_enough()
        return max(1, (self.size - self.beyond - self.stride + 1) // self.stride)

    @cached_property
    def phases(self) -> int:
        """How many first tokens an epoch may begin with: all that leave room for its blocks, so none is never read."""
        return self.size - self.beyond - self.blocks * self.stride + 1

    @cached_property
    def batches_in_epoch(self) -> int:
        most = max(1, self.budget // self.block_size)
        return even_batches(self.blocks, most, self.parts) if self.fixed_shape else -(-self.blocks // most)

    @cached_property
    def rows_in_batch(self) -> int:
        """At most; where the shape is fixed, in every batch."""
        return -(-self.blocks // self.batches_in_epoch)

    @property
    def shape(self) -> tuple[int, int, int] | None:
        return (self.rows_in_batch, 0, self.block_size) if self.fixed_shape else None

    def plan(self, epoch: int) -> BlockPlan:
        phase = int(words(1, self.seed, epoch, Stream.PHASE)[0] % np.uint64(self.phases))
        order = epoch_order(self.blocks, self.seed, epoch)
        starts = share_out(self.blocks, self.batches_in_epoch)
        return BlockPlan(
            self.lay, epoch, self.stride, self.rows_in_batch if self.fixed_shape else None, phase, order, starts
        )

    def lay(self, blocks: Int[np.ndarray, " n"], first: Int[np.ndarray, " n"], epoch: int, height: int) -> Batch:
        """Blocks by the place of their first token. A block may end with the text."""
        ends = np.minimum(first + self.stride, self.size - self.beyond)
        width = int((ends - first).max(initial=0)) + 1 - self.beyond if len(blocks) else self.block_size
        at = np.minimum(first[:, None] + np.arange(self.stride), self.size - 1)[:, : width - (1 - self.beyond)]
        real = at < ends[:, None]
        tokens = np.where(real, self.text.tokens[at].astype(np.int64), PAD)
        segments, positions = real.astype(np.int64), np.broadcast_to(np.arange(at.shape[1]), at.shape)
        following = np.minimum(at + 1, self.size - 1)
        document = following_document = None
        if self.respect_documents:
            document = np.searchsorted(self.text.offsets, at, side="right")
            following_document = np.searchsorted(self.text.offsets, following, side="right")
            begins = np.diff(document, axis=1, prepend=document[:, :1]) > 0
            segments = np.where(real, 1 + np.cumsum(begins, axis=1), 0)
            begun = np.maximum.accumulate(np.where(begins, positions, 0), axis=1)
            positions = positions - begun
        if self.task == "next":
            learned = real if document is None else real & (document == following_document)
            labels = np.where(learned, self.text.tokens[following].astype(np.int64), IGNORE)
        else:
            tokens, labels = self.masked(blocks, tokens, real, epoch)
            # The first place of a row is BOS; it belongs to the first document.
            positions = np.where(segments == 1, positions + 1, positions) if self.respect_documents else positions + 1
            tokens, labels, segments, positions = (
                np.pad(a, ((0, 0), (1, 0)), constant_values=v)
                for a, v in ((tokens, BOS), (labels, IGNORE), (segments, 1), (positions, 0))
            )
        rows = self.as_rows(tokens, segments, positions, height, width)
        out = np.full((height, width), IGNORE, np.int64)
        out[: len(blocks)] = labels
        return Batch(None, rows, torch.from_numpy(out), int((labels != IGNORE).sum()), tuple(blocks.tolist()))

    def as_rows(self, tokens: np.ndarray, segments: np.ndarray, positions: np.ndarray, height: int, width: int) -> Rows:
        full = bool(segments.all())
        empty = np.zeros((height - len(tokens), width), np.int64)
        laid = [torch.from_numpy(np.concatenate([a, empty])) for a in (tokens, segments, positions)]
        if self.respect_documents:
            return Rows(laid[0], laid[1], laid[2], "packed")
        return Rows(laid[0], laid[1], laid[2], "whole" if full else "padded")

    def masked(
        self, blocks: Int[np.ndarray, " n"], tokens: Int[np.ndarray, "n L"], real: Bool[np.ndarray, "n L"], epoch: int
    ) -> tuple[Int[np.ndarray, "n L"], Int[np.ndarray, "n L"]]:
        """The tokens with some hidden, and those some as labels. The choice follows from seed, epoch and block."""
        width = tokens.shape[1]
        drawn = [words(3 * width, self.seed, epoch, Stream.MASK, int(b)).reshape(3, width) for b in blocks]
        lot, fate, other = np.stack(drawn, axis=1) if drawn else np.empty((3, 0, width), np.uint64)
        ordinary = real & (tokens >= CONTROL)
        available = ordinary.sum(axis=1)
        wanted = np.where(available > 0, np.maximum(1, np.rint(self.mask_fraction * available)), 0)
        # Ordinary tokens first, in the order of their lots; the first so many of a row are chosen.
        ranks = np.lexsort((lot, ~ordinary), axis=1).argsort(axis=1)
        chosen = ranks < wanted[:, None]
        labels = np.where(chosen, tokens, IGNORE)
        share = unit(fate)
        vocab_size = self.text.vocab_size or 0
        random_tokens = (CONTROL + other % np.uint64(max(1, vocab_size - CONTROL))).astype(np.int64)
        hidden = np.where(share < 0.8, MASK, np.where(share < 0.9, random_tokens, tokens))
        return np.where(chosen, hidden, tokens), labels

    def in_order(self, budget: int | None = None, *, limit: int | None = None) -> Iterator[Batch]:
        """The whole text from its first token; the last block is as short as it happens to be."""
        rows = max(1, (budget or self.budget) // self.block_size)
        count = -(-max(0, self.size - self.beyond) // self.stride)
        blocks = np.arange(count if limit is None else min(count, limit), dtype=np.int64)
        for start in range(0, len(blocks), rows):
            part = blocks[start : start + rows]
            yield self.lay(part, part * self.stride, 0, len(part))


def make_batches(
    config: DataConfig,
    family: Literal["transformer", "gpt", "bert"],
    head: str,
    files: Mapping[str, TokenFile | np.ndarray],
    block_size: int,
    seed: int,
    *,
    layout: Literal["padded", "packed"],
    rank: int = 0,
    world: int = 1,
    accumulate: int = 1,
    training: bool = True,
) -> SentenceBatches | BlockBatches:
    """The batches a model of this family and head learns from.

    files: pairs {"source", "target"}; text {"text"}; classify {"text", "labels": one class each}; tag {"text",
    "labels": a TokenFile with a tag for each token}. With training=False (evaluation, `in_order`) a short text is no
    error, and only the block size limits lengths. `config.batch_tokens` is shared by the micro-batches of a step and
    by the devices."""
    parts = accumulate * world
    budget = max(1, config.batch_tokens // parts)
    if config.task == "text":
        if family == "transformer":
            raise ConfigError('an encoder-decoder learns from pairs; for a text set model.family to "gpt" or "bert"')
        if family == "bert" and head != "mlm":
            raise ConfigError(f'model.head="{head}" learns from labelled lines; for a text set model.head to "mlm"')
        blocks = BlockBatches(
            token_file(files, "text"),
            block_size=block_size,
            budget=budget,
            task="next" if family == "gpt" else "masked",
            seed=seed,
            fixed_shape=layout == "packed",
            respect_documents=config.respect_documents,
            mask_fraction=config.mask_fraction,
            parts=parts,
            rank=rank,
            world=world,
            workers=config.workers or 0,
        )
        if training:
            blocks.check_long_enough()
        return blocks
    asked = config.max_length if training and config.max_length is not None else block_size
    return SentenceBatches(
        examples_for(config, family, head, files),
        budget=budget,
        limit=min(asked, block_size),
        layout=layout,
        seed=seed,
        row_width=config.row_width,
        parts=parts,
        rank=rank,
        world=world,
        workers=config.workers or 0,
    )


def examples_for(config: DataConfig, family: str, head: str, files: Mapping[str, TokenFile | np.ndarray]) -> Examples:
    if config.task == "pairs":
        if family == "bert":
            raise ConfigError('model.family="bert" does not learn from pairs; use "transformer" or "gpt"')
        if family == "transformer":
            return Pairs(token_file(files, "source"), token_file(files, "target"))
        if not config.prompt_answer:
            raise ConfigError(
                "a GPT learns from pairs as prompt and answer; set data.prompt_answer=true or use the encoder-decoder"
            )
        return Prompts(token_file(files, "source"), token_file(files, "target"))
    if family != "bert" or head != config.task:
        raise ConfigError(
            f'data.task="{config.task}" needs model.family="bert" with model.head="{config.task}", '
            f'not "{family}" with "{head}"'
        )
    if config.task == "tag":
        return Tag(token_file(files, "text"), token_file(files, "labels"))
    classes = files["labels"]
    if isinstance(classes, TokenFile):
        classes = np.asarray(classes.tokens)
    return Classify(token_file(files, "text"), classes.astype(np.int64))


def token_file(files: Mapping[str, TokenFile | np.ndarray], name: str) -> TokenFile:
    file = files[name]
    if not isinstance(file, TokenFile):
        raise TypeError(f"{name} must be a token file")
    return file
