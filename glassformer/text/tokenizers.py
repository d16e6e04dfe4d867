"""The tokenizers of a run: one for both sides of a pair, or one for each, and the labels where a class is learned.

`extend` adds tokens to a trained one: those of the old data stay what they are, and what is new in the new data gets tokens of
its own. A new token knows of which old ones it is made (`parts`), so that its row can begin as their mean.

    char, word   the most frequent characters or words that were unknown
    bpe          training goes on where it stopped: the most frequent pair of pieces becomes a piece, behind all others
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import tokenizers

from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import write_atomically
from glassformer.text.imported import load_tokenizer
from glassformer.text.languages import lowercase
from glassformer.text.tokenizer import Tokenizer

LEAST = 2  # a pair that comes once is no piece


@dataclass(frozen=True)
class Extension:
    """The tokens that were added to a run's vocabularies: for each the ids of the old ones that it is made of."""

    target: list[tuple[int, ...]] = field(default_factory=list)
    source: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers and labels of a run: what turns its text into numbers and back."""

    target: Tokenizer
    source: Tokenizer  # the same one, unless the two sides have vocabularies of their own
    labels: list[str]
    added: Extension = field(default_factory=Extension, compare=False, repr=False)  # while a run is being made

    @property
    def shared(self) -> bool:
        """Whether source and target have one tokenizer."""
        return self.source is self.target

    def save(self, folder: Path) -> None:
        """Writes them (and the labels) into a run's folder."""
        if self.shared:
            self.target.save(folder / "tokenizer.json")
        else:
            self.source.save(folder / "tokenizer.source.json")
            self.target.save(folder / "tokenizer.target.json")
        if self.labels:
            write_atomically(folder / "labels.json", (json.dumps(self.labels, ensure_ascii=False) + "\n").encode())

    @staticmethod
    def load(folder: Path, listed: Collection[str] | None = None) -> Tokenizers:
        """The tokenizers and labels in a folder; with `listed`, those files alone and none that only lies there."""

        def is_there(name: str) -> bool:
            return (folder / name).exists() if listed is None else name in listed

        labels: list[str] = []
        if is_there("labels.json"):
            try:
                labels = structured.read(folder / "labels.json", list[str])
            except OSError as error:
                raise UserError("{path} cannot be read: {reason}", folder / "labels.json", error.strerror) from None
        if is_there("tokenizer.json") or not is_there("tokenizer.target.json"):
            tokenizer = load_tokenizer(folder / "tokenizer.json")
            return Tokenizers(tokenizer, tokenizer, labels)
        return Tokenizers(
            load_tokenizer(folder / "tokenizer.target.json"), load_tokenizer(folder / "tokenizer.source.json"), labels
        )


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
    """The tokenizer with at most `most` new tokens, learned from texts."""
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
