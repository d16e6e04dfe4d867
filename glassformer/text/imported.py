"""A tokenizer that came with somebody else's model: its own pipeline (normalizer, cuts, merges, decoder) as it is, its pieces
in our order.

The file in a run holds a whole tokenizer.json of the `tokenizers` library inside an envelope:

    {"imported": 1, "size": 32000, "before": [], "silent": [], "ends": [], "never": [], "tokenizer": {...}}

Ids 0 to 4 are our control ids, as everywhere; what the foreign model called its end of text, its padding and so on stands
there under our names, which no text can spell. `size` counts the ids the model knows; the pipeline may find pieces beyond
them (Marian's SentencePiece has some that its vocabulary lacks), and these are UNK. `before` are ids that begin every text,
such as the name of a language in M2M100's models; `silent` are ids that stand for no text, such as the marks of a chat;
`ends` are those that end a text as EOS does (a chat of Llama 3 or Qwen has two or three) and `never` those that must not be
written, by the model's own generation_config.json (the last two are left out where there are none).
That of a GPT has one more, `foreign`: what it was before (see formats/huggingface/vocabulary.py), for the day it goes back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from glassformer.errors import UserError
from glassformer.files.durable import write_atomically
from glassformer.files.structured import read_regular
from glassformer.text.bpe_dropout import BPEDropout
from glassformer.text.pipeline_checks import check_pipeline, check_size, steps_of
from glassformer.text.tokenizer import CONTROL, CONTROL_NAMES, UNK, Tokenizer, byte_letters, encodable
from glassformer.text.tokenizer import LARGEST_FILE as LARGEST_OWN

BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
PROBE = "The cat sat. 你好, naïve café 3.14\n  ¿qué? 🙂"
"""A pipeline that cannot read this is none."""


def from_facts(facts: Any, where: str) -> tokenizers.Tokenizer:
    """The library's tokenizer from a tokenizer.json that was looked at."""
    check_pipeline(facts, where)
    try:
        library = tokenizers.Tokenizer.from_str(json.dumps(facts))
        library.decode(library.encode(PROBE, add_special_tokens=False).ids[:64])
    except BaseException as error:  # the library panics with what is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise UserError("{where} is not a tokenizer that can be used: {error}", where, str(error)[:200]) from None
    return library


