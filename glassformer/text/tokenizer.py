"""Text to ids and back: characters, words, byte-level BPE, unigram; on the `tokenizers` library.

Ids 0 to 4 are control ids: they steer the model and stand for no text. The library would register them as special tokens,
and then finds them in the text of a user: whoever types `</s>` ends the sentence. So they are no special tokens here. They
are plain entries of the model's vocabulary whose names hold a space, and no kind of tokenizer ever makes a piece with a
space at its end: byte-level pieces write a space as another letter, words begin with it, and a character is one character. The
file stays an ordinary tokenizer.json that the library loads, and what it loads cannot be talked into a control id either.

BPE and unigram work on bytes: any text comes back exactly, and nothing is unknown. The price is that a rare character is
spread over several ids. Char and word know what they saw in training; the rest is UNK. A word holds the blank before it, as a
byte-level piece does, and a text begins as if there were one, so that its first word is no other there than elsewhere.
(A tokenizer of words that was made before they held their blanks restores them by rule, as ever.)

Kind and lower-casing are not stored beside the model; they are read off it: what a file does is what it is. Training is
deterministic: ties are broken by the pieces themselves, and unigram scores are rounded, since the library sums them in an
order that changes from run to run.

The module does not know where BOS and EOS go, nor how long a text may be.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import tokenizers

from glassformer.errors import UserError
from glassformer.files.durable import write_atomically
from glassformer.files.structured import read_regular
from glassformer.text.bpe_dropout import BPEDropout
from glassformer.text.flat import Flat, Numbers, end_to_end
from glassformer.text.languages import join_words
from glassformer.text.vocabularies import (
    BOS,
    CONTROL,
    CONTROL_NAMES,
    EOS,
    KINDS,
    MASK,
    PAD,
    SMALLEST_BYTE_LEVEL,
    UNK,
    Kind,
    Spelling,
    begun,
    byte_letters,
    encodable,
    kind_of,
    not_empty,
    pipeline,
    word_spans,
)
from glassformer.text.words import WordEncoder

__all__ = [
    "BOS",
    "CONTROL",
    "CONTROL_NAMES",
    "EOS",
    "MASK",
    "PAD",
    "UNK",
    "Kind",
    "Tokenizer",
    "byte_letters",
    "encodable",
]

LARGEST_FILE = 256 << 20  # bytes of a tokenizer.json


def tokenizer_file(path: Path) -> bytes:
    """The content of a tokenizer's file."""
    try:
        return read_regular(path, LARGEST_FILE)
    except OSError as error:
        raise UserError("the tokenizer {path} cannot be read: {reason}", path, error.strerror) from None


