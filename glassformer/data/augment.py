"""Text as people paste it: in capitals, as a title, with slips of the keyboard, without its full stop, with an emoji, in lines.

A model that has only seen tidy sentences breaks on these. With `data.augment` a share of the training pairs is changed so, each
copy of a pair otherwise (`data.segmentations` says how many, as with BPE-dropout), and `glassformer evaluate RUN --perturb upper`
scores on a test set so changed. What the translation of such a text should have, too, is carried over: capitals and emoji. Else
the target stays.

Line breaks are for evaluation alone: a text is translated line by line (decode/longtext.py), so no model ever reads one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Pair = tuple[str, str]
Change = Callable[[str, str, random.Random], Pair]
EMOJI = ["😀", "😂", "😊", "😉", "😍", "😢", "😡", "👍", "🙏", "🎉", "❤️", "🔥"]
TYPOS = 0.15  # of the words of four letters or more, about one in an English sentence
FIRST_OF_HAN = "\u2e80"  # from here on a character is no letter of a word
WIDTH = 30  # characters of a line


def pick(items: str | list[str], draw: random.Random) -> str:
    """One of some, by `random()` alone: what Python's other draws give may differ between its versions."""
    return items[int(draw.random() * len(items))]


def by_word(text: str, change: Callable[[str], str]) -> str:
    """The text with its words changed, but for addresses; its blanks stay."""
    return re.sub(r"\S+", lambda word: word[0] if re.search("[/@]", word[0]) else change(word[0]), text)


def upper(source: str, target: str, draw: random.Random) -> Pair:
    """Both in capitals."""
    return by_word(source, str.upper), by_word(target, str.upper)


def title(source: str, target: str, draw: random.Random) -> Pair:
    """The source As A Headline."""
    return by_word(source, lambda word: word[:1].upper() + word[1:]), target


def typos(source: str, target: str, draw: random.Random) -> Pair:
    """A letter of the source left out, doubled or exchanged with the next one, here and there inside a word."""

    def slip(word: str) -> str:
        inside = [i for i in range(1, len(word) - 1) if word[i : i + 2].isalpha() and word[i] < FIRST_OF_HAN]
        if len(inside) < 2 or draw.random() >= TYPOS:
            return word
        place, kind = inside[int(draw.random() * len(inside))], pick("-+x", draw)
        first, second = word[place], word[place + 1]
        put = {"-": second, "+": first + first + second, "x": second + first}[kind]
        return word[:place] + put + word[place + 2 :]

    return by_word(source, slip), target


def stops(source: str, target: str, draw: random.Random) -> Pair:
    """The source without the mark that ends it."""
    return source.rstrip(".!。！… ") or source, target


def emoji(source: str, target: str, draw: random.Random) -> Pair:
    """An emoji behind both."""
    one = pick(EMOJI, draw)
    return f"{source} {one}", f"{target} {one}"


def lines(source: str, target: str, draw: random.Random) -> Pair:
    """The source as a mail program breaks it."""
    return re.sub(rf"(.{{{WIDTH},}}?) ", r"\1\n", source), target


PERTURBATIONS: dict[str, Change] = {
    "upper": upper,
    "title": title,
    "typos": typos,
    "stops": stops,
    "emoji": emoji,
    "lines": lines,
}
"""By name; all but the last are drawn in training."""
LEARNED = list(PERTURBATIONS)[:-1]


def perturbed(pairs: Iterable[Pair], kind: str, seed: int = 0) -> Iterator[Pair]:
    """Every pair changed in one way; the same pairs and seed give the same texts."""
    draw = random.Random(f"{kind} {seed}")
    for source, target in pairs:
        yield PERTURBATIONS[kind](source, target, draw)


@dataclass(frozen=True)
class Augmented:
    """Training pairs, each `times`, of which a share is changed: a re-iterable that gives the same texts each time. A tag that a
    source begins with stays as it is."""

    pairs: Iterable[Pair]
    share: float
    seed: int
    times: int = 1
    tags: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Pair]:
        draw = random.Random(f"augment {self.seed}")
        for source, target in self.pairs:
            tag = next((f"{tag} " for tag in self.tags if source.startswith(f"{tag} ")), "")
            for _turn in range(self.times):
                if draw.random() >= self.share:
                    yield source, target
                    continue
                own, answer = PERTURBATIONS[pick(LEARNED, draw)](source[len(tag) :], target, draw)
                yield tag + own, answer
