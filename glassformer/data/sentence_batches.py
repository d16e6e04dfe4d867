"""Batches of sentences, pairs or labelled lines, by token budget. Two layouts, one rule for reading them (see nn/rows.py):

packed  several sentences a row, all batches of a run in one shape, so nothing ever recompiles on a GPU.
        The last row of a batch may be empty.
padded  shapes as they come. One sentence a row, sorted by length, where that wastes little. A small corpus cut
        into large batches cannot be sorted tightly by two lengths at once; then rows hold several sentences here
        too, only as narrow as can be, since attention on a CPU pays for width.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from glassformer.data.batch import Batch, Batches, EpochPlan
from glassformer.data.examples import IGNORE, Examples
from glassformer.data.packing import Packing, Shape, cut_by_budget, cut_waste, even_batches, pack, share_out
from glassformer.data.stream import Stream, epoch_order
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.nn.rows import Rows
from glassformer.text.flat import ranges
from glassformer.text.tokenizer import PAD


@dataclass(frozen=True)
class RowLayout:
    """Where each of some sentences goes: its row, its segment number in the row, and (for a side) its first column."""

    row: Int[np.ndarray, " n"]
    segment: Int[np.ndarray, " n"]

    @staticmethod
    def in_rows(row: Int[np.ndarray, " n"]) -> RowLayout:
        """`row` ascends; sentences of a row are numbered 1, 2, 3 …"""
        return RowLayout(row, np.arange(len(row)) - np.searchsorted(row, row) + 1)

    def columns(self, lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The column in which each sentence begins, given the sentences' lengths."""
        starts = np.cumsum(lengths) - lengths
        return starts - starts[np.searchsorted(self.row, self.row)] if len(starts) else starts

    def widest(self, lengths: Int[np.ndarray, " n"]) -> int:
        """The width that the longest row needs."""
        return int((self.columns(lengths) + lengths).max(initial=1))

    def place(self, flat: Int[np.ndarray, " m"], lengths: Int[np.ndarray, " n"], height: int, width: int) -> Rows:
        """Sentences given end to end, as rows."""
        inside = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = np.repeat(self.row * width + self.columns(lengths), lengths) + inside
        tokens = scatter(flat, at, height, width, PAD)
        segments = scatter(np.repeat(self.segment, lengths), at, height, width, 0)
        positions = scatter(inside, at, height, width, 0)
        return Rows(tokens, segments, positions, "packed")


def scatter(values: Int[np.ndarray, " m"], at: Int[np.ndarray, " m"], height: int, width: int, empty: int) -> Tensor:
    """A rectangle of `empty` with the values at their places."""
    out = np.full(height * width, empty, np.int64)
    out[at] = values
    return torch.from_numpy(out).view(height, width)


def one_a_row(rows: Rows, lengths: Int[np.ndarray, " n"]) -> Rows:
    """What the maker of such rows knows about their layout."""
    return Rows.padded(rows.tokens, lengths.tolist())


Redraw = Callable[[int, Shape, threading.Event], Examples]
"""Makes the examples of a later epoch (data/redraw.py), none longer than the shape, unless the event is set meanwhile."""

TIGHT = 0.045  # one sentence a row, as long as padding stays below this