class ImportedTokenizer(Tokenizer):
    """A foreign tokenizer with our ids. Made by `glassformer import`; in use it is like any other."""

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        size: int,
        before: Sequence[int] = (),
        silent: Iterable[int] = (),
        foreign: dict[str, Any] | None = None,
        ends: Sequence[int] = (),
        never: Sequence[int] = (),
    ) -> None:
        self.foreign, self.ends, self.never = foreign, tuple(ends), tuple(never)
        self.library, self.kind, self.lowercase, self.keeps_blanks = library, "imported", False, False
        self.vocab_size, self.before, self.silent = size, tuple(before), frozenset(silent)
        names = [library.id_to_token(i) or "" for i in range(size)]
        self._id_of = {name: i for i, name in enumerate(names)}
        self._text_of = names
        facts = json.loads(library.to_str())
        kinds = {step.get("type") for part in ("pre_tokenizer", "decoder") for step in steps_of(facts.get(part))}
        self.byte_level = "ByteLevel" in kinds
        self.metaspace = "Metaspace" in kinds
        self.word_pieces = "WordPiece" in kinds or facts["model"]["type"] == "WordPiece"
        self.prefix = facts["model"].get("continuing_subword_prefix") or "##"
        self._bytes_of = [b""] * CONTROL + [self._spelled(name) for name in names[CONTROL:]]

    def _spelled(self, name: str) -> bytes:
        """The bytes that a piece stands for, its space before it."""
        if self.byte_level:
            byte_of = LETTERS
            if all(letter in byte_of for letter in name):
                return bytes(byte_of[letter] for letter in name)
        elif self.word_pieces:
            inside = name.startswith(self.prefix)
            return (name.removeprefix(self.prefix) if inside else " " + name).encode("utf-8", "replace")
        elif found := BYTE.fullmatch(name):
            return bytes.fromhex(found[1])
        # A piece that no text can be cut into has a space before its name (see formats/huggingface/pipelines.py).
        own = name.removeprefix(" ") if self.metaspace else name
        return own.replace("▁", " ").encode("utf-8", "replace")

    @property
    def starts_with_space(self) -> bool:
        """Whether a word's own piece holds the space before it."""
        return self.byte_level

    @staticmethod
    def from_envelope(facts: Any, where: str) -> ImportedTokenizer:
        """What a file holds, checked."""
        size = facts.get("size")
        before, silent, ends, never = (facts.get(name, []) for name in ("before", "silent", "ends", "never"))
        library = from_facts(facts.get("tokenizer"), where)
        known = library.get_vocab_size()
        if type(size) is not int or not CONTROL <= size <= known:
            raise UserError(
                "{where} cannot be used: it says that it has {size!r:.40} ids, and its pieces are {known:,}",
                where,
                size,
                known,
            )
        for ids in (before, silent, ends, never):
            if not isinstance(ids, list) or not all(type(i) is int and CONTROL <= i < size for i in ids):
                raise UserError(
                    "{where} cannot be used: what begins or ends its texts, or is silent in them, are no ids of its own",
                    where,
                )
        if [library.id_to_token(i) for i in range(CONTROL)] != list(CONTROL_NAMES):
            raise UserError("{where} cannot be used: its first {control} ids are not the control ids", where, CONTROL)
        foreign = facts.get("foreign")
        if foreign is not None and not isinstance(foreign, dict):
            raise UserError("{where} cannot be used: what it says of the model it came from is no object", where)
        return ImportedTokenizer(library, size, before, silent, foreign, ends, never)

    def envelope(self) -> dict[str, Any]:
        """All that a tokenizer file holds, as JSON has it: the library's tokenizer and what we note beside it."""
        facts = json.loads(self.library.to_str())
        rest = {"size": self.vocab_size, "before": list(self.before), "silent": sorted(self.silent)}
        rest |= {name: list(ids) for name, ids in (("ends", self.ends), ("never", self.never)) if ids}
        rest |= {} if self.foreign is None else {"foreign": self.foreign}
        return {"imported": 1, **rest, "tokenizer": facts}

    def save(self, path: str | Path) -> None:
        """Writes the tokenizer to a file, from which `load_tokenizer` reads it."""
        write_atomically(Path(path), json.dumps(self.envelope(), ensure_ascii=False).encode("utf-8"))

    def _real(self, ids: Iterable[int]) -> list[int]:
        """No text spells a control id, and what the model does not know is UNK."""
        return [*self.before, *(i if CONTROL <= i < self.vocab_size else UNK for i in ids)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, without control tokens; with the ids that begin every text."""
        texts = list(encodable(texts))
        try:
            return [self._real(e.ids) for e in self.library.encode_batch_fast(texts, add_special_tokens=False)]
        except BaseException as error:
            raise as_told(error) from None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """For each id of `encode(text)` the characters it stands for."""
        found = self.library.encode(next(encodable([text])), add_special_tokens=False).offsets
        return [(0, 0)] * len(self.before) + list(found)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids, by the pipeline's own decoder; control ids and silent ones stand for no text."""
        real = [i for i in map(int, ids) if i >= CONTROL and i not in self.silent]
        if self.metaspace and not self.byte_level:
            return b"".join(self._bytes_of[i] for i in real).decode("utf-8", errors="replace").removeprefix(" ")
        try:
            return self.library.decode(real, skip_special_tokens=False) if real else ""
        except BaseException as error:
            raise as_told(error) from None

    def bpe_dropout(self, dropout: float, seed: str) -> BPEDropout:
        """Refused: merges can be left out of a tokenizer of ours alone."""
        raise UserError("data.bpe_dropout needs a tokenizer learned here, and this run's came with an imported model")


LETTERS = {letter: byte for byte, letter in byte_letters().items()}


def as_told(error: BaseException) -> BaseException:
    """What a foreign pipeline breaks down with is a sentence; what is asked of the process stays what it is."""
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError | UserError):
        return error
    return UserError("the model's own tokenizer cannot read this text: {error}", str(error)[:200])


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer in a file of a run: one of ours, or an imported one."""
    path = Path(path)
    try:
        content = read_regular(path, LARGEST_OWN)
    except OSError as error:
        raise UserError("the tokenizer {path} cannot be read: {reason}", path, error.strerror) from None
    if not content.startswith(b'{"imported"'):
        return Tokenizer.load(path)
    try:
        check_size(content, str(path))
        return ImportedTokenizer.from_envelope(json.loads(content), str(path))
    except (ValueError, RecursionError) as error:
        raise (
            error if isinstance(error, UserError) else UserError("{path} cannot be read: {reason}", path, error)
        ) from None
