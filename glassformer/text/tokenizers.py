"""The tokenizers of a run: one for both sides of a pair, or one for each, and the labels where a class is learned."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import write_atomically
from glassformer.text.imported import load_tokenizer
from glassformer.text.tokenizer import Tokenizer


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
