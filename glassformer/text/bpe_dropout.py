"""BPE-dropout: the same word cut into other pieces each time it is met in training.

BPE cuts a word in one way, so a model sees few of the pieces that rare words are made of and never learns that two ways
of writing a word mean the same. Provilkov et al. (2020, "BPE-dropout: simple and effective subword regularization", ACL)
leave merges out at random while cutting: at each step every merge that could be made is passed over with probability
`dropout`, the first of the others in the order of learning is made, and when none is left the word is done. With 0 this is
BPE itself, with 1 a word falls into bytes. Text to be translated is always cut in the ordinary way.

The library can do it, but its draws cannot be repeated. Here they follow from a seed and from the texts in their order.
A word is cut afresh the first `KEPT` times it is met; later it takes one of those cuts, which is what keeps Python fast
enough: most text is few words.
"""

from __future__ import annotations

import random
from itertools import pairwise

import tokenizers

KEPT = 32


class Word:
    __slots__ = ("cuts", "letters")

    def __init__(self, letters: str) -> None:
        self.letters = letters
        self.cuts: list[list[int]] = []


class Cutter:
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
        words = [self.known.setdefault(word, Word(word)) for word, _ in self.splitter.pre_tokenize_str(text)]
        draw = self.draw.random
        found = []
        for _ in range(times):
            ids: list[int] = []
            for word in words:
                cuts = word.cuts
                if len(cuts) < KEPT:
                    cuts.append([self.ids[piece] for piece in self.cut(word.letters)])
                    ids += cuts[-1]
                else:
                    ids += cuts[int(draw() * KEPT)]
            found.append(ids)
        return found

    def cut(self, word: str) -> list[str]:
        pieces = list(word)
        rank, dropout, draw = self.rank, self.dropout, self.draw.random
        while True:
            possible = [
                (rank[pair], place) for place, pair in enumerate(pairwise(pieces)) if pair in rank and draw() >= dropout
            ]
            if not possible:
                return pieces
            _, place = min(possible)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
