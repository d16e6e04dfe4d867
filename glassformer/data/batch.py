"""A batch, and the endless stream of batches that training reads.

An epoch is a list of batches; the training stream is the list of epoch 0, then that of epoch 1, and so on for
ever. Each list holds every example exactly once. Which examples a
batch holds, and in what shape, follows from (seed, epoch, k): nothing is remembered, so a stream starts anywhere.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from glassformer.data.examples import IGNORE
from glassformer.data.stream import Position
from glassformer.nn.rows import Rows

START = Position(0, 0)

BatchStream = Generator[tuple["Batch", Position], None, None]
"""Batches without end, each with the position after it."""


@dataclass(frozen=True)
class Batch:
    """`labels` say what is to be found at each place of `rows`, IGNORE where nothing is; `target_tokens` counts them.

    `examples` are numbers in the file (of blocks in the epoch, for a text), in the order of rows and segments.
    Among whole rows there may be some that are all padding, at the end: they
    need no mask, since nobody looks at them."""

    source: Rows | None
    rows: Rows
    labels: Int[Tensor, "B T"]
    target_tokens: int
    examples: tuple[int, ...]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The same batch on another device."""
        source = self.source.to(device, non_blocking) if self.source is not None else None
        labels = self.labels.to(device, non_blocking=non_blocking)
        return replace(self, source=source, rows=self.rows.to(device, non_blocking), labels=labels)

    def blank(self) -> Batch:
        """A batch of this shape that is all padding: its loss, and the gradient of it, are zero."""

        def emptied(rows: Rows) -> Rows:
            return replace(rows, segments=torch.zeros_like(rows.segments))

        source = emptied(self.source) if self.source is not None else None
        labels = torch.full_like(self.labels, IGNORE)
        return Batch(source, emptied(self.rows), labels, 0, ())

    def pieces(self, count: int, *, one_shape: bool = False) -> list[Batch]:
        """At most `count` micro-batches with equally many of the rows, whose summed losses are this batch's. `one_shape`: the
        last is filled up with empty rows; else each is as narrow as its rows."""
        if count == 1:
            return [self]
        height = -(-len(self.labels) // count)
        # Of a text each row is one example, whatever segments (documents) it has; else each segment is one.
        used = self.rows.real.any(dim=1).long()
        held = used if int(used.sum()) == len(self.examples) else self.rows.segments.amax(dim=1)
        ends = [0, *held.cumsum(0).tolist()]
        made = []
        for start in range(0, len(self.labels), height):
            end = min(start + height, len(self.labels))
            source = cut_rows(self.source, start, height, one_shape) if self.source is not None else None
            rows = cut_rows(self.rows, start, height, one_shape)
            labels = self.labels[start:end, : rows.shape[1]]
            target_tokens = int((labels != IGNORE).sum())
            labels = F.pad(labels, (0, 0, 0, rows.shape[0] - len(labels)), value=IGNORE)
            made.append(Batch(source, rows, labels, target_tokens, self.examples[ends[start] : ends[end]]))
        return made


def cut_rows(rows: Rows, start: int, height: int, one_shape: bool) -> Rows:
    """So many rows, from `start` on: filled up with empty ones where there are fewer, or as narrow as they can be."""
    parts = [t[start : start + height] for t in (rows.tokens, rows.segments, rows.positions)]
    if one_shape:
        parts = [F.pad(t, (0, 0, 0, height - len(t))) for t in parts]
        return Rows(parts[0], parts[1], parts[2], rows.layout)
    columns = parts[1].any(dim=0).nonzero()
    width = int(columns[-1]) + 1 if len(columns) else 1
    return Rows(parts[0][:, :width], parts[1][:, :width], parts[2][:, :width], rows.layout)


@dataclass(frozen=True)
class EpochPlan:
    """An epoch's list of batches, each made by its number, whoever asks. A number past the end gives an empty one."""

    count: int
    build: Callable[[int], Batch]

    def __len__(self) -> int:
        return self.count


class Batches(ABC):
    """An endless stream of batches, and the same examples once in order for evaluation."""

    dropped: int = 0  # examples left out because they are too long
    plans_take_long: bool = False  # so that an epoch is planned in the background also where no batch is made there

    def __init__(self, *, seed: int, workers: int = 0) -> None:
        self.seed, self.workers = seed, workers
        self.plans: dict[int, EpochPlan] = {}
        self.lengths: dict[int, int] = {}  # of every epoch that has been planned
        self.planning = threading.Lock()
        self.cancelled = threading.Event()  # set: what is planned in the background is wanted no more

    @abstractmethod
    def plan(self, epoch: int) -> EpochPlan:
        """How an epoch is cut into batches."""

    @abstractmethod
    def in_order(self, budget: int | None = None, *, limit: int | None = None) -> Iterator[Batch]:
        """For evaluation: every example once (the first `limit`), in the order of the file, one a row, padded."""

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Rows, source width and target width of every training batch; None where shapes come as they may."""
        return None

    def planned(self, epoch: int) -> EpochPlan:
        """The plan of an epoch, remembered together with those of its neighbours."""
        with self.planning:
            if epoch not in self.plans:
                near = {other: plan for other, plan in self.plans.items() if abs(other - epoch) == 1}
                self.plans = near | {epoch: self.plan(epoch)}
                self.lengths[epoch] = len(self.plans[epoch])
            return self.plans[epoch]

    def epoch_length(self, epoch: int = 0) -> int:
        """Batches in this epoch."""
        return self.lengths[epoch] if epoch in self.lengths else len(self.planned(epoch))

    def starting_at(self, position: Position = START) -> BatchStream:
        """The batches from `position` on, each with the position after it. With `workers` batches are made in the background, and
        an epoch is planned there while the one before it is learned from; without, only what takes long."""
        pool = ThreadPoolExecutor(self.workers + 1, thread_name_prefix="batches")
        pending: deque[tuple[Callable[[], Batch], Position]] = deque()
        index = position.index
        try:
            for epoch in itertools.count(position.epoch):
                plan = self.planned(epoch)
                if self.workers or self.plans_take_long:
                    pool.submit(self.planned, epoch + 1)
                for number in range(index, len(plan)):
                    ends = number + 1 == len(plan)
                    following = Position(epoch + 1, 0) if ends else Position(epoch, number + 1)
                    make = pool.submit(plan.build, number).result if self.workers else partial(plan.build, number)
                    pending.append((make, following))
                    if len(pending) > 2 * self.workers:
                        made, after = pending.popleft()
                        yield made(), after
                index = 0
        finally:
            self.cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
            self.cancelled.clear()
