"""Text on disk, as examples: whatever the format, all splits in one reading that opens every file once.

    pairs      (source, target)     TSV, two line-aligned files, CSV, JSON, JSONL, Parquet, Hugging Face datasets
    text       Document             a file, a folder of files, a line each, CSV, JSON, JSONL, Parquet, datasets
    classify   (text, label)        label TAB text, CSV, JSON, JSONL, Parquet, datasets
    tag        (tokens, tags)       token TAB tag with a blank line between sentences, JSON, JSONL, Parquet, datasets

Any text format may be gzipped. Everything streams: what is in memory is one line, or one piece of a long document, so a
corpus may be larger than the machine. A pair with an empty side teaches nothing and is passed over, and counted.

Splits that are not given are taken out of the training data, `val_fraction` each (see splits.py); of a text only val, its
test has to be given. Where a corpus is made of several files of which some have a tag (synthetic ones, say), what is held
out is taken from those without; and whatever of the others would give away a held-out source is left out. With `both_ways`
the targets are read, too, so a training pair whose target is a held-out one is left out.

What is wrong with a line is said with its file and number. Normally that ends the reading; data.on_error="skip" leaves the
line out; the data doctor reads on with a `ReadContext` of its own, and so sees with the very eyes of training. This module knows
nothing of tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.config import DataConfig
from glassformer.data.files import ReadContext, Skipped, document_pieces, files_below, ignore
from glassformer.data.oddities import is_blank
from glassformer.data.origins import Origin, origins_of, shown
from glassformer.data.readers import WHERE, LocatedExample, given_splits, read_rows, records_in, rows_of
from glassformer.data.splits import SPLITS, Split, hash_of, held_out_files, normalized, source_of, split_of, times_of
from glassformer.data.transforms import in_context, learned
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.screen import say


class SplitExample(NamedTuple):
    """An example, the split it belongs to, and how often it is learned in an epoch."""

    split: Split
    example: Any
    times: int = 1


def text_files(origins: tuple[Origin, ...]) -> list[tuple[str, Path, int]]:
    """The name, path and size of every file of plain text; a folder's in the order of their names."""
    files = []
    for origin in origins:
        if origin.path.is_dir():
            below = files_below(origin.path)
            files += [(path.relative_to(origin.path).as_posix(), path, path.stat().st_size) for path in below]
        else:
            files.append((origin.path.name, origin.path, origin.path.stat().st_size))
    return files


def has_empty_side(task: str, example: Any) -> bool:
    """Whether there is nothing to read, or nothing to learn."""
    if task in ("text", "tag"):
        return task == "tag" and not (example[0] and example[1])
    return is_blank(example[0]) or is_blank(example[1])


