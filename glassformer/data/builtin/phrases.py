"""The built-in phrases: everyday sentences in English, Chinese and German, in any of six directions.

The grammar (`phrasebook`) is a list of families; a family is a table of slots and their fillers. Here are its
sentences in order, which split each belongs to, and samples of them.

The splits test whether a model puts together what it has learned, not whether it remembers. In each family two slots
are chosen (who and what, say), and one pair of their fillers in twenty is kept for the test and one in twenty for
validation: if "my aunt" with "play chess" is such a pair, no training sentence of any family that holds out these two
slots has both, though both occur in training with others. Which pairs, a hash of their names decides: it is the same on
every machine, and adding a word moves no other pair. The price is that the splits are not exactly 90/5/5.

Samples take turns: every topic the same number of sentences, and within a topic every family, until one runs dry; so a
small family is not drowned by a large one. A sample draws single sentences by their number and never lists them all.
This module knows nothing of tokens or batches.
"""

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from typing import Literal, NamedTuple, get_args

from glassformer.data.builtin.phrasebook import FAMILIES, Family
from glassformer.errors import UserError

Split = Literal["train", "val", "test"]
DIRECTIONS = ("zh-en", "en-zh", "de-en", "en-de", "zh-de", "de-zh")
HELD_OUT_SIZE = 1000  # sentences of validation and of test, unless asked for otherwise
ONE_IN = 20  # pairs of fillers: one in so many for test, as many for validation


class Key(NamedTuple):
    """The combination of words a sentence is made of: its family, and the filler of each slot by name."""

    family: str
    fillers: tuple[tuple[str, str], ...]


class Triple(NamedTuple):
    """One sentence in three languages."""

    en: str
    zh: str
    de: str
    key: Key


FAMILY_NAMED: Mapping[str, Family] = {family.name: family for family in FAMILIES}


@cache
def _split_of_pair(slots: tuple[str, str], fillers: tuple[str, str]) -> Split:
    if slots[0] == "someone" and fillers[0] in ("I", "you"):
        return "train"  # "höre" and "hörst" belong to one person alone: held out, they would be words never seen
    name = "\t".join((*slots, *fillers))
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % ONE_IN
    return "test" if number == 0 else "val" if number == 1 else "train"


def _places_of_held(family: Family) -> tuple[int, int]:
    slots = list(family.slots)
    return slots.index(family.held[0]), slots.index(family.held[1])


def _triple(family: Family, fillers: Sequence[object], names: Sequence[str]) -> Triple:
    return Triple(*family.write(*fillers), Key(family.name, tuple(zip(family.slots, names, strict=True))))


def triples() -> Iterator[Triple]:
    """Every sentence of the grammar, once."""
    for family in FAMILIES:
        columns = family.slots.values()
        names_of_columns = [[str(filler) for filler in column] for column in columns]
        for fillers, names in zip(product(*columns), product(*names_of_columns), strict=True):
            if family.makes_sense(*fillers):
                yield _triple(family, fillers, names)


def held_pair(triple: Triple) -> tuple[str, str]:
    """The fillers of the two slots by which the sentence's family is split."""
    first, second = FAMILY_NAMED[triple.key.family].held
    fillers = dict(triple.key.fillers)
    return fillers[first], fillers[second]


def split_of(triple: Triple) -> Split:
    return _split_of_pair(FAMILY_NAMED[triple.key.family].held, held_pair(triple))


def topic_of(triple: Triple) -> str:
    return FAMILY_NAMED[triple.key.family].topic


def _draw(family: Family, split: Split, seed: int) -> Iterator[Triple]:
    """The family's sentences of one split in a random order, each made only when asked for."""
    columns = [[(filler, str(filler)) for filler in column] for column in family.slots.values()]
    first, second = _places_of_held(family)
    total = prod(len(column) for column in columns)
    for number in random.Random(f"{seed} {family.name}").sample(range(total), total):
        chosen = []
        for column in columns:
            number, place = divmod(number, len(column))
            chosen.append(column[place])
        fillers, names = zip(*chosen, strict=True)
        if _split_of_pair(family.held, (names[first], names[second])) == split and family.makes_sense(*fillers):
            yield _triple(family, fillers, names)


def _take_turns(sources: list[Iterator[Triple]]) -> Iterator[Triple]:
    """One from each in turn, until all are empty."""
    while sources:
        alive = []
        for source in sources:
            triple = next(source, None)
            if triple is not None:
                alive.append(source)
                yield triple
        sources = alive


@dataclass(frozen=True)
class Phrases:
    """Pairs of source and target; iterating again gives the same pairs in the same order."""

    direction: str
    split: Split
    size: int | None
    seed: int

    def triples(self) -> Iterator[Triple]:
        topics: dict[str, list[Iterator[Triple]]] = {}
        for family in FAMILIES:
            topics.setdefault(family.topic, []).append(_draw(family, self.split, self.seed))
        mixed = _take_turns([_take_turns(families) for families in topics.values()])
        for number, triple in enumerate(mixed):
            if number == self.size:
                return
            yield triple

    def __iter__(self) -> Iterator[tuple[str, str]]:
        source, target = self.direction.split("-")
        for triple in self.triples():
            yield getattr(triple, source), getattr(triple, target)


def open_phrases(direction: str, split: str = "train", size: int | None = None, seed: int = 0) -> Phrases:
    """The pairs of one direction and split.

    `size`: at most so many; None is all of training, and `HELD_OUT_SIZE` of validation and test. `seed` chooses the
    training sample; validation and test are the same sentences whatever the seed, and the same in all directions.
    """
    if direction not in DIRECTIONS:
        raise UserError(f"There is no direction {direction!r} in phrases; choose one of {', '.join(DIRECTIONS)}.")
    if split not in get_args(Split):
        raise UserError(f"There is no split {split!r} in phrases; choose one of {', '.join(get_args(Split))}.")
    if size is not None and size < 1:
        raise UserError(f"A sample of phrases needs at least one sentence, not {size}; give a size of 1 or more.")
    if split == "train":
        return Phrases(direction, "train", size, seed)
    return Phrases(direction, "val" if split == "val" else "test", size or HELD_OUT_SIZE, 0)
