"""Texts as the words that byte-level BPE and unigram cut each by itself (GPT-2's splitting, which the library calls `ByteLevel`),
and the ids of a corpus, each different word of which is cut once.

Most of a corpus is few words, and most of the library's time goes into finding them. A text of Latin letters is split by Python's
`re`, several times as fast, and only words that are new go to the library; the ids are the same. Any other text, and one with a
character that has not been the same in all versions of Unicode, is split by the library.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

import tokenizers

from glassformer.text.flat import Flat, Numbers, end_to_end
from glassformer.text.vocabularies import encodable

END_OF_LATIN = 0x250
SPACES = "\t-\r \x85\xa0"
MOST_WORDS = 500_000  # whose ids are kept; then a new table is begun


@cache
def latin() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What finds the words of a text of Latin letters, and what finds a character with which that would not be certain."""
    classes = {"L": "", "N": "", "O": ""}  # letters, numbers, and the rest
    for letter in map(chr, range(END_OF_LATIN)):
        versions = {data.category(letter) for data in (unicodedata.ucd_3_2_0, unicodedata)}
        kinds = {category[0] if category[0] in "LN" else "O" for category in versions}
        if "Cn" not in versions and len(kinds) == 1:
            classes[kinds.pop()] += re.escape(letter)
    letters, numbers = classes["L"], classes["N"]
    words = (
        f"'(?:[stmd]|re|ve|ll)| ?[{letters}]+| ?[{numbers}]+| ?[^{SPACES}{letters}{numbers}]+"
        f"|[{SPACES}]+(?![^{SPACES}])|[{SPACES}]+"
    )
    return re.compile(words), re.compile(f"[^{''.join(classes.values())}]")


def split_words(library: tokenizers.Tokenizer, text: str) -> list[str]:
    """What the library's normalizer and pre-tokenizer make of a text."""
    text = text if library.normalizer is None else library.normalizer.normalize_str(text)
    words, beyond = latin()
    if text.isascii() or not beyond.search(text):
        return words.findall(text)
    return [text[begin:end] for _word, (begin, end) in library.pre_tokenizer.pre_tokenize_str(text)]


class WordEncoder:
    """The ids of much text by a tokenizer that splits as `ByteLevel` does."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self.library = library
        self.ids: dict[str, list[int]] = {}

    def encode_batch(self, texts: Iterable[str]) -> tuple[Flat, Numbers]:
        """All ids end to end, and how many each text has."""
        if len(self.ids) > MOST_WORDS:
            self.ids = {}
        cut = [split_words(self.library, text) for text in encodable(texts)]
        new = [word for word in dict.fromkeys(word for words in cut for word in words) if word not in self.ids]
        for word, encoding in zip(new, self.library.encode_batch_fast(new, add_special_tokens=False), strict=True):
            self.ids[word] = encoding.ids
        return end_to_end([[index for word in words for index in self.ids[word]] for words in cut])
