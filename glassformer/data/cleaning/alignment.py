"""What no single pair shows: sides that are exchanged, shifted or do not translate each other.

Exchanged: what words the two sides use is counted over all pairs (a word's log-odds of standing in a target). A pair is
exchanged if its source reads like a target and its target like a source, by the counts of all other pairs. Where the sides
cannot be told apart (a language and its paraphrase), nothing is said.

Shifted: long sentences have long translations. In each stretch of the file the lengths of the sides are held against each other
as they stand, and moved by a line or two; where they fit much better when moved, a line was lost or doubled.

Which pairs do not translate each other is told by a dictionary that is learned from the file itself.

IBM Model 1 (Brown et al., 1993, "The mathematics of statistical machine translation", Computational Linguistics): the
probability t(f | e) that a word e is translated by f is found by EM over all pairs, and

    P(target | source) = prod_j  1/(l+1) sum_i t(f_j | e_i),    e_0 the empty word

A pair's score is log P(target | source) - log P(target), and the same the other way round, each over the square root of the
number of words. A pair is scored by the dictionary of all *other* pairs: its own expected counts are taken off first, or rare
words that stand in a wrong pair alone would vouch for it. Words are their first five letters (endings would make the
dictionary thin), and each character of a script without blanks.

Where the border lies the file says as well: pairs that are wrong for certain are made of it, by moving one side by a line.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

WORD = re.compile("[\u2e80-\u9fff]|[^\\W_\u2e80-\u9fff]+")
STEM = 5  # letters of a word that count
MOST_WORDS = 40  # of a side: the links of a pair are their product
AT_ONCE = 100_000  # pairs that share a dictionary; some 12 million links for sentences of ten words
ROUNDS = 4  # of EM; Model 1 changes little after
BELIEVED = 0.9  # the dictionary's share of a word's probability; the rest is its frequency
TELLING = 1.0  # a score above says that the sides belong together, however few pairs lie below
GOOD_LOST = 0.008  # the border is set so that this share of the good pairs falls below it
TOLD_APART = 2.0  # log-odds of a typical side; below, the sides are too alike to say anything
EXCHANGED = 0.5  # a side looks wrong if its odds are against it by so much of what is usual for it
STRETCH, LEAST_STRETCH = 200, 60  # lines that are compared at a time
OFFSETS = (-2, -1, 1, 2)
SMOOTHING = 5  # characters added to both sides of a ratio, as short sentences vary much
MUCH_BETTER = 0.4  # correlation; by chance it differs by 0.1 in a stretch of 200

Numbers = Int[np.ndarray, " _"]
Values = Float[np.ndarray, " _"]
Pair = tuple[str, str]


class Words(NamedTuple):
    """The words of one side of all pairs, end to end as numbers from 1 on, and how many each pair has."""

    ids: Numbers
    lengths: Numbers
    size: int


def words_of(texts: Sequence[str]) -> Words:
    """The different words of each text."""
    known: dict[str, int] = {}
    sides = [
        list(dict.fromkeys(known.setdefault(word[:STEM], len(known) + 1) for word in WORD.findall(text.lower())))
        for text in texts
    ]
    sides = [side[:MOST_WORDS] for side in sides]
    lengths = np.array([len(side) for side in sides], np.int64)
    return Words(
        np.fromiter((word for side in sides for word in side), np.int64, int(lengths.sum())), lengths, len(known) + 1
    )


class Links(NamedTuple):
    """Every word of a target with every word of its source and with the empty word 0: the number of the target word, of the
    source word (or, behind these, of the pair whose empty word it is), the id of the source word, and both ids as one key."""

    target: Numbers
    place: Numbers
    source_id: Numbers
    key: Numbers


def links_of(source: Words, target: Words) -> Links:
    """All links of all pairs."""
    pair_of = np.repeat(np.arange(len(target.lengths)), target.lengths)
    width = source.lengths[pair_of] + 1
    words = np.repeat(np.arange(len(target.ids)), width)
    turn = np.arange(len(words)) - np.repeat(np.cumsum(width) - width, width)
    pair = pair_of[words]
    place = np.where(turn == 0, len(source.ids) + pair, (np.cumsum(source.lengths) - source.lengths)[pair] + turn - 1)
    ids = np.append(source.ids, np.zeros(len(source.lengths), np.int64))[place]
    return Links(words, place, ids, ids * target.size + target.ids[words])


def gains(source: Words, target: Words) -> tuple[Values, Values]:
    """log P(target | source) - log P(target) over the square root of the number of words: of the pairs as they stand, each by
    the dictionary of the others, and of the pairs with their targets moved."""
    links = links_of(source, target)
    keys, entry = np.unique(links.key, return_inverse=True)
    table = np.ones(len(keys))
    for _round in range(ROUNDS):
        chance = table[entry]
        expected = chance / np.bincount(links.target, chance, len(target.ids))[links.target]
        counts = np.bincount(entry, expected, len(keys))
        totals = np.bincount(keys // target.size, counts, source.size)
        table = counts / np.maximum(totals[keys // target.size], 1e-9)
    own = np.bincount(links.place, expected, len(source.ids) + len(source.lengths))
    left, total = counts[entry] - expected, totals[links.source_id] - own[links.place]
    uses = np.bincount(target.ids, minlength=target.size)

    def gain(target: Words, links: Links, chance: Values) -> Values:
        found = np.bincount(links.target, chance, len(target.ids)) / np.bincount(
            links.target, minlength=len(target.ids)
        )
        usual = (uses[target.ids] - 1) / len(target.ids)  # a word that no other pair has tells nothing
        ratio = np.where(usual > 0, BELIEVED * found / np.maximum(usual, 1e-12) + 1 - BELIEVED, 1.0)
        pair_of = np.repeat(np.arange(len(target.lengths)), target.lengths)
        known = np.bincount(pair_of, usual > 0, len(target.lengths))
        return np.bincount(pair_of, np.log(ratio), len(target.lengths)) / np.sqrt(known + 1)

    as_they_stand = gain(target, links, np.where(left > 1e-6, left / np.maximum(total, 1.0), 0.0))
    # The same sides, each beside the pair before its own.
    wrong = Words(np.roll(target.ids, -int(target.lengths[0])), np.roll(target.lengths, -1), target.size)
    links = links_of(source, wrong)
    place = np.minimum(np.searchsorted(keys, links.key), len(keys) - 1)
    return as_they_stand, gain(wrong, links, np.where(keys[place] == links.key, table[place], 0.0))


def alignment_scores(pairs: Sequence[Pair]) -> tuple[Values, Values]:
    """The score of every pair, and of as many pairs that are wrong for certain."""
    found = []
    for part in np.array_split(np.arange(len(pairs)), max(1, -(-len(pairs) // AT_ONCE))):
        source, target = (words_of([pairs[i][side] for i in part]) for side in (0, 1))
        found.append(np.add(gains(source, target), gains(target, source)))
    return tuple(np.concatenate(found, axis=1))  # type: ignore[return-value]


def border(scores: Values, wrong: Values, highest: float = math.inf) -> float:
    """The score below which a pair is removed, from the scores of pairs of which some are wrong, and of pairs of which all are.

    F = noise * F_wrong + (1 - noise) * F_good. Where most wrong pairs lie hardly a good one does, so what lies there says how
    large the noise is, and F_good follows; the border is where it reaches `GOOD_LOST`, and at most `highest`. -inf where even the
    lowest score would cost more: scores that cannot tell the ones from the others."""
    scores, wrong = np.sort(scores), np.sort(wrong)
    share = np.arange(len(wrong)) / len(wrong)
    below = np.searchsorted(scores, wrong) / len(scores)
    noise = min(0.9, max(below[int(q * len(wrong))] / q for q in (0.5, 0.75, 0.9)))
    good = (below - noise * share) / (1 - noise)
    cheap = np.flatnonzero(good <= GOOD_LOST)
    return min(highest, float(wrong[cheap[-1]])) if len(cheap) else -math.inf


def log_ratio(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The logarithm of target length over source length."""
    return np.log((target.astype(float) + SMOOTHING) / (source.astype(float) + SMOOTHING))