class Tokenizer:
    """One vocabulary. Make one with `Tokenizer.train` or `Tokenizer.load`.

    >>> Tokenizer.train("word", ["the cat", "the dog"], 20)
    Tokenizer(word, 8 tokens)
    """

    before: tuple[int, ...] = ()
    """Ids that begin every text: none in a tokenizer of ours (see imported.py)."""
    ends: tuple[int, ...] = ()
    """Ids that end a text besides EOS; likewise."""
    never: tuple[int, ...] = ()
    """Ids of its own that are never written; likewise."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self.library = library
        facts = json.loads(library.to_str())
        self.kind: Kind | Literal["imported"] = kind_of(facts)
        self.spelling = Spelling.of(facts)
        self.vocab_size: int = library.get_vocab_size()
        self._id_of: dict[str, int] = library.get_vocab()
        names = [""] * self.vocab_size
        for name, index in self._id_of.items():
            names[index] = name
        self._text_of: list[str] = names
        self._bytes_of: list[bytes] = []
        self.byte_level = KINDS[self.kind].byte_level
        if self.byte_level:
            byte_of = {letter: byte for byte, letter in byte_letters().items()}
            self._bytes_of = [b""] * CONTROL + [bytes(byte_of[letter] for letter in name) for name in names[CONTROL:]]

    @property
    def lowercase(self) -> bool:
        """Whether all text is read in small letters."""
        return self.spelling.lowercase

    @property
    def composes(self) -> bool:
        """Whether letters and accents are written apart and put together, so that the next token may change the last letter."""
        return self.spelling.decompose

    @property
    def keeps_blanks(self) -> bool:
        """Whether words hold the blanks before them."""
        return self.kind == "word" and self.spelling.keeps_blanks

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind}, {self.vocab_size:,} tokens{', lower case' * self.lowercase})"

    @staticmethod
    def train(
        kind: str,
        texts: Iterable[str],
        vocab_size: int,
        lowercase: bool = False,
        decompose: bool = False,
        pattern: str = "",
    ) -> Tokenizer:
        """Learn at most `vocab_size` ids from texts, which are read once and never held all at once (see `Spelling`)."""
        if kind not in KINDS:
            raise UserError("there is no tokenizer of kind {kind!r}; choose one of {choices}", kind, ", ".join(KINDS))
        if KINDS[kind].byte_level and vocab_size < SMALLEST_BYTE_LEVEL:
            raise UserError(
                "a {kind} tokenizer needs a vocab_size of at least {smallest_byte_level} "
                "(256 bytes and {control} control ids), not {vocab_size}",
                kind,
                SMALLEST_BYTE_LEVEL,
                CONTROL,
                vocab_size,
            )
        if vocab_size <= CONTROL:
            raise UserError(
                "vocab_size must be above {control}, the number of control ids, not {vocab_size}", CONTROL, vocab_size
            )
        spelling = Spelling(lowercase, decompose, pattern)
        return Tokenizer(KINDS[kind].train(not_empty(encodable(texts)), vocab_size, spelling))

    @staticmethod
    def load(path: str | Path) -> Tokenizer:
        """From a file that `save` wrote; one that is damaged is refused in a sentence."""
        return Tokenizer.from_json(tokenizer_file(Path(path)), Path(path))

    @staticmethod
    def from_json(content: bytes, path: Path) -> Tokenizer:
        """From what `save` wrote, held to be one of ours; `path`: where it was read."""
        try:
            library = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
            facts = json.loads(library.to_str())
        except UnicodeDecodeError:
            raise UserError("{path} is not a tokenizer.json: it is not UTF-8 text", path) from None
        except Exception as error:  # the library raises bare Exception
            raise UserError("{path} is not a tokenizer.json: {error}", path, str(error)[:200]) from None
        vocab = library.get_vocab(with_added_tokens=False)
        ours = all(vocab.get(name) == index for index, name in enumerate(CONTROL_NAMES)) and not facts.get(
            "added_tokens"
        )
        if not ours or sorted(vocab.values()) != list(range(len(vocab))):
            raise UserError(
                "{path} was not made by glassformer: its first {control} ids are not the control ids, "
                "or it has special tokens, which the text of a user could spell; train a tokenizer instead",
                path,
                CONTROL,
            )
        if (part := strange_part(facts)) is not None:
            raise UserError(
                "{path} was not made by glassformer: its {part} would change texts on the way to the model; train a "
                "tokenizer instead",
                path,
                part,
            )
        return Tokenizer(library)

    def save(self, path: str | Path) -> None:
        """As an ordinary tokenizer.json. (The library leaves words uncut in Chinese: jieba is not part of the file.)"""
        write_atomically(Path(path), self.library.to_str(pretty=True).encode("utf-8"))

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone: no BOS, no EOS, and no control id but UNK, which char and word give for the unseen."""
        return self.encode_batch([text])[0]

    def encode_inside(self, text: str) -> list[int]:
        """The ids of a part of a text: without those that begin every one."""
        if self.keeps_blanks:
            return [self._id_of.get(word, UNK) for word, _span in self._read(next(encodable([text])))]
        return self.encode(text)[len(self.before) :]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, without control tokens."""
        texts = list(encodable(texts))
        look_up = self._id_of.get
        if self.kind == "char":
            read, cut = self.spelling.normalized, self.spelling.characters
            return [[look_up(piece, UNK) for piece in cut(read(text))] for text in texts]
        if self.kind == "word":
            # The library cuts and looks up as we do, many texts at a time, but for Chinese and for letters that change in number.
            last = "\x7f" if self.lowercase else "\u2e7f"
            plain = [max(text, default="") <= last for text in texts]
            easy = [text for text, is_plain in zip(texts, plain) if is_plain]
            quick = iter(self.library.encode_batch_fast(easy, add_special_tokens=False))
            found: list[list[int]] = []
            for text, is_plain in zip(texts, plain):
                ids = next(quick).ids if is_plain else None
                if ids is None or (self.keeps_blanks and UNK in ids):
                    ids = [look_up(word, UNK) for word, _span in self._read(self._begun(text))]
                found.append(ids)
            return found
        return [found.ids for found in self.library.encode_batch_fast(texts, add_special_tokens=False)]

    def corpus_encoder(self) -> Callable[[Sequence[str]], tuple[Flat, Numbers]]:
        """A function for much text: the ids of all texts end to end, and how many each has. It remembers the words it has cut,
        and so is faster than `encode_batch` where words come again."""
        if self.byte_level and self.kind in KINDS:
            return WordEncoder(self.library).encode_batch
        return lambda texts: end_to_end(self.encode_batch(texts))

    def bpe_dropout(self, dropout: float, seed: str) -> BPEDropout:
        """An encoder that leaves each merge out with this chance (BPE-dropout; Provilkov et al. 2020), for training alone."""
        if self.kind != "bpe":
            raise UserError("data.bpe_dropout needs a tokenizer of kind bpe, and this one is {kind}", self.kind)
        return BPEDropout(self.library, dropout, seed)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """For each id of `encode(text)` the characters it stands for; ids that share a character have equal spans."""
        if self.kind == "word":
            next(encodable([text]))
            whole = self._begun(text)
            before = len(whole) - len(text)
            return [(max(0, start - before), end - before) for _word, (start, end) in self._read(whole)]
        if self.kind == "char":
            next(encodable([text]))
            place, spans = 0, []
            for piece in self.spelling.characters(text):
                tokens = self.spelling.characters(self.spelling.normalized(piece))
                spans += [(place, place + len(piece))] * len(tokens)
                place += len(piece)
            return spans
        return list(self.library.encode(next(encodable([text])), add_special_tokens=False).offsets)

    def unknown_pieces(self, text: str) -> list[str]:
        """The pieces of a text that become the unknown token (characters or words never seen in training), each once, in the
        order of the text. A tokenizer that works on bytes has none.

        >>> Tokenizer.train("word", ["the cat"], 20).unknown_pieces("the dog and the cat and")
        ['dog', 'and']
        """
        ids = self.encode(text)
        if UNK not in ids:
            return []
        pieces = (text[start:end] for index, (start, end) in zip(ids, self.spans(text), strict=True) if index == UNK)
        return list(dict.fromkeys(piece.strip() or piece for piece in pieces if piece))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; control ids stand for no text."""
        real = ids if isinstance(ids, list) else list(map(int, ids))
        if min(real, default=CONTROL) < CONTROL:
            real = [i for i in real if i >= CONTROL]
        try:
            if self._bytes_of:
                text = b"".join(map(self._bytes_of.__getitem__, real)).decode("utf-8", errors="replace")
            else:
                text = self.join([self._text_of[i] for i in real])
        except IndexError:
            raise UserError(
                "there is no token {index}; the ids of this vocabulary end at {vocab_size}",
                max(real),
                self.vocab_size - 1,
            ) from None
        return unicodedata.normalize("NFC", text) if self.spelling.decompose else text

    def join(self, pieces: Sequence[str]) -> str:
        """The text of characters or words."""
        if self.kind == "char" or self.keeps_blanks:
            return "".join(pieces).removeprefix(" " if self.keeps_blanks else "")
        return join_words(pieces)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each id by itself, to be read: its text, `<eos>` for a control id, `\\xe5` for a byte of a cut character."""
        return [self._piece(int(i)) for i in ids]

    def _piece(self, index: int) -> str:
        if index < CONTROL:
            return CONTROL_NAMES[index].replace(" ", "")
        if index >= self.vocab_size:
            raise UserError(
                "there is no token {index}; the ids of this vocabulary end at {vocab_size}", index, self.vocab_size - 1
            )
        if self._bytes_of:
            return self._bytes_of[index].decode("utf-8", errors="backslashreplace")
        return self._text_of[index]

    def spells(self, index: int) -> bytes | None:
        """The bytes that an id stands for; None where ids are characters or words."""
        return self._bytes_of[index] if self._bytes_of else None

    @property
    def starts_with_space(self) -> bool:
        """Whether a word's own piece holds the space before it."""
        return self.byte_level or self.keeps_blanks

    @property
    def tokens_are_words(self) -> bool:
        """Whether each piece is a word and holds no blanks."""
        return self.kind == "word" and not self.keeps_blanks

    def words(self, text: str) -> list[str]:
        """The words of a text, known or not, as a vocabulary has them."""
        return [word for word, _span in self._cut(self._begun(text))]

    def _begun(self, text: str) -> str:
        return begun(text) if self.keeps_blanks else text

    def _cut(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        spans = word_spans(self.library.pre_tokenizer, text)
        return [(self.spelling.normalized(text[a:b]), (a, b)) for a, b in spans]

    def _read(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        """The words that have an id, and where each stands: a blank that the vocabulary does not have is passed over, since a
        blank too many, or a line end, is no unknown word."""
        return [(word, span) for word, span in self._cut(text) if word in self._id_of or not word.isspace()]


def strange_part(facts: dict[str, Any]) -> str | None:
    """The first part of a tokenizer.json that no tokenizer made here has (its own truncation, dropout, a post-processor,
    a pattern or a normalizer of somebody else's); None where all is as it should be."""
    kind = kind_of(facts)
    expected = json.loads(pipeline(kind, KINDS[kind].untrained(), Spelling.of(facts)).to_str())
    learned = {"vocab", "merges", "unk_id"}
    for part in expected.keys() | facts.keys():
        if part == "model":
            for name in (expected["model"].keys() | facts["model"].keys()) - learned:
                if expected["model"].get(name) != facts["model"].get(name):
                    return f"model.{name}"
        elif expected.get(part) != facts.get(part):
            return str(part)
    letters = {letter for name in names_of(facts)[CONTROL:] for letter in name}
    return "vocabulary" if KINDS[kind].byte_level and not letters <= set(byte_letters().values()) else None


def names_of(facts: dict[str, Any]) -> list[str]:
    """The pieces of a vocabulary in the order of their ids."""
    vocab = facts["model"]["vocab"]
    return [piece for piece, _ in vocab] if isinstance(vocab, list) else sorted(vocab, key=vocab.__getitem__)
