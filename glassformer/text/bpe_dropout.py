"""BPE-dropout: the same word cut into other pieces each time it is met in training.

BPE cuts a word in one way, so a model sees few of the pieces that rare words are made of and never learns that two ways
of writing a word mean the same. Provilkov et al. (2020, "BPE-dropout: simple and effective subword regularization", ACL)
leave merges out at random while cutting: at each step every merge that could be made is passed over with probability
`dropout`, the first of the others in the order of learning is made, and when none is left the word is done. With 0 this is
BPE itself, with 1 a word falls into bytes. Text to be translated is always cut in the ordinary way.

The library can do it, but its draws cannot be repeated. Here they follow from a seed and from the texts in their order. Each
different word of a batch of texts is merged many times at once, a row of an array each, in NumPy. In a batch a word is cut
afresh the first `KEPT` times it is met, and later takes one of those cuts: most text is few words. Long ones (a Chinese
sentence has no spaces and is one word) are cut each time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import tokenizers
from jaxtyping import Float, Int, UInt64

from glassformer.text.pre_tokenizer import Flat, Numbering, Numbers, ranges, splitter
from glassformer.text.vocabularies import byte_letters

KEPT = 128
LONG = 32  # bytes: longer words hardly come again
PLACES_AT_ONCE = 1 << 20  # bytes that are merged at a time
NONE = np.iinfo(np.int32).max  # the rank of two pieces that no merge joins


def occurrences(values: Numbers) -> Numbers:
    """For each value how many equal ones stand before it."""
    order = np.argsort(values, kind="stable")
    first = np.r_[True, np.diff(values[order]) != 0][: len(values)]
    places = np.arange(len(values))
    counts = np.empty(len(values), np.int64)
    counts[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return counts


def between_0_and_1(raw: UInt64[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Numbers in [0, 1) from the raw words of Philox, which NumPy promises for all versions."""
    return (raw >> np.uint64(11)) * 2.0**-53


