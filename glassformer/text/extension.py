"""A trained tokenizer with more tokens: those of the old data stay what they are, and what is new in the new data gets
tokens of its own.

    char, word   the most frequent characters or words that were unknown
    bpe          training goes on where it stopped: the most frequent pair of pieces becomes a piece, behind all others

A new token knows of which old ones it is made (`parts`), so that its row can begin as their mean.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import tokenizers

from glassformer.errors import UserError
from glassformer.text.languages import lowercase
from glassformer.text.tokenizer import Tokenizer

LEAST = 2  # a pair that comes once is no piece


@dataclass(frozen=True)
class Extended:
    """The larger tokenizer, and for each new token the ids it is made of; none where it is of a kind of its own."""

    tokenizer: Tokenizer
    parts: list[tuple[int, ...]]


def with_names(tokenizer: Tokenizer, names: list[str], merges: list[tuple[str, str]] | None = None) -> Tokenizer:
    """The tokenizer with these pieces behind its own."""
    facts = json.loads(tokenizer.library.to_str())
    facts["model"]["vocab"] |= {name: tokenizer.vocab_size + i for i, name in enumerate(names)}
    if merges:
        facts["model"]["merges"] += [list(pair) for pair in merges]
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(facts)))


def new_listed(tokenizer: Tokenizer, texts: Iterable[str], most: int) -> Extended:
    """Characters or words that were unknown, the most frequent first."""
    counts: Counter[str] = Counter()
    known = tokenizer.library.get_vocab()
    for text in texts:
        text = lowercase(text) if tokenizer.lowercase else text
        pieces = text if tokenizer.kind == "char" else tokenizer.words(text)
        counts.update(piece for piece in pieces if piece not in known)
    names = sorted(counts, key=lambda piece: (-counts[piece], piece))[:most]
    return Extended(with_names(tokenizer, names), [()] * len(names))


def joined(word: list[str], pair: tuple[str, str]) -> list[str]:
    """The word with every such pair of neighbours as one piece."""
    out: list[str] = []
    for piece in word:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return out


def more_merges(tokenizer: Tokenizer, texts: Iterable[str], most: int) -> Extended:
    """Byte-pair encoding that goes on: the pieces a text falls into now are what is merged."""
    library = tokenizer.library
    counts: Counter[str] = Counter()
    for text in texts:
        text = library.normalizer.normalize_str(text) if library.normalizer is not None else text
        counts.update(letters for letters, _ in library.pre_tokenizer.pre_tokenize_str(text))
    words = [[token.value for token in library.model.tokenize(word)] for word in counts]
    times = list(counts.values())
    ids = dict(library.get_vocab())
    pairs: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def count(number: int, sign: int) -> None:
        word = words[number]
        for pair in pairwise(word):
            pairs[pair] += sign * times[number]
            (where[pair].add if sign > 0 else where[pair].discard)(number)

    for number in range(len(words)):
        count(number, 1)
    names: list[str] = []
    merges: list[tuple[str, str]] = []
    parts: list[tuple[int, ...]] = []
    while len(names) < most and pairs:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if pairs[best] < LEAST:
            break
        name = best[0] + best[1]
        if name in ids:  # spelled otherwise already; a second way to it would change old texts
            del pairs[best]
            continue
        merges.append(best)
        parts.append((ids[best[0]], ids[best[1]]))
        ids[name] = len(ids)
        names.append(name)
        for number in sorted(where[best]):
            count(number, -1)
            words[number] = joined(words[number], best)
            count(number, 1)
        pairs = +pairs  # without those that are gone
    return Extended(with_names(tokenizer, names, merges), parts)


def extend(tokenizer: Tokenizer, texts: Iterable[str], most: int) -> Extended:
    """At most so many new tokens, learned from texts."""
    match tokenizer.kind:
        case "char" | "word":
            return new_listed(tokenizer, texts, most)
        case "bpe":
            return more_merges(tokenizer, texts, most)
    raise UserError(
        "data.extend_vocabulary adds to a tokenizer of kind char, word or bpe that was learned here, and this one is "
        "{tokenizer_kind}; leave it out, and new words are spelled by the pieces there are",
        tokenizer.kind,
    )
