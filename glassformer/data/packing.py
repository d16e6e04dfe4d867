"""Which sentences share a row: a question about lengths alone.

A pair has two lengths, and both its sides must lie in the same row of two rectangles, so filling rows is packing into
boxes with two measures at once. `pack` is greedy: a row opens with the largest sentence left and takes the largest that
leave both sides equally full. Sentences of equal lengths are interchangeable, so the work is done on kinds of sentences
with counts: a few thousand decisions for a corpus of any size. (Taking the largest without regard to balance wastes 12%
where all targets are equally long, as dates are.)

The result is a plan without names: row by row, the kinds of sentences in it. It is made once for a run. Each epoch
assigns the sentences of each kind anew to the places of that kind and shuffles the rows, which costs two sorts.

`cut_by_budget` is the other way to keep padding low, one sentence a row: sort by length, cut where a batch is full. It
is cheaper to attend over, but with two lengths it needs many batches an epoch to be tight.

Nothing here knows of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from glassformer.data.stream import Stream, random_bits, uniform
from glassformer.text.flat import ranges

BALANCE = 8.0  # how much an unequal filling of the two sides counts against a sentence, beside its size


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
    by_size = np.argsort(-np.maximum(kind_s / max(largest.source, 1), kind_t / largest.target), kind="stable")

    kinds: list[int] = []
    row_sizes: list[int] = []
    shape_of: list[int] = []
    for first in by_size:
        while counts[first]:
            number = next(i for i, s in enumerate(shapes) if kind_s[first] <= s.source and kind_t[first] <= s.target)
            row = fill_row(int(first), shapes[number], kind_s, kind_t, counts)
            # Where there are plenty of all its kinds, the same row is made several times.
            used, times = np.unique(row, return_counts=True)
            copies = max(1, int((counts[used] // times).min()) // 4)
            counts[used] -= times * copies
            kinds += row * copies
            row_sizes += [len(row)] * copies
            shape_of += [number] * copies
    row_starts = np.cumsum([0, *row_sizes], dtype=np.int64)
    return Packing(kind_of.astype(np.int64), np.array(kinds, np.int64), row_starts, np.array(shape_of, np.int64))


def fill_row(first: int, shape: Shape, kind_s: np.ndarray, kind_t: np.ndarray, counts: np.ndarray) -> list[int]:
    """The kinds of sentences of a new row that opens with `first`: each time what leaves least room, and as much of both."""
    row, left = [first], counts.copy()
    left[first] -= 1
    room_s, room_t = shape.source - kind_s[first], shape.target - kind_t[first]
    kinds = np.flatnonzero(left)
    while len(kinds := kinds[(left[kinds] > 0) & (kind_s[kinds] <= room_s) & (kind_t[kinds] <= room_t)]):
        after_s, after_t = (room_s - kind_s[kinds]) / max(shape.source, 1), (room_t - kind_t[kinds]) / shape.target
        best = int(kinds[np.argmin(after_s + after_t + BALANCE * np.abs(after_s - after_t))])
        row.append(best)
        left[best] -= 1
        room_s, room_t = room_s - kind_s[best], room_t - kind_t[best]
    return row


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
