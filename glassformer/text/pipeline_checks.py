"""What a tokenizer.json of somebody else's may contain before a library is asked to run it.

A pipeline is a small program: it may hold regular expressions that take time without end on a harmless text, replacements
that make a long text out of a short one, cuts that leave words out, or chance. Each is refused in a sentence; nothing is
compiled or allocated before it has been looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from glassformer.errors import UserError
from glassformer.language import _
from glassformer.text.languages import PIECE_PATTERN, WORD_PATTERN

LARGEST_FILE = 48 << 20  # bytes of a tokenizer.json; the largest in use have about 35 million
MOST_BRACKETS, MOST_COMMAS = 1_000_000, 3_000_000  # so that reading it takes no more than about 200 MB
MOST_PIECES = 600_000  # the largest in wide use have about 262,000
MOST_NAMES = MOST_PIECES + 50_000  # pieces, and what else has a name
LONGEST_PIECE = 1000  # characters
LONGEST_REGEX = 3000
MOST_GROWTH = 64  # a character may become at most so many
MOST_REPEATS = 3  # unbounded repetitions in one alternative: each multiplies the work by the length of the text
MODELS = ("BPE", "Unigram", "WordPiece", "WordLevel")

ATOM = re.compile(r"\\[pP]\{[^}]*\}|\\x\{[^}]*\}|\\x..|\\u....|\\.|.", re.DOTALL)
REPEAT = re.compile(r"\*|\+|\{(\d*)(,?)(\d*)\}")


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


def class_end(pattern: str, start: int) -> int:
    """Where a set of characters `[...]` ends; sets may lie in one another."""
    depth, place = 0, start
    while place < len(pattern):
        if pattern[place] == "\\":
            place += 2
            continue
        depth += {"[": 1, "]": -1}.get(pattern[place], 0)
        place += 1
        if depth == 0:
            return place
    raise ValueError("a set that does not end")


def repeats_without_end(pattern: str) -> str | None:
    """Why a pattern could take time without end, or None: a repetition of what itself repeats, is optional or has
    alternatives; too many repetitions in a row; a reference back.

    >>> repeats_without_end(r" ?\\p{L}+| ?[^\\s\\p{L}]+|\\s+(?!\\S)|\\s+")
    >>> repeats_without_end("(a+)+b")
    'a repetition of what itself repeats'
    """
    loose = [False]  # for each open group: does it repeat, offer a choice, or hold something that does?
    repeats = [0]  # for each open group: unbounded repetitions in the alternative at hand
    place, last_loose = 0, False
    while place < len(pattern):
        letter = pattern[place]
        if letter == "(":
            loose.append(False)
            repeats.append(0)
            place += 1
            continue
        if letter == "|":
            loose[-1], repeats[-1] = True, 0
            place += 1
            continue
        if letter == ")":
            if len(loose) == 1:
                raise ValueError("a bracket that was not opened")
            last_loose = loose.pop()
            inside = repeats.pop()
            repeats[-1] += inside
            loose[-1] = loose[-1] or last_loose
            place += 1
        elif letter == "[":
            place, last_loose = class_end(pattern, place), False
        else:
            found = ATOM.match(pattern, place)
            assert found is not None
            if re.match(r"\\[1-9kg]", found[0]):
                return _("a reference back to what was matched")
            place, last_loose = found.end(), False
        if place < len(pattern) and pattern[place] == "?":
            loose[-1], place = True, place + 1
            continue
        repeat = REPEAT.match(pattern, place)
        if repeat is None:
            continue
        place = repeat.end()
        unbounded = repeat[0] in "*+" or (repeat[2] == "," and not repeat[3])
        often = unbounded or int(repeat[3] or repeat[1] or 0) > 10
        if often and last_loose:
            return _("a repetition of what itself repeats")
        loose[-1] = True
        repeats[-1] += unbounded
        if repeats[-1] > MOST_REPEATS:
            return _("more than {most_repeats} repetitions one after the other", MOST_REPEATS)
        if pattern[place : place + 1] in ("?", "+"):  # lazy, possessive
            place += 1
    if len(loose) != 1:
        raise ValueError("a bracket that was not closed")
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
    except (ValueError, IndexError) as error:
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


def check_pieces(model: Any, where: str) -> None:
    """A model of a known kind whose vocabulary is one: names to numbers, or names with scores."""
    if not isinstance(model, dict) or model.get("type") not in MODELS:
        kind = model.get("type") if isinstance(model, dict) else None
        raise UserError(
            "{where} has a model of kind {kind}; there are {models}", where, str(kind)[:40], ", ".join(MODELS)
        )
    if model.get("dropout"):
        raise UserError("{where} leaves merges out at random (model.dropout); take it out of the file first", where)
    merges = model.get("merges") or []
    if not isinstance(merges, list) or not all(is_merge(merge) for merge in merges):
        raise UserError("{where} has merges that are no list of pairs of pieces", where)
    vocab: Any = model.get("vocab")
    if model["type"] == "Unigram":
        good = isinstance(vocab, list) and all(
            isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and is_number(entry[1])
            for entry in vocab
        )
        names = [entry[0] for entry in vocab] if good else []
    else:
        good = isinstance(vocab, dict) and all(type(i) is int and 0 <= i < MOST_PIECES for i in vocab.values())
        names = list(vocab) if good else []
    if not good or not 0 < len(names) <= MOST_PIECES:
        raise UserError(
            "{where} has no vocabulary of 1 to {most_pieces:,} pieces with their numbers", where, MOST_PIECES
        )
    if model["type"] != "Unigram" and len(set(vocab.values())) < len(names):
        raise UserError("{where} gives one number to two pieces", where)
    if max(map(len, names)) > LONGEST_PIECE:
        raise UserError("{where} has a piece of more than {longest_piece:,} characters", where, LONGEST_PIECE)


def is_merge(merge: Any) -> bool:
    """Two pieces, as a list or in a text with a space between."""
    if isinstance(merge, list):
        return len(merge) == 2 and all(isinstance(part, str) for part in merge)
    return isinstance(merge, str)


def is_number(value: Any) -> bool:
    """A finite number, as a score is one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def check_pipeline(facts: Any, where: str) -> None:
    """Refuses, in a sentence, a tokenizer.json that does harm or makes no sense."""
    if not isinstance(facts, dict):
        raise UserError("{where} is not a tokenizer.json: it holds no object", where)
    check_pieces(facts.get("model"), where)
    check_steps(facts, where)
    added = facts.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > MOST_PIECES or not all(is_added(token) for token in added):
        raise UserError("{where} has added tokens that are no list of texts with their numbers", where)


def is_added(token: Any) -> bool:
    """Is this what a tokenizer.json says of an added token?"""
    return (
        isinstance(token, dict)
        and type(token.get("id")) is int
        and 0 <= token["id"] < MOST_PIECES
        and isinstance(token.get("content"), str)
        and 0 < len(token["content"]) <= LONGEST_PIECE
    )
