"""The built-in phrases: everyday sentences in English, Chinese and German, in any of six directions.

They are files of this package, written by a grammar that keeps three languages in step (tools/phrasebook in the source): a
small model can learn them to near perfection on a laptop, and whatever it gets wrong is a real mistake of grammar. The splits
test whether a model puts together what it has learned: validation and test are combinations of words that no training
sentence has, though each word occurs in training with others.

Samples take turns: every topic the same number of sentences, and within a topic every family (the sentences of one pattern),
until one runs dry; so a small family is not drowned by a large one. This module knows nothing of tokens or batches.
"""

import gzip
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from glassformer.data.splits import Split
from glassformer.errors import UserError

DIRECTIONS = ("zh-en", "en-zh", "de-en", "en-de", "zh-de", "de-zh")
HELD_OUT_SIZE = 1000  # sentences of validation and of test, unless asked for otherwise
FOLDER = Path(__file__).with_name("phrasebook")


class Triple(NamedTuple):
    """One sentence in three languages."""

    en: str
    zh: str
    de: str


class Family(NamedTuple):
    """The sentences of one pattern and one split, by the number of their combination of words, out of `size` combinations."""

    name: str
    topic: str
    size: int
    sentences: dict[int, str]

    def draw(self, seed: int) -> Iterator[Triple]:
        """The sentences in a random order."""
        for number in random.Random(f"{seed} {self.name}").sample(range(self.size), self.size):
            if (sentence := self.sentences.get(number)) is not None:
                yield Triple(*sentence.split("\t"))


def read_families(split: Split) -> list[Family]:
    """The families of the phrasebook with their sentences of one split, each numbered by its distance from the one before."""
    families: list[Family] = []
    number = 0
    with gzip.open(FOLDER / f"{split}.tsv.gz", "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            first, rest = line.rstrip("\n").split("\t", 1)
            if first.isdigit():
                number += int(first)
                families[-1].sentences[number] = rest
            else:
                topic, size = rest.split("\t")
                families.append(Family(first, topic, int(size), {}))
                number = 0
    return families


def take_turns(sources: list[Iterator[Triple]]) -> Iterator[Triple]:
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
        """The same sentences in all three languages."""
        topics: dict[str, list[Iterator[Triple]]] = {}
        for family in read_families(self.split):
            topics.setdefault(family.topic, []).append(family.draw(self.seed))
        mixed = take_turns([take_turns(families) for families in topics.values()])
        for number, triple in enumerate(mixed):
            if number == self.size:
                return
            yield triple

    def __iter__(self) -> Iterator[tuple[str, str]]:
        source, target = self.direction.split("-")
        for triple in self.triples():
            yield getattr(triple, source), getattr(triple, target)


def open_phrases(direction: str, split: Split = "train", size: int | None = None, seed: int = 0) -> Phrases:
    """The pairs of one direction and split.

    `size`: at most so many; None is all of training, and `HELD_OUT_SIZE` of validation and test. `seed` chooses the
    training sample; validation and test are the same sentences whatever the seed, and the same in all directions.
    """
    if direction not in DIRECTIONS:
        raise UserError(
            "There is no direction {direction!r} in phrases; choose one of {directions}.",
            direction,
            ", ".join(DIRECTIONS),
        )
    return (
        Phrases(direction, split, size, seed)
        if split == "train"
        else Phrases(direction, split, size or HELD_OUT_SIZE, 0)
    )
