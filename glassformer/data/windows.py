"""A text longer than a model reads at once, as overlapping windows.

Each token is learned, measured and answered in exactly one of them: the one in which it stands farthest from an edge. It
sees at least a quarter of a window on either side there, unless the text begins or ends nearer. A text that is not longer is
one window.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple


class Window(NamedTuple):
    """Tokens `start` to `end` are read; of them `first` to `last` are answered."""

    start: int
    end: int
    first: int
    last: int


def windows(length: int, most: int) -> list[Window]:
    """A text of `length` tokens in windows of at most `most`, of which neighbours share about half, or more.

    >>> windows(5, 8)
    [Window(start=0, end=5, first=0, last=5)]
    >>> windows(12, 8)
    [Window(start=0, end=8, first=0, last=6), Window(start=4, end=12, first=6, last=12)]
    """
    if length <= most:
        return [Window(0, length, 0, length)]
    count = -(-(length - most) // max(1, most - most // 2)) + 1
    starts = [number * (length - most) // (count - 1) for number in range(count)]
    borders = [0, *((begin + end + most) // 2 for end, begin in itertools.pairwise(starts)), length]
    return [
        Window(start, start + most, first, last)
        for start, first, last in zip(starts, borders, borders[1:], strict=False)
    ]


def causal_windows(length: int, most: int) -> list[Window]:
    """The same for a model that reads from left to right: a token is answered in the first window that holds it, so that it
    sees at least half a window before it.

    >>> causal_windows(12, 8)
    [Window(start=0, end=8, first=0, last=8), Window(start=4, end=12, first=8, last=12)]
    """
    starts = range(0, max(1, length - most + max(1, most // 2)), max(1, most // 2))
    ends = [0, *(min(start + most, length) for start in starts)]
    return [Window(start, end, first, end) for start, first, end in zip(starts, ends, ends[1:], strict=False)]
