"""BPE-dropout: the same word cut into other pieces each time it is met in training.

BPE cuts a word in one way, so a model sees few of the pieces that rare words are made of and never learns that two ways
of writing a word mean the same. Provilkov et al. (2020, "BPE-dropout: simple and effective subword regularization", ACL)
leave merges out at random while cutting: at each step every merge that could be made is passed over with probability
`dropout`, the first of the others in the order of learning is made, and when none is left the word is done. With 0 this is
BPE itself, with 1 a word falls into bytes. Text to be translated is always cut in the ordinary way.

The library can do it, but its draws cannot be repeated. Here they follow from a seed and from the texts in their order.
A word is cut afresh the first `KEPT` times it is met; later it takes one of those cuts, which is what keeps Python fast
enough: most text is few words. Long ones (a Chinese sentence has no spaces and is one word) are cut each time.
"""

from __future__ import annotations

import heapq
import random
from itertools import pairwise

import tokenizers

KEPT = 128
LONG = 32  # letters: longer words hardly come again
MOST_WORDS = 200_000  # whose cuts are kept; the rest of a large text is cut each time


class Word:
    """A word and the ways of cutting it that were drawn."""

    __slots__ = ("cuts", "kept", "letters")

    def __init__(self, letters: str, kept: bool) -> None:
        self.letters, self.kept = letters, kept
        self.cuts: list[list[int]] = []


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
        self.normalizer, self.splitter = library.normalizer, library.pre_tokenizer
        self.rank = {pair: rank for rank, pair in enumerate(merges)}
        self.ids, self.dropout = ids, dropout
        self.draw = random.Random(f"{dropout} {seed}")
        self.known: dict[str, Word] = {}

    def encode(self, text: str, times: int = 1) -> list[list[int]]:
        """The text, cut so many times."""
        if self.normalizer is not None:
            text = self.normalizer.normalize_str(text)
        words = [self.word(letters) for letters, _ in self.splitter.pre_tokenize_str(text)]
        draw = self.draw.random
        found = []
        for _ in range(times):
            ids: list[int] = []
            for word in words:
                cuts = word.cuts
                if len(cuts) == KEPT:
                    ids += cuts[int(draw() * KEPT)]
                    continue
                new = [self.ids[piece] for piece in self.cut(word.letters)]
                if word.kept:
                    cuts.append(new)
                ids += new
            found.append(ids)
        return found

    def word(self, letters: str) -> Word:
        """The word with these letters, remembered where there is room."""
        known = self.known.get(letters)
        if known is None:
            known = Word(letters, kept=len(letters) <= LONG and len(self.known) < MOST_WORDS)
            if known.kept:
                self.known[letters] = known
        return known

    def cut(self, word: str) -> list[str]:
        """The possible merges wait in their order; those passed over wait again after the next merge."""
        pieces = list(word)
        before, after = list(range(-1, len(pieces) - 1)), list(range(1, len(pieces) + 1))
        rank, dropout, draw = self.rank, self.dropout, self.draw.random
        waiting = [(rank[pair], i, pair) for i, pair in enumerate(pairwise(pieces)) if pair in rank]
        heapq.heapify(waiting)
        passed: list[tuple[int, int, tuple[str, str]]] = []

        def offer(left: int, right: int) -> None:
            if left >= 0 and right < len(pieces) and (pair := (pieces[left], pieces[right])) in rank:
                heapq.heappush(waiting, (rank[pair], left, pair))

        while waiting:
            merge = heapq.heappop(waiting)
            left, pair = merge[1], merge[2]
            right = after[left]
            if right >= len(pieces) or (pieces[left], pieces[right]) != pair:
                continue  # one of the two has become part of another
            if draw() < dropout:
                passed.append(merge)
                continue
            pieces[left] += pieces[right]
            pieces[right] = ""
            after[left] = after[right]
            if after[left] < len(pieces):
                before[after[left]] = left
            for again in passed:
                heapq.heappush(waiting, again)
            passed.clear()
            offer(before[left], left)
            offer(left, after[left])
        return [piece for piece in pieces if piece]
