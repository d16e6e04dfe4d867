"""Text on disk, as examples: whatever the format, a split is something one can iterate over, again and again.

    pairs      (source, target)     TSV, two line-aligned files, JSONL, Parquet, Hugging Face datasets
    text       Document             a file, a folder of files, a line each, JSONL, Parquet, datasets
    classify   (text, label)        label TAB text, JSONL, Parquet, datasets
    tag        (tokens, tags)       token TAB tag with a blank line between sentences, JSONL, Parquet, datasets

Any text format may be gzipped. Everything streams: what is in memory is one line, or one piece of a long document, so a
corpus may be larger than the machine. A pair with an empty side teaches nothing and is passed over.

Splits that are not given are taken out of the training data, `val_fraction` each, always the same ones:
- pairs, classify, tag: by a hash of the source side, so that equal sentences never stand on both sides of a border, and
  the same lines are held out in both directions;
- text: val is the last part of a single file, or whole documents of many, by a hash; test has to be given.

What is wrong with a line is said with its file and number. Normally that ends the reading; the data doctor hands in a
`complain` of its own, reads on, and so sees with the very eyes of training. This module knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.files import Complain, Document, document_pieces, files_below, numbered_lines, refuse
from glassformer.data.origins import SPLITS, Origin, Split, given_origin
from glassformer.data.readers import READERS, Row
from glassformer.data.splits import end_part, held_out_files, split_of
from glassformer.errors import UserError
from glassformer.text.languages import lowercase


def read_text(config: DataConfig, origin: Origin, split: Split, carved: bool, complain: Complain) -> Iterator[Document]:
    """Files as documents; `carved` where train and val share them."""
    if origin.path.is_file():
        begin, end = 0, None
        if carved and config.val_fraction > 0:
            border = end_part(origin.path, config.val_fraction)
            begin, end = (0, border) if split == "train" else (border, None)
        if end != 0 and (split == "train" or not carved or config.val_fraction > 0):
            yield from document_pieces(origin.path, complain, begin, end)
        return
    files = files_below(origin.path)
    held_out = held_out_files(files, origin.path, config.val_fraction) if carved else set()
    for file in files:
        if not carved or (file in held_out) == (split == "val"):
            yield from document_pieces(file, complain)


def all_rows(config: DataConfig, split: Split, complain: Complain) -> Iterator[Row]:
    """Every row of the file a split is given by, for one who wants to see them as they are: no swap, nothing left out."""
    origin = given_origin(config, split)
    if origin is None:
        raise UserError(f"data.{split} is not set")
    if origin.format != "text":
        yield from READERS[config.task](config, origin, complain)
        return
    for file in [origin.path] if origin.path.is_file() else files_below(origin.path):
        for number, piece in enumerate(document_pieces(file, complain), 1):
            yield Row(piece, piece.text, file, number)


def has_empty_side(config: DataConfig, example: Any) -> bool:
    if config.task == "text":
        return False
    return not example[0] or not example[1]


@dataclass(frozen=True)
class Examples:
    """One split of the data; every `iter()` starts again at the first example."""

    config: DataConfig
    split: Split

    def __iter__(self) -> Iterator[Any]:
        config = self.config
        found = False
        for example in self.selected():
            if has_empty_side(config, example):
                continue
            found = True
            if config.lowercase:
                example = lowered(config.task, example)
            yield (example[1], example[0]) if config.swap and config.task == "pairs" else example
        if not found:
            raise UserError(self.why_empty())

    def selected(self) -> Iterator[Any]:
        """The examples of this split as they stand in the file."""
        config, split = self.config, self.split
        if config.builtin is not None:
            from glassformer.data.builtin import open_builtin

            yield from open_builtin(config, split)
            return
        missing = [name for name in SPLITS if given_origin(config, name) is None]
        origin = given_origin(config, split) or given_origin(config, "train")
        assert origin is not None  # open_split has seen to it
        if origin.format == "text":
            carved = "val" in missing and split in ("train", "val")
            yield from read_text(config, origin, split, carved, refuse)
            return
        carve = [name for name in missing if name != "test" or config.task != "text"]
        for row in READERS[config.task](config, origin, refuse):
            if split not in missing and split != "train":
                yield row.example
                continue
            fallen = split_of(row.key, config.val_fraction) if carve else "train"
            if (fallen if fallen in carve else "train") == split:
                yield row.example

    def why_empty(self) -> str:
        config, split = self.config, self.split
        if config.builtin is not None:
            return f"the built-in data {config.builtin!r} has nothing in its split {split}"
        origin = given_origin(config, split)
        if origin is None:
            return (
                f"data.{split} is not set, and nothing of the training data falls to it with "
                f"data.val_fraction={config.val_fraction}; set data.{split}, or raise data.val_fraction"
            )
        if origin.path.is_file() and next(numbered_lines(origin.path, lambda _: None), None) is None:
            return f"{origin.path} is empty"
        held_out = "" if split != "train" else " once validation and test are taken out"
        return f"{origin.path} holds no example to learn from{held_out}"


def lowered(task: str, example: Any) -> Any:
    if task == "pairs":
        return lowercase(example[0]), lowercase(example[1])
    if task == "classify":
        return lowercase(example[0]), example[1]
    if task == "tag":
        return [lowercase(token) for token in example[0]], example[1]
    return Document(lowercase(example.text), example.ends)


def open_split(config: DataConfig, split: Split) -> Any:
    """One split as a re-iterable of examples. Files that are missing are named at once; bad lines when they are met."""
    if config.builtin is not None:
        if config.swap or config.lowercase:
            return Examples(config, split)
        from glassformer.data.builtin import open_builtin

        return open_builtin(config, split)
    origin = given_origin(config, split)
    if origin is None:
        if given_origin(config, "train") is None:
            raise UserError("there is no data: set data.train to a file or folder, or data.builtin to a built-in set")
        if split == "test" and config.task == "text":
            raise UserError("there is no test text: set data.test to a file or folder, or use the split val")
    return Examples(config, split)


__all__ = ["SPLITS", "Document", "Examples", "Origin", "Row", "Split", "all_rows", "given_origin", "open_split"]
