"""Texts as the words that byte-level BPE and unigram cut each by itself: the splitting of GPT-2, which the library calls
`ByteLevel`, by Python's own `re`, and each different word encoded once.

Most of a corpus is few words, and most of the library's time goes into finding them. So a corpus is split here, ten times as
fast, and only words that are new go to the library; the ids are the same. What is a letter changes with the version of
Unicode, and neither ours nor the library's is known: a text with a character that has not always been what it is (or, with
lower-casing, one beyond Latin) is split by the library.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain, groupby

import numpy as np
import tokenizers
from jaxtyping import Int

from glassformer.text.languages import lowercase
from glassformer.text.vocabularies import encodable

SPACES = "\t-\r\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
END = "\0a\0"  # of a text among others; no word is letters and something else
LATIN, BASIC = 0x250, 0x10000  # where Latin ends, up to which lower case is the same everywhere; and the basic plane
MOST_WORDS = 500_000  # whose ids are kept; then a new table is begun

Flat = Int[np.ndarray, " _"]
"""Sequences end to end."""
Numbers = Int[np.ndarray, " _"]
"""A number for each of some sequences, or words."""


def ranges(starts: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
    """starts[0], starts[0]+1, … (lengths[0] of them), then the same for the next: many slices as one index."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def end_to_end(sequences: Sequence[Sequence[int]]) -> tuple[Flat, Numbers]:
    """Many sequences as one, and the length of each."""
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    return np.fromiter(chain.from_iterable(sequences), np.int64, int(lengths.sum())), lengths


def kind_of_character(code: int) -> str:
    """L for a letter, N for a number, O for any other, and - for one that was something else in an earlier Unicode."""
    then, now = (data.category(chr(code)) for data in (unicodedata.ucd_3_2_0, unicodedata))
    kinds = {category[0] if category[0] in "LN" else "O" for category in (then, now)}
    return kinds.pop() if len(kinds) == 1 and "Cn" not in (then, now) else "-"


@cache
def patterns(end: int) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What finds the words of texts whose characters are all below `end`, and what finds a character with which it would
    not be certain."""
    classes = {"L": "", "N": "", "O": "", "-": ""}
    for kind, codes in groupby(range(end), kind_of_character):
        run = list(codes)
        classes[kind] += f"\\u{run[0]:04x}-\\u{run[-1]:04x}"
    letter, number = classes["L"], classes["N"]
    words = (
        f"{END}|'(?:[stmd]|re|ve|ll)| ?[{letter}]+| ?[{number}]+| ?[^\0{SPACES}{letter}{number}]+"
        f"|[{SPACES}]+(?![^\0{SPACES}])|[{SPACES}]+"
    )
    return re.compile(words), re.compile(f"[{classes['-']}{chr(end)}-\U0010ffff]")


def splitter(library: tokenizers.Tokenizer) -> Callable[[Iterable[str]], list[str]]:
    """From texts to the words of all of them, lower-cased where the tokenizer does that, with END behind each text: one search
    for all, but for those that the library splits."""
    normalizer, pre_tokenizer = library.normalizer, library.pre_tokenizer
    find, beyond = patterns(LATIN)

    def by_library(text: str) -> list[str]:
        text = text if normalizer is None else normalizer.normalize_str(text)
        return [text[start:end] for _, (start, end) in pre_tokenizer.pre_tokenize_str(text)]

    def split_all(texts: Iterable[str]) -> list[str]:
        texts = list(encodable(texts))
        joined = END.join((*texts, ""))
        if joined.isascii() or not beyond.search(joined):
            find_words, uncertain = find, None
        elif normalizer is None:
            find_words, uncertain = patterns(BASIC)
        else:
            find_words, uncertain = find, beyond
        odd: list[int] = []  # the texts that Python is not certain of
        if joined.count("\0") != 2 * len(texts) or (uncertain is not None and uncertain.search(joined)):
            odd = [
                n for n, text in enumerate(texts) if "\0" in text or (uncertain is not None and uncertain.search(text))
            ]
            certain = texts.copy()
            for number in odd:
                certain[number] = ""
            joined = END.join((*certain, ""))
        words = find_words.findall(joined if normalizer is None else lowercase(joined))
        if not odd:
            return words
        ends = [place for place, word in enumerate(words) if word == END]
        parts, begin = [], 0
        for number in odd:
            parts += [words[begin : ends[number]], by_library(texts[number])]
            begin = ends[number]
        return [*chain.from_iterable(parts), *words[begin:]]

    return split_all


class Numbering(dict[str, int]):
    """A number for each different word, in the order in which they come; `new`: those since somebody last emptied it."""

    def __init__(self) -> None:
        super().__init__({END: -1})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self.new.append(word)
        number = self[word] = len(self) - 1
        return number

    def of(self, words: list[str]) -> tuple[Numbers, Numbers]:
        """The numbers of all words of some texts, END behind each, and how many words each has."""
        numbers = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        return numbers[numbers >= 0], np.diff(np.flatnonzero(numbers < 0), prepend=-1) - 1


class WordEncoder:
    """The ids of texts, each different word of which is cut once; for tokenizers that split as `ByteLevel` does."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self.library, self.split = library, splitter(library)
        self.forget()

    def forget(self) -> None:
        """Begins a new table of words."""
        self.numbers, self.ids, self.ends = Numbering(), array("I"), array("q", [0])

    def encode_batch(self, texts: Iterable[str]) -> tuple[Flat, Numbers]:
        """All ids end to end, and how many each text has."""
        if len(self.numbers) > MOST_WORDS:
            self.forget()
        numbers, words_of = self.numbers.of(self.split(texts))
        new = self.library.encode_batch_fast(self.numbers.new, add_special_tokens=False)
        self.numbers.new = []
        for encoding in new:
            self.ids.extend(encoding.ids)
            self.ends.append(len(self.ids))
        ends = np.frombuffer(self.ends, np.int64)
        lengths = np.diff(ends)[numbers]
        tokens = np.frombuffer(self.ids, np.uint32)[ranges(ends[numbers], lengths)] if len(lengths) else lengths
        word_ends = np.r_[0, np.cumsum(lengths)]
        return tokens.astype(np.int64), np.diff(word_ends[np.r_[0, np.cumsum(words_of)]])
