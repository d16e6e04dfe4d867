"""Whose row is next: everyone's share is the same, whether they asked for one row or for a thousand.

Start-time fair queueing (Goyal, Vin and Cheng 1996) over rows: each asker has a clock of its own that a row moves on by its
cost, and the row whose asker's clock is earliest is next. Who comes new begins at the present, so nobody saves up turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Row = TypeVar("Row")


class FairQueue(Generic[Row]):
    """Rows waiting, by asker; each has a kind, and only rows of some kinds may fit.

    >>> queue = FairQueue[str]()
    >>> for row in ("a1", "a2", "a3"): queue.add("a", row, 1)
    >>> queue.add("b", "b1", 1)
    >>> [queue.take() for _ in range(4)]
    ['a1', 'b1', 'a2', 'a3']
    """

    def __init__(self) -> None:
        self.rows: dict[Hashable, deque[tuple[Row, int, Hashable]]] = {}
        self.clocks: dict[Hashable, float] = {}
        # By the kind of their first row, the askers by their clocks. One who has left, or whose clock has moved on since, is
        # passed over.
        self.heaps: dict[Hashable, list[tuple[float, int, Hashable]]] = {}
        self.numbers = count()
        self.now = 0.0

    def __bool__(self) -> bool:
        return bool(self.rows)

    def add(self, asker: Hashable, row: Row, cost: int, kind: Hashable = None) -> None:
        """One row more for this asker."""
        if asker not in self.rows:
            self.rows[asker] = deque()
            self.clocks[asker] = self.now
        self.rows[asker].append((row, cost, kind))
        if len(self.rows[asker]) == 1:
            self.line_up(asker)

    def line_up(self, asker: Hashable) -> None:
        """The asker's first row waits among those of its kind."""
        kind = self.rows[asker][0][2]
        heappush(self.heaps.setdefault(kind, []), (self.clocks[asker], next(self.numbers), asker))

    def first(self, kind: Hashable) -> tuple[float, int, Hashable] | None:
        """Whose row of this kind is next, with the clock and the order of coming."""
        heap = self.heaps[kind]
        while heap:
            clock, _, asker = heap[0]
            if asker in self.rows and self.clocks[asker] == clock and self.rows[asker][0][2] == kind:
                return heap[0]
            heappop(heap)
        del self.heaps[kind]
        return None

    def take(self, fits: Callable[[Hashable], bool] = lambda _: True) -> Row | None:
        """The next row among the askers' first ones whose kind fits; None where there is none."""
        firsts = [first for kind in list(self.heaps) if fits(kind) and (first := self.first(kind)) is not None]
        if not firsts:
            return None
        clock, _, asker = min(firsts)
        row, cost, kind = self.rows[asker].popleft()
        heappop(self.heaps[kind])
        self.now = max(self.now, clock)
        self.clocks[asker] += cost
        if self.rows[asker]:
            self.line_up(asker)
        else:
            self.drop(asker)
        return row

    def drop(self, asker: Hashable) -> None:
        """Nothing of this asker waits any more."""
        self.rows.pop(asker, None)
        self.clocks.pop(asker, None)
