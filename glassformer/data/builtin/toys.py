"""`copy`, `reverse`, `sort`: a short row of letters, repeated, turned round, put in order.

`in-context`: a rule that stands in the prompt alone. Each example makes up a new table of keys and values, shows it in shots,
and asks for some of it; the answer gives the entries in the order they are asked for, as the table writes them:

    b C , f A , h D , a G ? h b h a f b        h D b C h D a G f A b C

No weight can know a value: what is learned is to look it up (Olsson et al. 2022 call the heads that do it induction heads). Six
questions a table, each repeated before it is answered, are six chances a row to learn that; with one question and a bare
answer the same model was still guessing after a thousand steps (docs/log.md)."""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random

from glassformer.data.builtin.dates import Split

HELD_OUT_SIZE = 1000  # examples in validation, and in test
SHORTEST_ROW, LONGEST_ROW = 2, 16


def letter_rows(split: Split, size: int, lengths: tuple[int, int] | None = None) -> list[list[str]]:
    """Distinct rows of 2 to 16 letters, from one endless series: first the test, then validation, then training. (There are
    only 26 rows of one letter, and the first two would take them all: training would never see that length.) With `lengths`
    a test of other lengths, from a series of its own."""
    if lengths is not None and split == "test":
        return drawn_rows(Random(f"rows of {lengths[0]} to {lengths[1]} letters"), size, *lengths)
    start = {"test": 0, "val": HELD_OUT_SIZE, "train": 2 * HELD_OUT_SIZE}[split]
    return drawn_rows(Random("rows of letters"), start + size, SHORTEST_ROW, LONGEST_ROW)[start:]


def drawn_rows(draw: Random, count: int, shortest: int, longest: int) -> list[list[str]]:
    """So many distinct rows, each of some length between the two."""
    uniform = draw.random
    letters = string.ascii_lowercase
    rows: dict[str, list[str]] = {}
    while len(rows) < count:
        row = [
            letters[int(uniform() * len(letters))] for _ in range(shortest + int(uniform() * (longest - shortest + 1)))
        ]
        rows[" ".join(row)] = row
    return list(rows.values())


def rows_and_answers(
    answer: Callable[[list[str]], list[str]], split: Split, size: int, lengths: tuple[int, int] | None = None
) -> list[tuple[str, str]]:
    """Rows of letters and what the task makes of them."""
    return [(" ".join(row), " ".join(answer(row))) for row in letter_rows(split, size, lengths)]


SHOTS = (2, 6)
KEYS, VALUES = string.ascii_lowercase[:8], string.ascii_uppercase[:8]
QUESTIONS = 6


def in_context(split: Split, size: int) -> list[tuple[str, str]]:
    """Prompts that show a made-up table and ask for six of its entries, with the answers; no prompt twice."""
    start = {"test": 0, "val": HELD_OUT_SIZE, "train": 2 * HELD_OUT_SIZE}[split]
    draw = Random("rules in prompts")
    prompts: dict[str, str] = {}
    while len(prompts) < start + size:
        count = draw.randint(*SHOTS)
        keys = draw.sample(KEYS, count)
        values = draw.sample(VALUES, count)
        table = dict(zip(keys, values, strict=True))
        asked = draw.choices(keys, k=QUESTIONS)
        shots = " , ".join(f"{key} {value}" for key, value in table.items())
        prompts[f"{shots} ? {' '.join(asked)}"] = " ".join(f"{key} {table[key]}" for key in asked)
    return list(prompts.items())[start:]


def reverse(row: list[str]) -> list[str]:
    return row[::-1]