class SentenceBatches(Batches):
    """Sentences, pairs or labelled lines, by token budget.

    budget   positions of the target side a batch may have, padding included (a longer sentence goes alone)
    limit    sentences longer than this on either side, control tokens included, are left out and counted in `dropped`
    redraw   the examples of a later epoch, where each is drawn anew; those that do not fit stay as in the first
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
        workers: int = 0,
        redraw: Redraw | None = None,
    ) -> None:
        super().__init__(seed=seed, workers=workers)
        self.redraw = redraw
        self.plans_take_long = redraw is not None
        if budget < 1 or limit < 1:
            raise ValueError("a batch needs a budget and a limit of at least 1")
        self.budget, self.limit, self.layout, self.row_width = budget, limit, layout, row_width
        self.take(examples)

    def take(self, examples: Examples) -> None:
        """Makes batches of these, as far as they fit."""
        self.examples = examples
        source, target = examples.source_lengths, examples.row_lengths
        self.kept = np.flatnonzero((source <= self.limit) & (target <= self.limit))
        self.dropped = len(target) - len(self.kept)
        self.source, self.target = source[self.kept], target[self.kept]

    @cached_property
    def numbers(self) -> Int[np.ndarray, " n"]:
        """The number of the example of each sentence."""
        return self.examples.numbers(self.kept)

    @cached_property
    def distinct(self) -> Int[np.ndarray, " k"]:
        """The numbers of the examples that are learned from, each once."""
        return np.unique(self.numbers)

    def check_some_fit(self) -> None:
        """That there is anything to learn from."""
        if not len(self.kept):
            total = len(self.examples.row_lengths)
            raise UserError(
                _(
                    "all {total} examples are longer than {limit} tokens; raise data.max_length and model.block_size",
                    total,
                    self.limit,
                )
                if total
                else _("there is not a single example to learn from; look at the data files")
            )

    @cached_property
    def length_bins(self) -> int | None:
        """Into how many bins of target length to sort for one sentence a row; None: rows hold several sentences."""
        if self.layout == "packed":
            return None
        most = max(1.0, float(self.target.sum()) / self.budget)
        candidates = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) if n <= 2 * most**0.5 + 1]
        bins: dict[int, float] = {}
        for length_bins in candidates if self.examples.has_source else [1]:
            cut = cut_by_budget(self.source, self.target, self.budget, length_bins, self.seed, 0)
            bins[length_bins] = cut_waste(self.source, self.target, *cut)
            if bins[length_bins] < TIGHT / 2:
                break
        best = min(bins, key=lambda n: bins[n])
        return best if bins[best] < TIGHT else None

    @cached_property
    def shapes(self) -> list[Shape]:
        """The row shapes in use, ascending: one for all where the shape is fixed."""
        longest_s, longest_t = int(self.source.max()), int(self.target.max())
        ratio = float(self.source.sum()) / float(self.target.sum())
        if self.layout == "packed":
            # Very long sources would make very wide rows: keep the wider side within twice the width asked for.
            asked = min(self.row_width, self.budget) if ratio <= 2 else min(self.row_width * 2 / ratio, self.budget)
            width = max(up_to_8(longest_t), int(asked) // 8 * 8)
            below = int(width * ratio) // 8 * 8 if self.examples.has_source else -8
            widths_s = (max(up_to_8(longest_s), below), max(up_to_8(longest_s), below + 8))
            return [min((Shape(width_s, width) for width_s in widths_s), key=self.least_waste)]
        widest = max(longest_t, self.budget)
        width = min(widest, max(16, round(4 * float(self.target.mean())), round(longest_t / 8)))
        shapes = [Shape(round(width * ratio), width)]
        while longest_t > width or (longest_s > shapes[-1].source and width < widest):
            width = min(2 * width, widest)
            shapes.append(Shape(round(width * ratio), width))
        shapes[-1] = Shape(max(longest_s, shapes[-1].source), width)
        return shapes

    def least_waste(self, shape: Shape) -> float:
        """Of rows of this shape, if the fuller side were packed without a gap."""
        real_s, real_t = float(self.source.sum()), float(self.target.sum())
        rows = max(real_s / max(shape.source, 1), real_t / shape.target)
        return 1 - (real_s + real_t) / (rows * (shape.source + shape.target))

    @cached_property
    def packing(self) -> Packing:
        """Which sentences share a row, found once for all epochs."""
        return pack(self.source, self.target, self.shapes)

    @cached_property
    def batches_in_epoch(self) -> int:
        """Packed: always the same number, of the same height."""
        rows = len(self.packing.shape_of)
        return even_batches(rows, max(1, self.budget // self.shapes[0].target))

    @cached_property
    def rows_in_batch(self) -> int:
        """Rows of every packed batch."""
        return -(-len(self.packing.shape_of) // self.batches_in_epoch)

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Rows, source width and target width of every batch, where rows are packed."""
        if self.layout == "padded":
            return None
        return self.rows_in_batch, self.shapes[0].source, self.shapes[0].target

    def redrawn(self, redraw: Redraw, epoch: int) -> SentenceBatches:
        """The batches of an epoch that is drawn anew: of the same sentences, sorted alike, in rows of the same shapes."""
        shapes = self.shapes if self.length_bins is None else [Shape(self.limit, self.limit)]
        most = Shape(min(shapes[-1].source, self.limit), min(shapes[-1].target, self.limit))
        other = copy.copy(self)
        for derived in ("numbers", "distinct", "packing"):
            vars(other).pop(derived, None)
        other.redraw = None
        other.take(redraw(epoch, most, self.cancelled))
        if self.layout == "packed":
            other.rows_in_batch = self.rows_in_batch
            other.batches_in_epoch = -(-len(other.packing.shape_of) // self.rows_in_batch)
        return other

    def plan(self, epoch: int) -> EpochPlan:
        """An epoch: sentences of like length together, or packed rows, in a random order."""
        if epoch and self.redraw is not None:
            return self.redrawn(self.redraw, epoch).plan(epoch)
        if self.length_bins is not None:
            order, starts = cut_by_budget(self.source, self.target, self.budget, self.length_bins, self.seed, epoch)
            turn = epoch_order(len(starts) - 1, self.seed, epoch, Stream.BATCHES)
            sizes = np.diff(starts)[turn]
            shuffled = order[ranges(starts[turn], sizes)]
            return self.plan_of(self.kept[shuffled], None, np.concatenate([[0], np.cumsum(sizes)]))
        sentences = self.packing.assign(self.seed, epoch)
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
        return self.plan_of(self.kept[sentences[places]], np.repeat(row_in_batch, sizes), starts)

    def plan_of(
        self, order: Int[np.ndarray, " n"], rows: Int[np.ndarray, " n"] | None, starts: Int[np.ndarray, " k"]
    ) -> EpochPlan:
        """Examples `order[starts[k]:starts[k+1]]` make batch k; `rows`: the row of each within its batch (None: one a row)."""

        def build(number: int) -> Batch:
            span = slice(*starts[number : number + 2])
            return self.batch_of(order[span], None if rows is None else rows[span])

        return EpochPlan(len(starts) - 1, build)

    def batch_of(self, ids: Int[np.ndarray, " n"], row: Int[np.ndarray, " n"] | None) -> Batch:
        """These examples as a batch, one a row or as `row` says."""
        layout = RowLayout.in_rows(np.arange(len(ids)) if row is None else row)
        lengths_s, lengths_t = self.examples.source_lengths[ids], self.examples.row_lengths[ids]
        if self.layout == "packed" and row is not None:
            height, width_s, width_t = self.rows_in_batch, self.shapes[0].source, self.shapes[0].target
        else:
            height = int(layout.row.max(initial=0)) + 1
            width_s, width_t = layout.widest(lengths_s), layout.widest(lengths_t)
        tokens, labels = self.examples.rows(ids)
        rows = layout.place(tokens, lengths_t, height, width_t)
        # Labels lie where the tokens of their example lie.
        placed = layout.place(labels - IGNORE, lengths_t, height, width_t).tokens + IGNORE
        source = None
        if self.examples.has_source:
            source = layout.place(self.examples.sources(ids), lengths_s, height, width_s)
        if row is None and len(ids):
            rows = one_a_row(rows, lengths_t)
            source = one_a_row(source, lengths_s) if source is not None else None
        return Batch(source, rows, placed, int((labels != IGNORE).sum()), tuple(self.examples.numbers(ids).tolist()))

    def in_order(self, budget: int | None = None, *, limit: int | None = None) -> Iterator[Batch]:
        """For evaluation: every example once, in the order of the file, one a row (a long tagged sentence: a row a window)."""
        budget = budget or self.budget
        ids = self.kept if limit is None else self.kept[np.isin(self.numbers, self.distinct[:limit])]
        lengths = self.examples.row_lengths[ids]
        start = 0
        while start < len(ids):
            widths = np.maximum.accumulate(lengths[start : start + budget])
            fits = int(np.searchsorted(widths * np.arange(1, len(widths) + 1), budget, side="right"))
            yield self.batch_of(ids[start : start + max(1, fits)], None)
            start += max(1, fits)


def up_to_8(n: int) -> int:
    """The next multiple of 8."""
    return -(-n // 8) * 8
