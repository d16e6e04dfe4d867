"""How a vocabulary is learned from text: characters, words, byte-level BPE, unigram. What each kind is, and why control ids are
named with a space, is told in tokenizer.py."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from glassformer.errors import UserError
from glassformer.text.languages import (
    BEGIN_PATTERN,
    PIECE_PATTERN,
    WORD_PATTERN,
    is_han,
    is_unspaced,
    lowercase,
    segment_chinese,
)

PAD, BOS, EOS, UNK, MASK = range(5)
CONTROL = 5

CONTROL_NAMES = ("<pad >", "<bos >", "<eos >", "<unk >", "<mask >")  # the space is the point: see tokenizer.py
CHARACTER_PATTERN = r"[\s\S]"

Kind = Literal["char", "word", "bpe", "unigram"]
SMALLEST_BYTE_LEVEL = CONTROL + 256


def kind_of(facts: dict[str, Any]) -> Kind:
    """Read the kind off the model in a tokenizer.json."""
    model = facts["model"]["type"]
    if model == "BPE":
        return "bpe"
    if model == "Unigram":
        return "unigram"
    pattern = split_pattern(facts)
    if model == "WordLevel" and pattern.endswith(CHARACTER_PATTERN):
        return "char"
    if model == "WordLevel" and pattern in (WORD_PATTERN, PIECE_PATTERN):
        return "word"
    raise UserError(
        "a tokenizer with a {model} model and this splitting is none of {choices}", model, ", ".join(get_args(Kind))
    )


@dataclass(frozen=True)
class Spelling:
    """How a tokenizer reads a text before it looks its pieces up.

    `pattern` is a regular expression for what is one token of a tokenizer by characters besides every single one: the atoms of
    a formula (`Cl|Br`), the symbols of features. `decompose`: letters with accents, and the syllables of Hangul, are taken apart
    (Unicode's NFD), and put together again (NFC) in what is written. `keeps_blanks`: words hold the blanks before them; those of
    tokenizers made earlier do not.
    """

    lowercase: bool = False
    decompose: bool = False
    pattern: str = ""
    keeps_blanks: bool = True

    @staticmethod
    def of(facts: dict[str, Any]) -> Spelling:
        """The spelling that a tokenizer.json has."""
        normalizer = facts.get("normalizer") or {}
        steps = {step.get("type") for step in (normalizer, *normalizer.get("normalizers", ()))}
        regex = split_pattern(facts)
        pattern = regex.removesuffix(CHARACTER_PATTERN).removesuffix("|") if regex.endswith(CHARACTER_PATTERN) else ""
        return Spelling("Lowercase" in steps, "NFD" in steps, pattern, regex == PIECE_PATTERN)

    def normalized(self, text: str) -> str:
        """The text in the letters that the vocabulary has.

        >>> Spelling(lowercase=True).normalized("Ab"), len(Spelling(decompose=True).normalized("각"))
        ('ab', 3)
        """
        text = unicodedata.normalize("NFD", text) if self.decompose else text
        return lowercase(text) if self.lowercase else text

    def characters(self, text: str) -> list[str]:
        """The characters of a text, and what the pattern says is one, as the text has them.

        >>> Spelling(pattern="Cl").characters("CCl")
        ['C', 'Cl']
        """
        return [piece.group() for piece in re.finditer(self.split, text)] if self.pattern else list(text)

    @property
    def split(self) -> str:
        """The regular expression of the pieces of a tokenizer by characters."""
        return f"{self.pattern}|{CHARACTER_PATTERN}" if self.pattern else CHARACTER_PATTERN


def split_pattern(facts: dict[str, Any]) -> str:
    """The regular expression by which a tokenizer.json cuts a text; none: an empty one."""
    pattern = (facts.get("pre_tokenizer") or {}).get("pattern") or {}
    return str(pattern.get("Regex", ""))


def byte_letters() -> dict[int, str]:
    """The letter that stands for each byte in byte-level pieces: GPT-2's table, printable bytes as themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(0x100 + len(table) - len(printable))
    return table


def encodable(texts: Iterable[str]) -> Iterator[str]:
    """The texts, each of which must be possible in UTF-8."""
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(
                "the text has a lone surrogate (U+{code:04X}) at character {start}, "
                "which is half a character and cannot be encoded; remove it",
                ord(text[error.start]),
                error.start + 1,
            ) from None
        except AttributeError:
            raise UserError("a text is a str, not {kind}", type(text).__name__) from None
        yield text


def not_empty(texts: Iterable[str]) -> Iterator[str]:
    """The texts, of which not all may be blank."""
    empty = True
    for text in texts:
        empty = empty and not text.strip()
        yield text
    if empty:
        raise UserError("there is no text to train a tokenizer on: all of it is empty or blank")


def word_spans(splitter: Any, text: str) -> list[tuple[int, int]]:
    """Where each word begins and ends; Chinese is segmented."""
    spans: list[tuple[int, int]] = []
    for piece, (start, end) in splitter.pre_tokenize_str(text):
        if not is_han(piece[0]):
            spans.append((start, end))
            continue
        for word in segment_chinese(piece):
            spans.append((start, start + len(word)))
            start += len(word)
    return spans


def begun(text: str) -> str:
    """The text with the blank that its first word would have inside one, so that the word is the same piece in both places.

    >>> begun("the cat"), begun("我喜欢你")
    (' the cat', '我喜欢你')
    """
    return text if not text or is_unspaced(text[0]) else f" {text}"


def without_blank(piece: str) -> str:
    """The word of a piece, by which pieces that are equally frequent are ordered."""
    return piece[1:] if len(piece) > 1 and piece[0] == " " else piece


def listed(counts: Counter[str], vocab_size: int) -> models.WordLevel:
    """The most frequent pieces, each an id of its own."""
    order = sorted(counts, key=lambda piece: (-counts[piece], without_blank(piece), piece))
    vocab = {piece: index for index, piece in enumerate((*CONTROL_NAMES, *order[: vocab_size - CONTROL]))}
    return models.WordLevel(vocab, unk_token=CONTROL_NAMES[UNK])


def pipeline(kind: str, model: Any, spelling: Spelling) -> tokenizers.Tokenizer:
    """A tokenizer of the library as one of this kind is made: how it normalizes a text, cuts it, and joins the pieces."""
    library = tokenizers.Tokenizer(model)
    steps: list[Any] = [normalizers.NFD()] if spelling.decompose else []
    steps += [normalizers.Lowercase()] if spelling.lowercase else []
    match kind:
        case "char":
            library.pre_tokenizer = pre_tokenizers.Split(Regex(spelling.split), "isolated")
            library.decoder = decoders.Fuse()
        case "word" if spelling.keeps_blanks:
            library.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE_PATTERN), "isolated")
            library.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
            steps.append(normalizers.Replace(Regex(BEGIN_PATTERN), " "))
        case "word":
            library.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_PATTERN), "removed", invert=True)
        case _:
            library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            library.decoder = decoders.ByteLevel()
    if steps:
        library.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
    return library


