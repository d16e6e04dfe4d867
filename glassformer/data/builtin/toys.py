"""`copy`, `reverse`, `sort`: a short row of letters, repeated, turned round, put in order.

`in-context`: a rule that stands in the prompt alone. Each example makes up a new table of keys and values, shows it in shots,
and asks for some of it; the answer gives the entries in the order they are asked for, as the table writes them:

    b C , f A , h D , a G ? h b h a f b        h D b C h D a G f A b C

No weight can know a value: what is learned is to look it up (Olsson et al. 2022 call the heads that do it induction heads). Six
questions a table, each repeated before it is answered, are six chances a row to learn that; with one question and a bare
answer the same model was still guessing after a thousand steps (docs/log.md)."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator
from random import Random

from glassformer.data.splits import Split

HELD_OUT_SIZE = 1000  # examples in validation, and in test
SHORTEST_ROW, LONGEST_ROW = 2, 16
SHOTS = (2, 6)
KEYS, VALUES = string.ascii_lowercase[:8], string.ascii_uppercase[:8]
QUESTIONS = 6


def stretch_of(series: Iterable[tuple[str, str]], split: Split, size: int) -> list[tuple[str, str]]:
    """The distinct examples of a split from one endless series: first come those of the test, then validation, then training."""
    start = {"test": 0, "val": HELD_OUT_SIZE, "train": 2 * HELD_OUT_SIZE}[split]
    examples: dict[str, str] = {}
    for source, target in series:
        examples[source] = target
        if len(examples) == start + size:
            break
    return list(examples.items())[start:]


def letter_rows(draw: Random, shortest: int, longest: int) -> Iterator[list[str]]:
    """Rows of letters without end, each of some length between the two."""
    uniform = draw.random
    letters = string.ascii_lowercase
    while True:
        length = shortest + int(uniform() * (longest - shortest + 1))
        yield [letters[int(uniform() * len(letters))] for _ in range(length)]


def rows_and_answers(
    answer: Callable[[list[str]], list[str]], split: Split, size: int, lengths: tuple[int, int] | None = None
) -> list[tuple[str, str]]:
    """Rows of 2 to 16 letters and what the task makes of them. (There are only 26 rows of one letter, and the first two splits
    would take them all: training would never see that length.) With `lengths` the test has rows of other lengths, from a series
    of its own."""
    if lengths is None or split != "test":
        rows = letter_rows(Random("rows of letters"), SHORTEST_ROW, LONGEST_ROW)
    else:
        rows = letter_rows(Random(f"rows of {lengths[0]} to {lengths[1]} letters"), *lengths)
    return stretch_of(((" ".join(row), " ".join(answer(row))) for row in rows), split, size)


def tables(draw: Random) -> Iterator[tuple[str, str]]:
    """Prompts without end that show a made-up table and ask for six of its entries, with the answers."""
    while True:
        count = draw.randint(*SHOTS)
        keys = draw.sample(KEYS, count)
        table = dict(zip(keys, draw.sample(VALUES, count), strict=True))
        asked = draw.choices(keys, k=QUESTIONS)
        shots = " , ".join(f"{key} {value}" for key, value in table.items())
        yield f"{shots} ? {' '.join(asked)}", " ".join(f"{key} {table[key]}" for key in asked)


def in_context(split: Split, size: int) -> list[tuple[str, str]]:
    """Prompts that show a made-up table and ask for some of it, with the answers; no prompt twice."""
    return stretch_of(tables(Random("rules in prompts")), split, size)


def reverse(row: list[str]) -> list[str]:
    """The letters from the last to the first."""
    return row[::-1]