@dataclass
class DataReader:
    """One reading of all that a configuration names (or of `given`, in memory), example by example, split by split.

    `splits`: only these splits; files that hold none of them stay closed.
    """

    config: DataConfig
    given: Any = None
    splits: frozenset[str] = frozenset(SPLITS)
    context: ReadContext | None = None

    skipped: Skipped = field(default_factory=Skipped)
    empty: Counter[str] = field(default_factory=Counter)  # examples with an empty side, by split
    in_train: Counter[str] = field(default_factory=Counter)  # training examples that val or test hold as well
    left_out: int = 0  # training examples that would have given a held-out one away
    split_off: tuple[Split, ...] = ()

    def __post_init__(self) -> None:
        skips = self.config.on_error == "skip"
        self.context = self.context or (ReadContext(self.skipped) if skips else ReadContext())
        self.heldout_sources: set[int] = set()
        self.known: dict[int, Split] = {}

    def __iter__(self) -> Generator[SplitExample]:
        config = self.config
        if config.builtin is not None:
            if self.given is not None:
                raise UserError(
                    "data in memory has no place beside a built-in set (data.builtin={builtin}); to train on it in place of "
                    "that, say builtin=None",
                    config.builtin,
                )
            yield from self.built_in()
            return
        given = self.named()
        missing = [split for split in SPLITS if split not in given]
        self.split_off = tuple(s for s in missing if (s != "test" or config.task != "text") and config.val_fraction > 0)
        for split in ("val", "test"):
            if split in given and split in self.splits:
                for item in self.of_split(split, given[split]):
                    if "train" in self.splits:
                        self.known[self.identity(item.example)] = split
                    yield item
        if "train" in self.splits or any(split in self.splits for split in self.split_off):
            for item in self.of_split("train", given["train"]):
                if self.known and item.split == "train":
                    held = self.known.get(self.identity(item.example))
                    self.in_train.update(() if held is None else (held,))
                if item.split in self.splits:
                    yield item

    def named(self) -> dict[Split, Any]:
        """Origins by split, or what is in memory; those of train are always there."""
        if self.given is not None:
            splits = given_splits(self.given)
            for split in ("val", "test"):
                if split not in splits and getattr(self.config, split) is not None:
                    say(_("data.{split} is not read: data in memory takes the place of all files", split))
            return splits
        origins_by_split: dict[Split, Any] = {
            split: origins for split in SPLITS if (origins := origins_of(self.config, split))
        }
        if "train" not in origins_by_split and not (self.splits <= set(origins_by_split)):
            raise UserError("there is no data: set data.train to a file or folder, or data.builtin to a built-in set")
        return origins_by_split

    def built_in(self) -> Iterator[SplitExample]:
        """A built-in set has its own splits."""
        from glassformer.data.builtin import open_builtin

        for split in SPLITS:
            if split in self.splits:
                for example in open_builtin(self.config, split):
                    yield SplitExample(split, learned(self.config, example))

    def identity(self, example: Any) -> int:
        """A hash of all that is learned from an example, case and spacing aside."""
        if self.config.task == "text":
            return hash_of(normalized(example.text))
        return hash_of(normalized(source_of(self.config.task, example)), normalized(str(example[1])))

    def of_split(self, split: Split, origins: Any) -> Iterator[SplitExample]:
        """What the files of a split hold; those of train hold what is carved out of it, too."""
        assert self.context is not None
        if self.given is not None:
            rows = rows_of(self.config, enumerate(records_in(origins), 1), WHERE, self.context)
            yield from self.assigned(split, rows, Origin(Path(), "memory"), True)
            return
        texts = tuple(origin for origin in origins if origin.format == "text")
        if texts:
            yield from self.of_texts(split, texts)
        plain_files = [origin for origin in origins if not origin.tag and origin.format != "text"]
        tagged = [origin for origin in origins if origin.tag]
        for origin in (*plain_files, *tagged):
            rows = read_rows(self.config, origin, self.context)
            yield from self.assigned(split, rows, origin, may_hold_out=not origin.tag or not plain_files)

    def assigned(
        self, split: Split, rows: Iterator[LocatedExample], origin: Origin, may_hold_out: bool
    ) -> Iterator[SplitExample]:
        """Rows, each in its split. Rows of which nothing may be held out lose what would give a held-out one away."""
        config = self.config
        by_field = config.document_field is not None
        if config.context and not by_field and origin.format not in ("tsv", "lines"):
            raise UserError(
                "data.context needs to know where documents end: by a blank line of a TSV or of two aligned files, or by a field "
                "of the records that data.document_field names"
            )
        keyed = in_context(rows, config.context, by_field=by_field) if config.context else ((row, None) for row in rows)
        for row, document in keyed:
            if has_empty_side(config.task, row.example):
                self.empty[split] += 1
                continue
            example = learned(config, row.example)
            key = normalized(document or source_of(config.task, example))
            fallen: Split = split
            if split == "train" and self.split_off and may_hold_out:
                fallen = split_of(key, config.val_fraction)
                fallen = fallen if fallen in self.split_off else "train"
            if fallen != "train" and split == "train":
                self.heldout_sources.add(hash_of(key))
            elif split == "train" and not may_hold_out and hash_of(key) in self.heldout_sources:
                self.left_out += 1
                continue
            times = times_of(origin.weight, key) if fallen == "train" else 1
            if times:
                yield SplitExample(fallen, learned(config, row.example, origin.tag) if origin.tag else example, times)

    def of_texts(self, split: Split, origins: tuple[Origin, ...]) -> Iterator[SplitExample]:
        """Files as documents; where val is carved, whole files of many, or the end of one."""
        assert self.context is not None
        config = self.config
        files = text_files(origins)
        carve = split == "train" and "val" in self.split_off
        whole, cut = held_out_files(files, config.val_fraction) if carve else (set(), None)
        times = {path: int(origin.weight) for origin in origins for _, path, _ in text_files((origin,))}
        if any(origin.weight != int(origin.weight) for origin in origins):
            raise UserError("the weight of a text must be a whole number: a part of a document is no document")
        for _origin, path, _size in files:
            mine: Split = "val" if path in whole else split
            if path != cut and mine not in self.splits:
                continue
            with self.context.opened(path) as file:
                border = int(file.content_size() * (1 - config.val_fraction)) if path == cut else None
                for turn in range(times[path] if mine == "train" else 1):  # a text of weight 2 is read twice
                    if turn:
                        file.rewind()
                    with closing(document_pieces(file, self.context, border)) as pieces:
                        for part, document in pieces:
                            if not (part and turn):
                                yield SplitExample("val" if part else mine, learned(config, document))


