"""Writes the phrasebook's sentences into the package:  python3 -m tools.phrasebook.book

A file for each split, glassformer/data/builtin/phrasebook/SPLIT.tsv.gz, has a line for each family (name, topic, combinations of
fillers) and under it one for each of its sentences: how many combinations after the last one it comes, and the sentence in
English, Chinese and German.

The splits test whether a model puts together what it has learned, not whether it remembers. In each family two slots
are chosen (who and what, say), and one pair of their fillers in twenty is kept for the test and one in twenty for
validation: if "my aunt" with "play chess" is such a pair, no training sentence of any family that holds out these two
slots has both, though both occur in training with others. Which pairs, a hash of their names decides: it is the same on
every machine, and adding a word moves no other pair. The price is that the splits are not exactly 90/5/5.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import NamedTuple

from tools.phrasebook import FAMILIES, Family

FOLDER = Path(__file__).parents[2] / "glassformer" / "data" / "builtin" / "phrasebook"
SPLITS = ("train", "val", "test")
ONE_IN = 20  # pairs of fillers: one in so many for test, as many for validation


class Written(NamedTuple):
    """One sentence in three languages: the number of its combination, its split, and the filler of each slot by name."""

    number: int
    split: str
    en: str
    zh: str
    de: str
    fillers: tuple[tuple[str, str], ...]


def split_of_pair(slots: tuple[str, str], fillers: tuple[str, str]) -> str:
    """The split of all sentences that have this pair of fillers in these two slots."""
    if slots[0] == "someone" and fillers[0] in ("I", "you"):
        return "train"  # "höre" and "hörst" belong to one person alone: held out, they would be words never seen
    name = "\t".join((*slots, *fillers))
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % ONE_IN
    return "test" if number == 0 else "val" if number == 1 else "train"


def size(family: Family) -> int:
    """All combinations of a family's fillers, those that make no sense included."""
    return prod(len(column) for column in family.slots.values())


def number_of(places: Sequence[int], family: Family) -> int:
    """The number of a combination: the first slot's filler counts one, the next one's as many as the first has, and so on."""
    number, factor = 0, 1
    for place, column in zip(places, family.slots.values(), strict=True):
        number, factor = number + place * factor, factor * len(column)
    return number


def sentences(family: Family) -> Iterator[Written]:
    """Every sentence of a family, once."""
    columns = [list(enumerate(column)) for column in family.slots.values()]
    for chosen in product(*columns):
        fillers = [filler for _, filler in chosen]
        if family.makes_sense(*fillers):
            named = dict(zip(family.slots, map(str, fillers), strict=True))
            split = split_of_pair(family.held, (named[family.held[0]], named[family.held[1]]))
            number = number_of([place for place, _ in chosen], family)
            yield Written(number, split, *family.write(*fillers), tuple(named.items()))


def book() -> dict[str, str]:
    """The text of each split's file."""
    lines: dict[str, list[str]] = {split: [] for split in SPLITS}
    for family in FAMILIES:
        last = dict.fromkeys(SPLITS, 0)
        for split in SPLITS:
            lines[split].append(f"{family.name}\t{family.topic}\t{size(family)}")
        for each in sorted(sentences(family)):
            lines[each.split].append(f"{each.number - last[each.split]}\t{each.en}\t{each.zh}\t{each.de}")
            last[each.split] = each.number
    return {split: "\n".join(own) + "\n" for split, own in lines.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for split, text in book().items():
        (FOLDER / f"{split}.tsv.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
