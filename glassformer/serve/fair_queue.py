"""Whose row is next: everyone's share is the same, whether they asked for one row or for a thousand.

Start-time fair queueing (Goyal, Vin and Cheng 1996) over rows: each asker has a clock of its own that a row moves on by its
cost, and the row whose asker's clock is earliest is next. Who comes new begins at the present, so nobody saves up turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Row = TypeVar("Row")


class FairQueue(Generic[Row]):
    """Rows waiting, by asker.

    >>> queue = FairQueue[str]()
    >>> for row in ("a1", "a2", "a3"): queue.add("a", row, 1)
    >>> queue.add("b", "b1", 1)
    >>> [queue.take() for _ in range(4)]
    ['a1', 'b1', 'a2', 'a3']
    """

    def __init__(self) -> None:
        self.rows: dict[Hashable, deque[tuple[Row, int]]] = {}
        self.clocks: dict[Hashable, float] = {}
        self.now = 0.0

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def add(self, asker: Hashable, row: Row, cost: int) -> None:
        """One row more for this asker."""
        if asker not in self.rows:
            self.rows[asker] = deque()
            self.clocks[asker] = self.now
        self.rows[asker].append((row, cost))

    def take(self, fits: Callable[[Row], bool] = lambda _: True) -> Row | None:
        """The next row among the askers' first ones that fit; None where there is none."""
        open_to = [asker for asker, rows in self.rows.items() if fits(rows[0][0])]
        if not open_to:
            return None
        asker = min(open_to, key=lambda candidate: self.clocks[candidate])
        row, cost = self.rows[asker].popleft()
        self.now = max(self.now, self.clocks[asker])
        self.clocks[asker] += cost
        if not self.rows[asker]:
            self.drop(asker)
        return row

    def drop(self, asker: Hashable) -> None:
        """Nothing of this asker waits any more."""
        self.rows.pop(asker, None)
        self.clocks.pop(asker, None)