@dataclass(frozen=True)
class SplitReader:
    """One split of the data as it is in its files; every `iter()` reads them again from the first example."""

    config: DataConfig
    split: Split

    def __iter__(self) -> Iterator[Any]:
        reader = DataReader(self.config, splits=frozenset({self.split}))
        count = 0
        for item in reader:
            if item.split == self.split:
                count += 1
                for _unused in range(item.times):
                    yield item.example
        if not count:
            raise UserError(why_empty(self.config, self.split))


def why_empty(config: DataConfig, split: Split, *, in_memory: bool = False) -> str:
    """Why a split has not a single example, and what to do about it."""
    if in_memory and split == "train":
        return _("{name} holds no example to learn from", WHERE)
    if config.builtin is not None:
        return _("the built-in data {builtin!r} has nothing in its split {split}", config.builtin, split)
    origins = origins_of(config, split)
    if not origins and config.context and split != "train":
        return _(
            "data.{split} is not set, and with data.context the sentences of a document stay together; no document of the "
            "training data falls to {split}: part documents by blank lines, or set data.{split}",
            split,
        )
    if not origins:
        return _(
            "data.{split} is not set, and nothing of the training data falls to it with "
            "data.val_fraction={val_fraction}; set data.{split}, or raise data.val_fraction",
            split,
            config.val_fraction,
        )
    names = ", ".join(shown(origin.path) for origin in origins)
    if all(origin.path.is_file() and origin.path.stat().st_size == 0 for origin in origins):
        return f"{names} is empty"
    if split == "train":
        return _("{names} holds no example to learn from once validation and test are taken out", names)
    return _("{name} holds no example to learn from", names)


def open_split(config: DataConfig, split: Split) -> SplitReader:
    """One split as a re-iterable of examples. Files that are missing are named at once; bad lines when they are met."""
    if config.builtin is not None:
        from glassformer.data.builtin import check_builtin

        check_builtin(config)
    elif not origins_of(config, split):
        if not origins_of(config, "train"):
            raise UserError("there is no data: set data.train to a file or folder, or data.builtin to a built-in set")
        if split == "test" and config.task == "text":
            raise UserError("there is no test text: set data.test to a file or folder, or use the split val")
    return SplitReader(config, split)


def all_rows(config: DataConfig, split: Split, context: ReadContext) -> Iterator[LocatedExample]:
    """Every row of the files a split is given by, for one who wants to see them as they are: no swap, nothing left out."""
    origins = origins_of(config, split)
    if not origins:
        raise UserError("data.{split} is not set", split)
    for origin in origins:
        if origin.format != "text":
            yield from read_rows(config, origin, context)
            continue
        for _origin, path, _size in text_files((origin,)):
            with context.opened(path) as file:
                for number, (_line, piece) in enumerate(document_pieces(file, context), 1):
                    yield LocatedExample(piece, path, number)


def first_rows(config: DataConfig, split: Split, most: int) -> Iterator[LocatedExample]:
    """The first rows of a split; lines that cannot be used are left out without a word."""
    return islice(all_rows(config, split, ReadContext(ignore)), most)