def train_char(texts: Iterable[str], vocab_size: int, spelling: Spelling) -> tokenizers.Tokenizer:
    """A vocabulary of the most frequent characters."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(spelling.characters(spelling.normalized(text)))
    return pipeline("char", listed(counts, vocab_size), spelling)


def train_word(texts: Iterable[str], vocab_size: int, spelling: Spelling) -> tokenizers.Tokenizer:
    """A vocabulary of the most frequent words."""
    splitter = pre_tokenizers.Split(Regex(PIECE_PATTERN), "isolated")
    counts: Counter[str] = Counter()
    for text in map(begun, texts):
        counts.update(spelling.normalized(text[start:end]) for start, end in word_spans(splitter, text))
    return pipeline("word", listed(counts, vocab_size), spelling)


def train_bpe(texts: Iterable[str], vocab_size: int, spelling: Spelling) -> tokenizers.Tokenizer:
    """Byte-pair encoding (Sennrich et al. 2016) on bytes, so that no text is unknown."""
    library = pipeline("bpe", models.BPE(), spelling)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - CONTROL,
        min_frequency=2,
        initial_alphabet=sorted(byte_letters().values()),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    facts = json.loads(library.to_str())
    learned = facts["model"]["vocab"]
    facts["model"]["vocab"] = {name: index for index, name in enumerate(CONTROL_NAMES)} | {
        piece: index + CONTROL for piece, index in learned.items()
    }
    return tokenizers.Tokenizer.from_str(json.dumps(facts))


def train_unigram(texts: Iterable[str], vocab_size: int, spelling: Spelling) -> tokenizers.Tokenizer:
    """A unigram model of pieces (Kudo 2018) on bytes."""
    alphabet = sorted(byte_letters().values())
    library = pipeline("unigram", models.Unigram(), spelling)
    trainer = trainers.UnigramTrainer(vocab_size=vocab_size - CONTROL, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(texts, trainer)
    facts = json.loads(library.to_str())
    score_of = {piece: round(score, 6) for piece, score in facts["model"]["vocab"]}
    lowest = min(score_of.values(), default=0.0)
    # The library gives each unseen letter the lowest score plus 0.0001 times its place in an order that is random.
    unseen_below = lowest + 0.0001 * len(alphabet)
    for letter in alphabet:
        if score_of.get(letter, lowest) <= unseen_below:
            score_of[letter] = lowest
    pieces = sorted(score_of.items(), key=lambda item: (-item[1], item[0]))
    facts["model"]["vocab"] = [(name, lowest) for name in CONTROL_NAMES] + pieces
    facts["model"]["unk_id"] = UNK  # never used, as every byte has a letter; the library asks for one
    return tokenizers.Tokenizer.from_str(json.dumps(facts))


@dataclass(frozen=True)
class TokenizerKind:
    """How a kind of tokenizer is learned from texts (at most so many ids, and how they are read), the library's model of it with
    nothing learned, and whether its pieces spell bytes."""

    train: Callable[[Iterable[str], int, Spelling], tokenizers.Tokenizer]
    untrained: Callable[[], Any]
    byte_level: bool = False


KINDS = {
    "char": TokenizerKind(train_char, lambda: listed(Counter(), CONTROL)),
    "word": TokenizerKind(train_word, lambda: listed(Counter(), CONTROL)),
    "bpe": TokenizerKind(train_bpe, models.BPE, byte_level=True),
    "unigram": TokenizerKind(train_unigram, models.Unigram, byte_level=True),
}
