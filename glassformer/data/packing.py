"""Which sentences share a row: a question about lengths alone.

A pair has two lengths, and both its sides must lie in the same row of two rectangles, so filling rows is packing into
boxes with two measures at once. `pack` is greedy: a row opens with the largest sentence left, takes the largest that
leave both sides equally full, and is closed by the two sentences that fill it best. Sentences of equal lengths are
interchangeable, so the work is done on kinds of sentences with counts: a few thousand decisions for a corpus of any
size. (Taking the largest without regard to balance wastes 12% where all targets are equally long, as dates are.)

The result is a plan without names: row by row, the kinds of sentences in it. It is made once for a run. Each epoch
assigns the sentences of each kind anew to the places of that kind and shuffles the rows, which costs two sorts.

`cut_by_budget` is the other way to keep padding low, one sentence a row: sort by length, cut where a batch is full. It
is cheaper to attend over, but with two lengths it needs many batches an epoch to be tight.

Nothing here knows of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from glassformer.data.stream import Stream, random_bits, uniform
from glassformer.text.pre_tokenizer import ranges

CLOSE_ENOUGH = 0.004  # a row may be closed when no more than this part of it stays empty
BALANCE = 8.0  # how much an unequal filling of the two sides counts against a sentence, beside its size
FEW_LEFT = 2.2  # room for so many average sentences: time to look for the two that fit best


@dataclass(frozen=True)
class Shape:
    """What a row holds: so many source and so many target positions (source 0: there is only one side)."""

    source: int
    target: int


@dataclass(frozen=True)
class Packing:
    """`kinds[i]` is the kind of sentence in place i; places of row r are `row_starts[r]` … `row_starts[r + 1]`."""

    kind_of: Int[np.ndarray, " n"]  # of each sentence
    kinds: Int[np.ndarray, " n"]  # of each place
    row_starts: Int[np.ndarray, " r"]  # one more than there are rows
    shape_of: Int[np.ndarray, " q"]  # which of the shapes each row has

    def assign(self, seed: int, epoch: int) -> Int[np.ndarray, " n"]:
        """This epoch's sentence for each place."""
        noise = random_bits(len(self.kind_of), seed, epoch, Stream.ORDER)
        sentences = np.lexsort((noise, self.kind_of))
        assigned = np.empty_like(sentences)
        assigned[np.argsort(self.kinds, kind="stable")] = sentences
        return assigned

    def places(self, rows: Int[np.ndarray, " k"]) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " k"]]:
        """The places of these rows, row after row, and how many each row has."""
        starts = self.row_starts[rows]
        sizes = self.row_starts[rows + 1] - starts
        return ranges(starts, sizes), sizes