def side_words(text: str) -> set[str]:
    """What a side is known by: its words, and each letter of a script that has no blanks."""
    low = text.lower()
    return {word.strip(".,;:!?\"'()") for word in low.split()} | {c for c in low if ord(c) >= 0x2E80}


class SideWords:
    """Counts of words on either side of all pairs."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        for pair in pairs:
            for side, text in zip(self.counts, pair, strict=True):
                side.update(side_words(text))

    def looks_right(self, pair: tuple[str, str], counted: bool = True) -> tuple[float, float]:
        """For each side the log-odds that it stands where it should, by the counts of all other pairs; `counted`: this one is
        among those that were counted."""
        odds = [0.0, 0.0]
        for side, text in enumerate(pair):
            for word in side_words(text):
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


def agreement(source: np.ndarray, target: np.ndarray) -> float:
    """How well the lengths of two sides go together: their correlation."""
    return float(np.corrcoef(source, target)[0, 1]) if source.std() > 0 and target.std() > 0 else 0.0


def shifted(source: np.ndarray, target: np.ndarray) -> tuple[int, int] | None:
    """The first place from which one side is moved against the other, and by how many lines, by the lengths of both; None if
    they fit."""
    source, target = np.log1p(source.astype(float)), np.log1p(target.astype(float))
    edge = max(map(abs, OFFSETS))
    for start in range(0, len(source), STRETCH):
        places = np.arange(max(start, edge), min(start + STRETCH, len(source) - edge))
        if len(places) < LEAST_STRETCH:
            break
        moved = {by: agreement(source[places], target[places + by]) for by in (0, *OFFSETS)}
        best = max(moved, key=lambda by: moved[by])
        if moved[best] > moved[0] + MUCH_BETTER:
            return int(places[0]), best
    return None
