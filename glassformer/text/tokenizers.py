"""The tokenizers of a run: one for both sides of a pair, or one for each, and the labels where a class is learned.

`extend` adds tokens to a trained one of characters or words: those of the old data stay what they are, and the most frequent that
were unknown in the new data get tokens of their own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import tokenizers

from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import write_atomically
from glassformer.text.imported import load_tokenizer
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers and labels of a run: what turns its text into numbers and back."""

    target: Tokenizer
    source: Tokenizer  # the same one, unless the two sides have vocabularies of their own
    labels: list[str]
    added: tuple[int, int] = field(
        default=(0, 0), compare=False, repr=False
    )  # new tokens of target and source, of a new run

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


def extend(tokenizer: Tokenizer, texts: Iterable[str], most: int) -> Tokenizer:
    """The tokenizer with at most `most` new tokens, learned from texts: characters or words that were unknown, the most frequent
    first."""
    if tokenizer.kind not in ("char", "word"):
        raise UserError(
            "data.extend_vocabulary adds to a tokenizer of kind char or word that was learned here, and this one is "
            "{tokenizer_kind}; leave it out, and new words are spelled by the pieces there are",
            tokenizer.kind,
        )
    counts: Counter[str] = Counter()
    known = tokenizer.library.get_vocab()
    for text in texts:
        if tokenizer.kind == "char":
            pieces = tokenizer.spelling.characters(tokenizer.spelling.normalized(text))
        else:
            pieces = tokenizer.words(text)
        counts.update(piece for piece in pieces if piece not in known)
    names = sorted(counts, key=lambda piece: (-counts[piece], piece))[:most]
    facts = json.loads(tokenizer.library.to_str())
    facts["model"]["vocab"] |= {name: tokenizer.vocab_size + i for i, name in enumerate(names)}
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(facts)))
