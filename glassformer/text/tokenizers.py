"""The tokenizers of a run: one for both sides of a pair, or one for each, and the labels where a class is learned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from glassformer.files.durable import write_atomically
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers and labels of a run: what turns its text into numbers and back."""

    target: Tokenizer
    source: Tokenizer  # the same one, unless the two sides have vocabularies of their own
    labels: list[str]

    @property
    def shared(self) -> bool:
        return self.source is self.target

    def save(self, folder: Path) -> None:
        if self.shared:
            self.target.save(folder / "tokenizer.json")
        else:
            self.source.save(folder / "tokenizer.source.json")
            self.target.save(folder / "tokenizer.target.json")
        if self.labels:
            write_atomically(folder / "labels.json", (json.dumps(self.labels, ensure_ascii=False) + "\n").encode())

    @staticmethod
    def load(folder: Path) -> Tokenizers:
        labels_file = folder / "labels.json"
        labels = json.loads(labels_file.read_text(encoding="utf-8")) if labels_file.exists() else []
        if (folder / "tokenizer.json").exists():
            tokenizer = Tokenizer.load(folder / "tokenizer.json")
            return Tokenizers(tokenizer, tokenizer, labels)
        return Tokenizers(
            Tokenizer.load(folder / "tokenizer.target.json"), Tokenizer.load(folder / "tokenizer.source.json"), labels
        )
