"""What the word tokenizer must know of languages: where words end in Chinese, and how words are put back together.

Most scripts mark words with spaces. Chinese does not, so runs of Han characters are cut with jieba (an extra, `zh`),
whose dictionary is of mainland Mandarin: traditional characters and Japanese kanji are cut less well, and kana, Thai and
Khmer are not cut at all. Joining is by rule: it restores ordinary prose in English, German and Chinese, and cannot know
how a text was spaced where its author chose otherwise. The module knows nothing of vocabularies or ids.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

from glassformer.errors import UserError, install_hint

# For the `tokenizers` library (Oniguruma): a run of Han; a number with its marks inside, such as 3.14, 19:30, 2024-05-03;
# a word with its apostrophes and hyphens inside, such as don't, twenty-one; any other visible character by itself.
SPACED_WORD = r"\d+(?:[.,:/-]\d+)+|[\w&&[^\p{Han}]]+(?:['’-][\w&&[^\p{Han}]]+)*|[^\w\s]"
WORD_PATTERN = rf"\p{{Han}}+|{SPACED_WORD}"

HAN = (
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
# Written without spaces around: Han, CJK punctuation, kana, full-width forms. Not Hangul, which is spaced.
UNSPACED = (*HAN, (0x3000, 0x30FF), (0x31F0, 0x31FF), (0xFE30, 0xFE4F), (0xFF00, 0xFFEF))
NOT_UNSPACED = "(?![" + "".join(rf"\x{{{low:X}}}-\x{{{high:X}}}" for low, high in UNSPACED) + "])"
# The same words, each with the blank before it; any other blank, tab or line break is a piece by itself, so that nothing is lost.
PIECE_PATTERN = rf"\p{{Han}}+|(?: {NOT_UNSPACED})?(?:{SPACED_WORD})|\s"
BEGIN_PATTERN = rf"\A{NOT_UNSPACED}"  # where a text is given the blank that its first word would have inside one

LONGEST_RUN = 500

CLOSING = frozenset(".,;:!?…)]}%”’»'")
OPENING = frozenset("([{“‘„«¿¡$£¥#@")
EITHER = frozenset('"')  # opens and closes in turn


def is_han(character: str) -> bool:
    """Whether it is a Chinese character."""
    code = ord(character)
    return code >= 0x2E80 and any(low <= code <= high for low, high in HAN)


def is_unspaced(character: str) -> bool:
    """Whether it belongs to a script that is written without spaces."""
    code = ord(character)
    return code >= 0x2E80 and any(low <= code <= high for low, high in UNSPACED)


def lowercase(text: str) -> str:
    """Each character by itself, as the tokenizer library does it: without the rule for a sigma at the end of a word."""
    return text.replace("Σ", "σ").lower()


@functools.cache
def load_jieba() -> Any:
    """The segmenter of Chinese; a sentence that says how to get it where it is missing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its source has escapes that newer Pythons warn of
            import jieba
    except ImportError:
        raise UserError(
            "cutting Chinese text into words needs jieba: install it with {command}, "
            "or set data.tokenizer to char, bpe or unigram",
            install_hint("zh"),
        ) from None
    jieba.setLogLevel(60)  # it reports the loading of its dictionary on stderr
    return jieba


@functools.lru_cache(maxsize=1 << 18)  # a corpus is cut to learn its words and again to encode it
def segment_chinese(run: str) -> tuple[str, ...]:
    """Cut a run of Han characters into words; the words joined give the run back.

    >>> segment_chinese("我喜欢你")
    ('我', '喜欢', '你')
    """
    if len(run) == 1:
        return (run,)
    # jieba takes quadratic time; no clause is as long as this, so only text without any punctuation is cut at its border.
    cut = load_jieba().cut
    return tuple(word for i in range(0, len(run), LONGEST_RUN) for word in cut(run[i : i + LONGEST_RUN]))


def join_words(words: Sequence[str]) -> str:
    """Words as a sentence: no space within Chinese or Japanese, before closing marks, or after opening ones."""
    out: list[str] = []
    inside_quotes = inside_german = False
    tight = True  # no space before the next word
    for word in words:
        if not word:
            continue
        if word.isascii() and word.isalnum():  # nearly all words of a European language
            out.append(word if tight else " " + word)
            tight = False
            continue
        opens = word in OPENING or (word in EITHER and not inside_quotes)
        closes = word in CLOSING or (word in EITHER and inside_quotes) or (word == "“" and inside_german)
        if not (tight or closes or is_unspaced(word[0])):
            out.append(" ")
        out.append(word)
        if word in EITHER:
            inside_quotes = not inside_quotes
        if word in "„“":  # German opens with the one and closes with the other, with which English opens
            inside_german = word == "„"
        tight = (opens and not closes) or is_unspaced(word[-1])
    return "".join(out)
