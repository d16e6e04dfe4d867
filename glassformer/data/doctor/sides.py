"""Two illnesses of pairs that no single line shows: sides exchanged in some lines, and one side shifted against the other.

Exchanged: what words the two sides use is counted over all pairs (a word's log-odds of standing in a target). A pair is
exchanged if its source reads like a target and its target like a source, by the counts of all other pairs. Where the sides
cannot be told apart (a language and its paraphrase), nothing is said.

Shifted: long sentences have long translations, and numbers, names and question marks stay what they are. In each stretch of
the file the sides are held against each other as they stand, and moved by a line or two; where they fit much better when
moved, a line was lost or doubled.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

TOLD_APART = 2.0  # log-odds of a typical side; below, the sides are too alike to say anything
EXCHANGED = 0.5  # a side looks wrong if its odds are against it by so much of what is usual for it
STRETCH, LEAST_STRETCH = 200, 60  # lines that are compared at a time
OFFSETS = (-2, -1, 1, 2)
SMOOTHING = 5  # characters added to both sides of a ratio, as short sentences vary much
MUCH_BETTER = 0.4  # correlation; by chance it differs by 0.1 in a stretch of 200


def log_ratio(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The logarithm of target length over source length."""
    return np.log((target.astype(float) + SMOOTHING) / (source.astype(float) + SMOOTHING))


def words_of(text: str) -> set[str]:
    """What a side is known by: its words, and each letter of a script that has no blanks."""
    low = text.lower()
    return {word.strip(".,;:!?\"'()") for word in low.split()} | {c for c in low if ord(c) >= 0x2E80}


class SideWords:
    """Counts of words on either side of all pairs."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        for pair in pairs:
            for side, text in zip(self.counts, pair, strict=True):
                side.update(words_of(text))

    def looks_right(self, pair: tuple[str, str], counted: bool = True) -> tuple[float, float]:
        """For each side the log-odds that it stands where it should, by the counts of all other pairs; `counted`: this one is
        among those that were counted."""
        odds = [0.0, 0.0]
        for side, text in enumerate(pair):
            for word in words_of(text):
                count_here, there = self.counts[side][word] - counted, self.counts[1 - side][word]
                odds[side] += math.log((count_here + 0.5) / (there + 0.5)) if count_here + there else 0.0
        return odds[0], odds[1]


def exchanged(pairs: Sequence[tuple[str, str]], others: Sequence[tuple[str, str]] | None = None) -> list[int]:
    """The places of pairs whose sides are exchanged, by the words of `others` (of train, where these are val or test), or else
    by their own: of a split that is exchanged as a whole, only the others know."""
    known = SideWords(pairs if others is None else others)
    odds = np.array([known.looks_right(pair, others is None) for pair in pairs]).reshape(-1, 2)
    right = odds if others is None else np.array([known.looks_right(pair) for pair in others]).reshape(-1, 2)
    usual = np.median(right, axis=0) if len(right) else np.zeros(2)
    if (usual < TOLD_APART).any():
        return []
    return np.flatnonzero((odds < -EXCHANGED * usual).all(axis=1)).tolist()  # type: ignore[no-any-return]


def anchors(text: str) -> int:
    """64 bits of what a translation keeps: numbers, names inside a sentence, how it ends."""
    bits = 0
    for place, word in enumerate(text.split()):
        bare = word.strip(".,;:!?\"'()")
        digits = "".join(c for c in bare if c.isdigit())
        if digits or (place and bare[:1].isupper() and bare[1:].islower()):
            bits |= 1 << zlib.crc32((digits or bare).encode("utf-8", errors="surrogatepass")) % 61
    last = text.rstrip()[-1:]
    bits |= 1 << 61 if last in ("?", "？") else 1 << 62 if last in ("!", "！") else 0
    return bits


def agreement(source: np.ndarray, target: np.ndarray, marks: np.ndarray, other: np.ndarray) -> float:
    """How well two sides fit, line by line: the correlation of their lengths, and of which marks they share."""
    score = 0.0
    if source.std() > 0 and target.std() > 0:
        score = float(np.corrcoef(source, target)[0, 1])
    both, either = popcount(marks & other), popcount(marks | other)
    marked = either > 0
    if marked.sum() >= LEAST_STRETCH // 4:
        score = max(score, float((both[marked] / either[marked]).mean()))
    return score


def popcount(bits: np.ndarray) -> np.ndarray:
    """The number of ones in each number."""
    return np.unpackbits(bits.view(np.uint8).reshape(-1, 8), axis=1).sum(1)


def shifted(lengths: tuple[array[int], array[int]], marks: tuple[array[int], array[int]]) -> tuple[int, int] | None:
    """The first place from which one side is moved against the other, and by how many lines; None if they fit."""
    source, target = (np.log1p(np.frombuffer(side, np.uint64).astype(float)) for side in lengths)
    first, second = (np.frombuffer(side, np.uint64) for side in marks)
    edge = max(map(abs, OFFSETS))
    for start in range(0, len(source), STRETCH):
        places = np.arange(max(start, edge), min(start + STRETCH, len(source) - edge))
        if len(places) < LEAST_STRETCH:
            break
        as_it_is = agreement(source[places], target[places], first[places], second[places])
        moved = {d: agreement(source[places], target[places + d], first[places], second[places + d]) for d in OFFSETS}
        best = max(moved, key=lambda d: moved[d])
        if moved[best] > as_it_is + MUCH_BETTER:
            return int(places[0]), best
    return None
