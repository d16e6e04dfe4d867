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

A pipeline is a small program: it may hold regular expressions that take time without end on a harmless text, replacements
that make a long text out of a short one, cuts that leave words out, or chance. Each is refused in a sentence; nothing is
compiled or allocated before it has been looked at.
"""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import tokenizers

from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import write_atomically
from glassformer.language import _
from glassformer.text.bpe_dropout import BPEDropout
from glassformer.text.languages import PIECE_PATTERN, WORD_PATTERN
from glassformer.text.tokenizer import CONTROL, CONTROL_NAMES, UNK, Tokenizer, byte_letters, encodable, tokenizer_file
from glassformer.text.vocabularies import Spelling

LARGEST_FILE = 48 << 20  # bytes of a tokenizer.json; the largest in use have about 35 million
MOST_BRACKETS, MOST_COMMAS = 1_000_000, 3_000_000  # so that reading it takes no more than about 200 MB
MOST_PIECES = 600_000  # the largest in wide use have about 262,000
MOST_NAMES = MOST_PIECES + 50_000  # pieces, and what else has a name
LONGEST_PIECE = 1000  # characters
LONGEST_REGEX = 3000
MOST_GROWTH = 64  # the most characters that one may become
MOST_REPEATS = 3  # unbounded repetitions in one alternative: each multiplies the work by the length of the text
OFTEN = 10  # repetitions of a group that may itself match in several ways

ESCAPE = re.compile(r"\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|x..|u....|.)", re.DOTALL)
INNERMOST_SET = re.compile(r"\[[^\[\]]*\]")
REPEAT = r"\?[+?]?|[*+][+?]?|\{\d*,?\d*\}[+?]?"
INNERMOST_GROUP = re.compile(rf"\((?:\?(?:[\w-]*:|<?[=!]|>|<\w+>|[\w-]+(?=\))))?([^()]*)\)({REPEAT})?")
UNBOUNDED = re.compile(r"\?[+?]?|(?P<endless>[*+]|\{\d*,\})[+?]?")


def check_size(content: bytes, where: str) -> None:
    """Refuses a file that is too large, or that would need far more memory than it has bytes."""
    if len(content) > LARGEST_FILE:
        raise UserError(
            "{where} has {n_content:,} bytes; a tokenizer has at most {largest_file:,}",
            where,
            len(content),
            LARGEST_FILE,
        )
    brackets, commas, names = content.count(b"[") + content.count(b"{"), content.count(b","), content.count(b'":')
    if brackets > MOST_BRACKETS or commas > MOST_COMMAS or names > MOST_NAMES:
        raise UserError("{where} has more parts than any tokenizer has, and is not read", where)


def n_unbounded(pattern: str) -> int:
    """The number of unbounded repetitions in a pattern without groups, of the alternative that has most of them."""
    return max(sum(match["endless"] is not None for match in UNBOUNDED.finditer(part)) for part in pattern.split("|"))


def repeats_without_end(pattern: str) -> str | None:
    """Why a pattern could take time without end, or None: a repetition of what itself repeats, is optional or has
    alternatives; too many repetitions in a row; a reference back.

    >>> repeats_without_end(r" ?\\p{L}+| ?[^\\s\\p{L}]+|\\s+(?!\\S)|\\s+")
    >>> repeats_without_end("(a+)+b")
    'a repetition of what itself repeats'
    """
    if any(escape[1] in "123456789kg" for escape in ESCAPE.findall(pattern)):
        return _("a reference back to what was matched")
    plain = ESCAPE.sub("x", pattern)
    while INNERMOST_SET.search(plain):
        plain = INNERMOST_SET.sub("x", plain)
    while group := INNERMOST_GROUP.search(plain):
        inside, repeat = group[1], group[2] or ""
        is_loose = re.search(r"[*+?{|]", inside) is not None  # may it match in several ways?
        times = [int(number) for number in re.findall(r"\d+", repeat)]
        is_endless = n_unbounded(repeat) > 0
        if is_loose and (is_endless or max(times, default=0) > OFTEN):
            return _("a repetition of what itself repeats")
        worst = max(inside.split("|"), key=n_unbounded)
        plain = plain[: group.start()] + worst + (repeat or "?" * is_loose) + plain[group.end() :]
    if left := re.search(r"[][()]", plain):
        raise ValueError(f"a {left[0]} by itself")
    if n_unbounded(plain) > MOST_REPEATS:
        return _("more than {most_repeats} repetitions one after the other", MOST_REPEATS)
    return None


def check_regex(pattern: Any, where: str) -> None:
    """Refuses a regular expression that is none, or too long, or could take time without end. (Words as we cut them repeat
    what repeats, but begin each time with another letter.)"""
    if pattern in (WORD_PATTERN, PIECE_PATTERN):
        return
    if not isinstance(pattern, str) or not pattern or len(pattern) > LONGEST_REGEX:
        raise UserError(
            "{where} has a pattern that is no text of at most {longest_regex:,} characters", where, LONGEST_REGEX
        )
    try:
        why = repeats_without_end(pattern)
    except ValueError as error:
        raise UserError(
            "{where} has a pattern that cannot be read ({error}): {pattern!r}", where, error, pattern[:80]
        ) from None
    if why is not None:
        raise UserError(
            "{where} has a pattern that could take time without end, and is not used: {pattern!r} has {why}",
            where,
            pattern[:80],
            why,
        )


def steps_of(part: Any) -> Iterator[dict[str, Any]]:
    """Every step of a normalizer, pre-tokenizer or decoder, however they are nested."""
    if isinstance(part, dict):
        yield part
        for name in ("normalizers", "pretokenizers", "decoders", "processors"):
            inner = part.get(name)
            for step in inner if isinstance(inner, list) else ():
                yield from steps_of(step)


def check_steps(facts: dict[str, Any], where: str) -> None:
    """Patterns that end, and texts that stay about as long as they were."""
    growth = 1.0
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        steps = list(steps_of(facts.get(name)))
        if len(steps) > 64:
            raise UserError(
                "{where}: its {name} has {n_steps} steps, and no tokenizer needs more than 64", where, name, len(steps)
            )
        for step in steps:
            pattern, content = step.get("pattern"), step.get("content", "")
            if isinstance(pattern, dict) and "Regex" in pattern:
                check_regex(pattern["Regex"], where)
            elif isinstance(pattern, dict) and not pattern.get("String"):
                raise UserError("{where}: its {name} replaces an empty text, which never ends", where, name)
            if name == "normalizer" and step.get("type") in ("Replace", "Prepend"):
                growth *= max(1, len(str(content or step.get("prepend", ""))))
    if growth > MOST_GROWTH:
        raise UserError(
            "{where}: its normalizer could make {growth:,.0f} characters of one; at most {most_growth} are taken",
            where,
            growth,
            MOST_GROWTH,
        )


@functools.cache
def pipeline_schema() -> Any:
    """What is looked at of a tokenizer.json: a vocabulary of a known kind of model, its merges, and added tokens."""
    from msgspec import Meta, defstruct

    piece = Annotated[str, Meta(max_length=LONGEST_PIECE)]
    number = Annotated[int, Meta(ge=0, lt=MOST_PIECES)]
    score = Annotated[float, Meta(gt=-1e30, lt=1e30)]
    vocabulary = Annotated[dict[piece, number], Meta(min_length=1, max_length=MOST_PIECES)]  # type: ignore[valid-type]
    scored = Annotated[list[tuple[piece, score]], Meta(min_length=1, max_length=MOST_PIECES)]  # type: ignore[valid-type]
    fields: dict[str, list[Any]] = {
        "BPE": [("vocab", vocabulary), ("merges", list[str | tuple[str, str]] | None, None)],
        "Unigram": [("vocab", scored)],
        "WordPiece": [("vocab", vocabulary)],
        "WordLevel": [("vocab", vocabulary)],
    }
    models: list[Any] = [defstruct(name, of_kind, tag_field="type", tag=name) for name, of_kind in fields.items()]
    content = Annotated[str, Meta(min_length=1, max_length=LONGEST_PIECE)]
    added = defstruct("AddedToken", [("id", number), ("content", content)])
    added_tokens = Annotated[list[added], Meta(max_length=MOST_PIECES)] | None  # type: ignore[valid-type]
    return defstruct(
        "Pipeline", [("model", functools.reduce(operator.or_, models)), ("added_tokens", added_tokens, None)]
    )


def check_pipeline(facts: Any, where: str) -> None:
    """Refuses, in a sentence, a tokenizer.json that does harm or makes no sense."""
    structured.convert(facts, pipeline_schema(), where)
    model = facts["model"]
    if model.get("dropout"):
        raise UserError("{where} leaves merges out at random (model.dropout); take it out of the file first", where)
    if model["type"] != "Unigram" and len(set(model["vocab"].values())) < len(model["vocab"]):
        raise UserError("{where} gives one number to two pieces", where)
    check_steps(facts, where)


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
        self.library, self.kind, self.spelling = library, "imported", Spelling()
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
        """A tokenizer file as a JSON-serialisable dict: the library's tokenizer and what we note beside it."""
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
    content = tokenizer_file(path)
    if not content.startswith(b'{"imported"'):
        return Tokenizer.from_json(content, path)
    try:
        check_size(content, str(path))
        return ImportedTokenizer.from_envelope(json.loads(content), str(path))
    except (ValueError, RecursionError) as error:
        raise (
            error if isinstance(error, UserError) else UserError("{path} cannot be read: {reason}", path, error)
        ) from None