def pack(source: Int[np.ndarray, " n"], target: Int[np.ndarray, " n"], shapes: Sequence[Shape]) -> Packing:
    """Every sentence once, in rows of the given shapes (ascending; a row has the smallest that holds its largest)."""
    largest = shapes[-1]
    if source.max(initial=0) > largest.source or target.max(initial=0) > largest.target:
        raise ValueError("a sentence is longer than the widest row")
    # Long sentences are told apart coarsely, or each would be a kind of its own. Costs about 1% of the room at most.
    grain = max(1, int((source.mean() + target.mean()) / 100)) if len(target) else 1
    tall_s = np.minimum(-(-source // grain) * grain, largest.source)
    tall_t = np.minimum(-(-target // grain) * grain, largest.target)
    keys, kind_of, counts = np.unique(tall_s * (largest.target + 1) + tall_t, return_inverse=True, return_counts=True)
    kind_s, kind_t = keys // (largest.target + 1), keys % (largest.target + 1)
    packer = RowPacker(kind_s, kind_t, counts)
    by_size = np.argsort(-np.maximum(kind_s / max(largest.source, 1), kind_t / largest.target), kind="stable")

    kinds: list[int] = []
    row_sizes: list[int] = []
    shape_of: list[int] = []
    for first in by_size:
        while counts[first]:
            number = next(i for i, s in enumerate(shapes) if kind_s[first] <= s.source and kind_t[first] <= s.target)
            row = packer.fill(int(first), shapes[number])
            # Where there are plenty of all its kinds, the same row is made several times.
            used, times = np.unique(row, return_counts=True)
            copies = max(1, int((counts[used] // times).min()) // 4)
            packer.remove(used, times * copies)
            kinds += row * copies
            row_sizes += [len(row)] * copies
            shape_of += [number] * copies
    row_starts = np.cumsum([0, *row_sizes], dtype=np.int64)
    return Packing(kind_of.astype(np.int64), np.array(kinds, np.int64), row_starts, np.array(shape_of, np.int64))


@lru_cache(maxsize=8)
def merits_of(shape: Shape) -> Float[np.ndarray, " m"]:
    """How good it is to leave a room (s, t) in a row of this shape, for all of them end to end: little, and as much of both."""
    after_s = np.arange(shape.source + 1)[:, None] / max(shape.source, 1)
    after_t = np.arange(shape.target + 1) / shape.target
    return (-(after_s + after_t) - BALANCE * np.abs(after_s - after_t)).reshape(-1)


class RowPacker:
    """What is left to pack, the row that is being filled, and the search for what fits best."""

    def __init__(self, kind_s: np.ndarray, kind_t: np.ndarray, counts: np.ndarray) -> None:
        self.kind_s, self.kind_t, self.counts = kind_s, kind_t, counts
        self.size, self.bits = kind_s + kind_t, len(kind_s).bit_length()
        self.tables: dict[Shape, np.ndarray] = {}
        self.row: list[int] = []
        self.room_s = self.room_t = 0
        self.refresh()

    def refresh(self) -> None:
        """Recomputes what is left to choose from after the sentences of a kind of lengths have run out."""
        self.left = np.flatnonzero(self.counts)
        self.left_s, self.left_t, self.left_size = self.kind_s[self.left], self.kind_t[self.left], self.size[self.left]
        self.mean = (self.left_size * self.counts[self.left]).sum() / max(1, self.counts.sum())
        self.tables.clear()

    def remove(self, kinds: np.ndarray, times: np.ndarray) -> None:
        """Takes sentences of these kinds out of what is left to be placed."""
        self.counts[kinds] -= times
        if not self.counts[kinds].all():
            self.refresh()

    def best_within(self, shape: Shape) -> np.ndarray:
        """For every room (s, t), end to end: the largest kind that fits, its size before its number; -1 where none does."""
        if shape not in self.tables:
            table = np.full((shape.source + 1, shape.target + 1), -1, dtype=np.int64)
            fits = (self.left_s <= shape.source) & (self.left_t <= shape.target)
            kinds = self.left[fits]
            table[self.kind_s[kinds], self.kind_t[kinds]] = (self.size[kinds] << self.bits) + kinds
            np.maximum.accumulate(table, axis=0, out=table)
            np.maximum.accumulate(table, axis=1, out=table)
            self.tables[shape] = table.reshape(-1)
        return self.tables[shape]

    def add(self, kind: int) -> bool:
        """Puts a sentence of this kind into the row, if there is one left and room for it."""
        s, t = int(self.kind_s[kind]), int(self.kind_t[kind])
        if s > self.room_s or t > self.room_t or self.row.count(kind) >= self.counts[kind]:
            return False
        self.row.append(kind)
        self.room_s, self.room_t = self.room_s - s, self.room_t - t
        return True

    def fill(self, first: int, shape: Shape) -> list[int]:
        """The kinds of sentences of a new row that opens with `first`. Nothing is removed yet."""
        self.row, self.room_s, self.room_t = [], shape.source, shape.target
        self.add(first)
        best, merits, width = self.best_within(shape), merits_of(shape), shape.target + 1
        left, left_s, left_t, size = self.left, self.left_s, self.left_t, self.left_size
        place = left_s * width + left_t
        while best[self.room_s * width + self.room_t] >= 0:
            fits = ((left_s <= self.room_s) & (left_t <= self.room_t)).nonzero()[0]
            if len(fits) < len(left):
                left, left_s, left_t, size, place = left[fits], left_s[fits], left_t[fits], size[fits], place[fits]
            room, slack = self.room_s + self.room_t, CLOSE_ENOUGH * (shape.source + shape.target)
            after = self.room_s * width + self.room_t - place  # the room that each of them would leave
            few = room < FEW_LEFT * self.mean
            if few or room - 2 * int(size.max()) <= slack:  # else no two can close the row
                partner = best[after]
                together = size + np.maximum(partner >> self.bits, 0)
                k = int(together.argmax())
                if (few or room - int(together[k]) <= slack) and self.add(int(left[k])):
                    if partner[k] >= 0:
                        self.add(int(partner[k]) & ((1 << self.bits) - 1))
                    continue
            merit = merits[after]
            if self.add(int(left[merit.argmax()])):
                continue
            if not any(self.add(int(left[k])) for k in np.argsort(-merit, kind="stable")[1:8]):
                break
        return self.row


def sorted_by(order: Int[np.ndarray, " n"], *keys: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """This order, sorted by the last of the keys; what is equal there by the one before it, and so on."""
    for key in keys:
        small = key.min(initial=0) >= -(1 << 15) and key.max(initial=0) < 1 << 15  # these NumPy sorts in one pass
        order = order[np.argsort(key[order].astype(np.int16 if small else np.int64), kind="stable")]
    return order


def cut_by_budget(
    source: Int[np.ndarray, " n"], target: Int[np.ndarray, " n"], budget: int, length_bins: int, seed: int, epoch: int
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " k"]]:
    """One sentence a row: the sentences in batch order, and where each batch starts (with the end as the last start).

    Sentences are sorted by target length into `length_bins` bins of equal weight, within a bin by source length (there and
    back, so neighbours stay alike), then cut wherever rows times width would pass the budget. Equal lengths lie in
    random order, and bins and cuts begin at another place each epoch, so batches differ from epoch to epoch."""
    by_noise = np.argsort(random_bits(len(target), seed, epoch, Stream.ORDER), kind="stable")
    shift, first_part = uniform(random_bits(2, seed, epoch, Stream.PHASE))
    by_target = sorted_by(by_noise, target)
    weight = (np.cumsum(target[by_target]) - target[by_target] / 2) / max(1, target.sum())
    length_bin = np.empty(len(target), np.int64)
    length_bin[by_target] = np.floor(weight * length_bins + (shift if length_bins > 1 else 0)).astype(np.int64)
    if not source.any():
        order = by_target
    else:
        order = sorted_by(by_noise, np.where(length_bin % 2 == 0, source, -source), length_bin)
    starts = [0]
    allowed = max(1, int(budget * max(first_part, 1 / 8)))
    lengths = target[order]
    while starts[-1] < len(order):
        most = max(1, allowed // max(1, int(lengths[starts[-1]])))  # a batch is as wide as its first row, or wider
        widths = np.maximum.accumulate(lengths[starts[-1] : starts[-1] + most])
        fits = int(np.searchsorted(widths * np.arange(1, len(widths) + 1), allowed, side="right"))
        starts.append(starts[-1] + max(1, fits))
        allowed = budget
    return order, np.array(starts, np.int64)


def cut_waste(source: np.ndarray, target: np.ndarray, order: np.ndarray, starts: np.ndarray) -> float:
    """The part of all positions that is padding, one sentence a row."""
    rows = np.diff(starts)
    widths = np.maximum.reduceat(target[order], starts[:-1]) + np.maximum.reduceat(source[order], starts[:-1])
    return 1 - float(source.sum() + target.sum()) / float((rows * widths).sum())


def share_out(rows: int, batches: int) -> Int[np.ndarray, " k"]:
    """Where each batch starts when rows go to batches as evenly as can be (with the end as the last start)."""
    return np.arange(batches + 1, dtype=np.int64) * rows // batches


def even_batches(rows: int, most: int) -> int:
    """How many batches of one height, at most `most` rows each, for `rows` rows.

    The number wanted is the smallest, and one that leaves few rows empty. A tenth of a batch's height is given up for one
    percent less of empty rows."""
    least = -(-rows // most)
    candidates = [n for n in range(least, least + max(least // 3, 2) + 1) if n <= rows]

    def cost(batches: int) -> float:
        height = -(-rows // batches)
        return (height * batches - rows) / (height * batches) + 0.1 * (1 - height / most)

    return min(candidates, key=cost)
