"""BPE-dropout: the same word cut into other pieces each time it is met in training.

BPE cuts a word in one way, so a model sees few of the pieces that rare words are made of and never learns that two ways
of writing a word mean the same. Provilkov et al. (2020, "BPE-dropout: simple and effective subword regularization", ACL)
leave merges out at random while cutting: at each step every merge that could be made is passed over with probability
`dropout`, the first of the others in the order of learning is made, and when none is left the word is done. With 0 this is
BPE itself, with 1 a word falls into bytes. Text to be translated is always cut in the ordinary way.

The library can do it, but its draws cannot be repeated. Here they follow from a seed and from the texts in their order. The
words of a batch of texts are merged together, a row of an array each, in NumPy. In a batch a word is cut afresh the first `KEPT`
times it is met, and later takes one of those cuts: most text is few words. Long ones (a Chinese sentence has no spaces and is one
word) are cut each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
import tokenizers
from jaxtyping import Float, Int

from glassformer.text.flat import Flat, Numbers, end_to_end, ranges
from glassformer.text.vocabularies import byte_letters, encodable
from glassformer.text.words import split_words

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


class BPEDropout:
    """A byte-level BPE tokenizer of the library that leaves each merge out with the chance `dropout`."""

    def __init__(self, library: tokenizers.Tokenizer, dropout: float, seed: str) -> None:
        self.library, self.dropout, self.ids = library, dropout, library.get_vocab()
        merges = json.loads(library.to_str())["model"]["merges"]
        pairs = np.array([(self.ids[left], self.ids[right]) for left, right in merges], np.int64).reshape(-1, 2)
        keys = self.key(pairs[:, 0], pairs[:, 1])
        order = np.argsort(keys)
        self.keys = np.append(keys[order], np.iinfo(np.int64).max)
        self.ranks = np.append(order, 0).astype(np.int32)
        self.letter_ids = np.array([self.ids[letter] for _byte, letter in sorted(byte_letters().items())], np.int32)
        self.made = np.array([self.ids[left + right] for left, right in merges], np.int32)
        key = hashlib.blake2b(f"{dropout} {seed}".encode(), digest_size=16).digest()
        self.philox = np.random.Philox(key=np.frombuffer(key, np.uint64))

    def uniform(self, count: int) -> Float[np.ndarray, " n"]:
        """Numbers in [0, 1) from the raw words of Philox, which NumPy promises for all versions."""
        return (self.philox.random_raw(count) >> np.uint64(11)) * 2.0**-53

    def key(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """One number for two ids; an id of -1 stands for no piece."""
        return (left.astype(np.int64) + 1) * (len(self.ids) + 1) + right + 1

    def rank(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The place of the merge of two pieces in the order of learning; NONE where there is none."""
        key = self.key(left, right)
        places = np.searchsorted(self.keys, key)
        return np.where(self.keys[places] == key, self.ranks[places], NONE)

    def encode_batch(self, texts: Iterable[str], times: int = 1) -> tuple[Flat, Numbers]:
        """Each text cut `times` times, one after the other: all ids end to end, and how many each cut has."""
        distinct: dict[str, int] = {}
        words, words_of = end_to_end(
            [
                [distinct.setdefault(word, len(distinct)) for word in split_words(self.library, text)]
                for text in encodable(texts)
            ]
        )
        numbers = words[ranges(np.repeat(np.cumsum(words_of) - words_of, times), np.repeat(words_of, times))]
        words_of = np.repeat(words_of, times)
        encoded = [word.encode() for word in distinct]
        sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
        letters = self.letter_ids[np.frombuffer(b"".join(encoded), np.uint8)]
        uses = np.bincount(numbers, minlength=len(sizes))
        copies = np.where(sizes > LONG, uses, np.minimum(uses, KEPT))
        pieces, lengths = self.cut(letters, sizes, copies)
        # The first uses of a word have a cut of their own, later ones any of those.
        use, drawn = occurrences(numbers), (self.uniform(len(numbers)) * copies[numbers]).astype(np.int64)
        rows = (np.cumsum(copies) - copies)[numbers] + np.where(use < copies[numbers], use, drawn)
        ends = np.r_[0, np.cumsum(lengths[rows])][np.r_[0, np.cumsum(words_of)]]
        return pieces[ranges((np.cumsum(lengths) - lengths)[rows], lengths[rows])].astype(np.int64), np.diff(ends)

    def cut(self, letters: Flat, sizes: Numbers, copies: Numbers) -> tuple[Flat, Numbers]:
        """Each word cut as often as `copies` says: pieces end to end, and how many each cut has. Words of about one length are
        merged together."""
        rows = np.repeat(np.arange(len(sizes)), copies)
        starts, widths = np.cumsum(sizes) - sizes, 1 << np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
        lengths = np.zeros(len(rows), np.int64)
        made: list[tuple[Numbers, Flat]] = []
        for width in map(int, np.unique(widths)):
            mine = np.flatnonzero(widths[rows] == width)
            for begin in range(0, len(mine), max(1, PLACES_AT_ONCE // width)):
                chosen = mine[begin : begin + max(1, PLACES_AT_ONCE // width)]
                words = rows[chosen]
                grid = np.full((len(words), width), -1, np.int32)
                grid[np.arange(width) < sizes[words][:, None]] = letters[ranges(starts[words], sizes[words])]
                pieces = self.merged(grid)
                lengths[chosen] = (pieces >= 0).sum(1)
                made.append((chosen, pieces[pieces >= 0]))
        flat = np.empty(int(lengths.sum()), np.int32)
        begins = np.cumsum(lengths) - lengths
        for chosen, pieces in made:
            flat[ranges(begins[chosen], lengths[chosen])] = pieces
        return flat, lengths

    def merged(self, grid: Int[np.ndarray, "n w"]) -> Int[np.ndarray, "n w"]:
        """Words, a row of letters each with -1 behind them, with their merges made: a row of pieces each."""
        grid = np.pad(grid, ((0, 0), (0, 1)), constant_values=-1)
        ranks = np.pad(self.rank(grid[:, :-1], grid[:, 1:]), ((0, 0), (0, 1)), constant_values=NONE)  # with the next
        going, columns = np.arange(len(grid)), np.arange(grid.shape[1])
        while len(going):
            offered = ranks[going]
            offered[self.uniform(offered.size).reshape(offered.shape) < self.dropout] = NONE
            place = offered.argmin(axis=1)
            first = offered[np.arange(len(going)), place]
            alive = first != NONE
            going, place, first = going[alive], place[alive], first[alive]
            # The piece behind the place goes into it, and all others move up.
            source = np.minimum(columns + (columns > place[:, None]), grid.shape[1] - 1)
            row, pieces = np.arange(len(going)), np.take_along_axis(grid[going], source, axis=1)
            pieces[row, place] = self.made[first]
            rank = np.take_along_axis(ranks[going], source, axis=1)
            rank[row, place] = self.rank(pieces[row, place], pieces[row, place + 1])
            before = np.maximum(place - 1, 0)
            again = self.rank(pieces[row, before], pieces[row, before + 1])
            rank[row, before] = np.where(place > 0, again, rank[row, before])
            grid[going], ranks[going] = pieces, rank
        return grid[:, :-1]
