"""`copy`, `reverse`, `sort`: a short row of letters, repeated, turned round, put in order."""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random

from glassformer.data.builtin.dates import Split

HELD_OUT_SIZE = 1000  # examples in validation, and in test
SHORTEST_ROW, LONGEST_ROW = 2, 16


def letter_rows(split: Split, size: int) -> list[list[str]]:
    """Distinct rows of 2 to 16 letters, from one endless series: first the test, then validation, then training. (There are
    only 26 rows of one letter, and the first two would take them all: training would never see that length.)"""
    start = {"test": 0, "val": HELD_OUT_SIZE, "train": 2 * HELD_OUT_SIZE}[split]
    uniform = Random("rows of letters").random
    letters = string.ascii_lowercase
    rows: dict[str, list[str]] = {}
    while len(rows) < start + size:
        row = [
            letters[int(uniform() * len(letters))]
            for _ in range(SHORTEST_ROW + int(uniform() * (LONGEST_ROW - SHORTEST_ROW + 1)))
        ]
        rows[" ".join(row)] = row
    return list(rows.values())[start:]


def rows_and_answers(answer: Callable[[list[str]], list[str]], split: Split, size: int) -> list[tuple[str, str]]:
    return [(" ".join(row), " ".join(answer(row))) for row in letter_rows(split, size)]


def reverse(row: list[str]) -> list[str]:
    return row[::-1]