class Merges:
    """The merges of a BPE vocabulary by the ids of what they join: (left, right) to rank, and rank to the piece they make."""

    def __init__(self, merges: list[tuple[str, str]], ids: dict[str, int]) -> None:
        self.base = len(ids) + 1
        pairs = np.array([(ids[left], ids[right]) for left, right in merges], np.int64).reshape(-1, 2)
        self.made = np.array([ids[left + right] for left, right in merges], np.int32)
        keys = self.key(pairs[:, 0], pairs[:, 1])
        order = np.argsort(keys)
        self.keys = np.append(keys[order], np.iinfo(np.int64).max)
        self.ranks = np.append(order, 0).astype(np.int32)

    def key(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """One number for two ids; an id of -1 stands for no piece."""
        return (left.astype(np.int64) + 1) * self.base + right + 1

    def rank(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The place of the merge in the order of learning; NONE where there is none."""
        key = self.key(left, right)
        found = np.searchsorted(self.keys, key)
        return np.where(self.keys[found] == key, self.ranks[found], NONE)


class BPEDropout:
    """`merges` in the order in which they were learned, `ids` of all pieces, both in the letters of the pre-tokenizer."""

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        merges: list[tuple[str, str]],
        ids: dict[str, int],
        dropout: float,
        seed: str,
    ) -> None:
        self.split, self.merges, self.dropout = splitter(library), Merges(merges, ids), dropout
        self.letter_ids = np.array([ids[letter] for _, letter in sorted(byte_letters().items())], np.int32)
        key = hashlib.blake2b(f"{dropout} {seed}".encode(), digest_size=16).digest()
        self.philox = np.random.Philox(key=np.frombuffer(key, np.uint64))

    def uniform(self, count: int) -> Float[np.ndarray, " n"]:
        """Numbers in [0, 1)."""
        return between_0_and_1(self.philox.random_raw(count))

    def encode_batch(self, texts: Iterable[str], times: int = 1) -> tuple[Flat, Numbers]:
        """Each text cut `times` times, one after the other: all ids end to end, and how many each cut has."""
        known, distinct = Numbering(), dict[str, int]()
        which = np.fromiter((distinct.setdefault(text, len(distinct)) for text in texts), np.int64)
        numbers, words_of = known.of(self.split(distinct))
        numbers = numbers[ranges((np.cumsum(words_of) - words_of)[which], words_of[which])]
        words_of = words_of[which]
        words = [word.encode() for word in known.new]
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        uses = np.bincount(numbers, minlength=len(words)) * times
        copies = np.where(sizes > LONG, uses, np.minimum(uses, KEPT))
        pieces, lengths = self.cut(self.letter_ids[np.frombuffer(b"".join(words), np.uint8)], sizes, copies)
        # Of each word of each cut the how-manieth use of it this is; the first uses have a cut of their own.
        places = ranges(np.repeat(np.cumsum(words_of) - words_of, times), np.repeat(words_of, times))
        turn = np.repeat(np.tile(np.arange(times), len(words_of)), np.repeat(words_of, times))
        use, number = occurrences(numbers)[places] * times + turn, numbers[places]
        drawn = (self.uniform(len(use)) * copies[number]).astype(np.int64)
        rows = (np.cumsum(copies) - copies)[number] + np.where(use < copies[number], use, drawn)
        ends = np.r_[0, np.cumsum(lengths[rows])][np.r_[0, np.cumsum(np.repeat(words_of, times))]]
        return pieces[ranges((np.cumsum(lengths) - lengths)[rows], lengths[rows])].astype(np.int64), np.diff(ends)

    def cut(self, letters: Flat, sizes: Numbers, copies: Numbers) -> tuple[Flat, Numbers]:
        """Each word cut as often as `copies` says: pieces end to end, and how many each cut has. Words of about one length are
        merged together."""
        rows = np.repeat(np.arange(len(sizes)), copies)
        starts, widths = np.cumsum(sizes) - sizes, 1 << np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
        lengths = np.zeros(len(rows), np.int64)
        made: list[tuple[Numbers, Flat]] = []
        for width in np.unique(widths):
            mine = np.flatnonzero(widths[rows] == width)
            for begin in range(0, len(mine), max(1, PLACES_AT_ONCE // int(width))):
                chosen = mine[begin : begin + max(1, PLACES_AT_ONCE // int(width))]
                words, word_of = np.unique(rows[chosen], return_inverse=True)
                whole = np.full((len(words), int(width)), -1, np.int32)
                whole[np.arange(int(width)) < sizes[words][:, None]] = letters[ranges(starts[words], sizes[words])]
                pieces = self.merged(whole, word_of)
                lengths[chosen] = (pieces >= 0).sum(1)
                made.append((chosen, pieces[pieces >= 0]))
        flat = np.empty(int(lengths.sum()), np.int32)
        begins = np.cumsum(lengths) - lengths
        for chosen, some in made:
            flat[ranges(begins[chosen], lengths[chosen])] = some
        return flat, lengths

    def passed_over(self, count: int, most: int) -> Numbers:
        """For each of some words how many of its possible merges are passed over before one is made: k or more with probability
        dropout ** k, as if each had been drawn for. `most`: enough to pass over all."""
        raw, passed = self.philox.random_raw(count), np.zeros(count, np.int64)
        some = np.flatnonzero(
            raw < np.uint64(math.ceil(self.dropout * 2.0**53) << 11)
        )  # those whose number is below dropout
        thresholds = np.cumprod(np.full(most, self.dropout))[::-1]
        passed[some] = most - np.searchsorted(thresholds, between_0_and_1(raw[some]), side="right")
        return passed

    def merged(self, words: Int[np.ndarray, "m w"], word_of: Int[np.ndarray, " n"]) -> Int[np.ndarray, "n w"]:
        """Cuts, each of the word that `word_of` names: words come as letters, a row each with -1 behind them, cuts go with their
        merges made; -1 where a piece went into the one before it. Most cuts pass nothing over for a while, or to their end; for
        so long they are what the word is without dropout, which is merged once."""
        plain = PartlyMerged.letters(words, self.merges)
        own = plain.empty(len(word_of))  # the cuts that have passed something over
        is_own = np.zeros(len(word_of), bool)
        going, words_going = np.arange(len(word_of)), np.ones(len(words), bool)
        while len(going):
            passed = self.passed_over(len(going), plain.side - 1)
            leaves = going[(passed > 0) & ~is_own[going]]
            own.take(leaves, plain, word_of[leaves])
            is_own[leaves] = True
            mine = is_own[going]
            going_own, goes_on = going[mine], np.empty(len(going), bool)
            waiting = own.rank[going_own]
            place, skipped = waiting.argmin(1), passed[mine]
            later = np.flatnonzero(skipped)
            order = np.argsort(waiting[later], axis=1, kind="stable")
            place[later] = order[np.arange(len(later)), skipped[later]]
            goes_on[mine] = own_goes_on = waiting[np.arange(len(waiting)), place] != NONE
            own.merge(going_own[own_goes_on], place[own_goes_on], self.merges)
            alive = np.flatnonzero(words_going)
            first = plain.rank[alive].argmin(1)
            words_going[alive] = plain.rank[alive, first] != NONE
            goes_on[~mine] = words_going[word_of[going[~mine]]]
            plain.merge(alive[words_going[alive]], first[words_going[alive]], self.merges)
            going = going[goes_on]
        cuts = plain.grid[word_of]
        cuts[is_own] = own.grid[is_own]
        return cuts[:, 1:-1]


@dataclass(frozen=True)
class PartlyMerged:
    """Words whose merges are being made, a row each with one more place on either side: the pieces, -1 where there is none; the
    rank of the merge of each piece with the next one; and where the next and the last piece before it stand."""

    grid: Int[np.ndarray, "n s"]
    rank: Int[np.ndarray, "n s"]
    after: Int[np.ndarray, "n s"]
    before: Int[np.ndarray, "n s"]

    @classmethod
    def letters(cls, words: Int[np.ndarray, "n w"], merges: Merges) -> PartlyMerged:
        """Words of which nothing is merged yet."""
        count, side = len(words), words.shape[1] + 2
        grid = np.full((count, side), -1, np.int32)
        grid[:, 1:-1] = words
        rank = np.full((count, side), NONE, np.int32)
        rank[:, :-1] = merges.rank(grid[:, :-1], grid[:, 1:])
        after = np.tile(np.arange(1, side + 1, dtype=np.int32), (count, 1))
        return cls(grid, rank, after, after - 2)

    @property
    def side(self) -> int:
        """The places of a row."""
        return self.grid.shape[1]

    def empty(self, count: int) -> PartlyMerged:
        """Room for `count` words of the same width."""
        return PartlyMerged(*(np.empty((count, self.side), np.int32) for _ in range(4)))

    def take(self, rows: Numbers, other: PartlyMerged, of: Numbers) -> None:
        """These rows become those rows of another."""
        for own, there in zip(vars(self).values(), vars(other).values(), strict=True):
            own[rows] = there[of]

    def merge(self, rows: Numbers, place: Numbers, merges: Merges) -> None:
        """In each of these rows the piece at its place takes in the next one."""
        grid, rank = self.grid.reshape(-1), self.rank.reshape(-1)
        after, before = self.after.reshape(-1), self.before.reshape(-1)
        row = rows * self.side
        left = row + place
        right = row + after[left]
        grid[left] = merges.made[rank[left]]
        grid[right], rank[right] = -1, NONE
        after[left] = after[right]
        before[row + after[left]] = place
        rank[left] = merges.rank(grid[left], grid[row + after[left]])
        previous = row + before[left]
        rank[previous] = merges.rank(grid[previous], grid[left])
