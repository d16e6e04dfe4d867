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

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from glassformer.config import DataConfig, did_you_mean
from glassformer.data.files import (
    PIECE_BYTES,
    BadLine,
    Complain,
    Document,
    document_pieces,
    files_below,
    numbered_lines,
    open_bytes,
    read_bytes,
    refuse,
)
from glassformer.data.records import (
    dataset_part,
    dataset_records,
    field_of,
    json_records,
    parquet_records,
    text_of,
    words_of,
)
from glassformer.errors import UserError
from glassformer.text.languages import lowercase

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


# Where a split comes from


@dataclass(frozen=True)
class Origin:
    path: Path
    format: str
    target: Path | None = None  # the second of two aligned files
    part: str | None = None  # datasets: the name of the split inside


def located(config: DataConfig, name: str) -> Path:
    path = Path(name).expanduser()
    return path if path.is_absolute() or config.path is None else Path(config.path).expanduser() / path


def is_saved_dataset(path: Path) -> bool:
    return any((path / name).exists() for name in ("dataset_dict.json", "state.json"))


def format_of(config: DataConfig, path: Path, has_target: bool) -> str:
    if config.format != "auto":
        return config.format
    name = path.name.removesuffix(".gz")
    suffix = Path(name).suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return "jsonl"
    if suffix == ".parquet":
        return "parquet"
    if path.is_dir() and is_saved_dataset(path):
        return "datasets"
    if config.task == "text":
        return "text"
    return "lines" if has_target else "tsv"


def given_origin(config: DataConfig, split: Split) -> Origin | None:
    """What the config names for a split; None where it names nothing."""
    name = getattr(config, split)
    second = getattr(config, f"{split}_target")
    if name is None:
        if second is not None:
            raise UserError(f"data.{split}_target is set but data.{split} is not; two aligned files need both")
        if split != "train" and config.train is not None:
            train = cast(Origin, given_origin(config, "train"))
            if train.format == "datasets" and (part := dataset_part(train.path, split)) is not None:
                return Origin(train.path, "datasets", part=part)
        return None
    path = located(config, name)
    target = None if second is None else located(config, second)
    kind = format_of(config, path, target is not None)
    if kind == "datasets":
        where = path if path.exists() else Path(name)  # a folder, or a name others know it by
        return Origin(where, kind, part=dataset_part(where, split))
    for file in (path, target):
        if file is not None and not file.exists():
            raise UserError(f"there is no file {file}{suggestion(file)}")
    if target is not None and (config.task != "pairs" or kind != "lines"):
        raise UserError(
            f"data.{split}_target is for pairs in two line-aligned files; {path.name} is read as {config.task} in {kind}"
        )
    if config.task == "pairs" and kind == "lines" and target is None:
        raise UserError(f"{path}: pairs in line-aligned files need the second file; set data.{split}_target")
    if config.task == "pairs" and kind == "text":
        raise UserError(
            f'{path}: pairs cannot be read from plain text; set data.format="tsv" or give data.{split}_target'
        )
    if config.task in ("classify", "tag") and kind == "text":
        raise UserError(f'{path}: labels cannot be read from plain text; set data.format="lines" for label TAB text')
    if path.is_dir() and kind != "text":
        raise UserError(f"{path} is a folder; a folder can hold text or a saved dataset, not {kind}")
    return Origin(path, kind, target)


def suggestion(path: Path) -> str:
    try:
        return did_you_mean(path.name, sorted(p.name for p in path.parent.iterdir()))
    except OSError:
        return ""


# One reader a task: all rows of a file, the bad ones complained of


@dataclass(frozen=True)
class Row:
    """An example with where it stands. `key` decides into which split it falls where splits are carved out of one."""

    example: Any
    key: str
    path: Path
    line: int


def records_of(origin: Origin, complain: Complain) -> Iterator[tuple[int, dict[str, Any]]]:
    if origin.format == "jsonl":
        return json_records(origin.path, complain)
    if origin.format == "parquet":
        return parquet_records(origin.path, complain)
    return dataset_records(origin.path, origin.part)


def two_fields(
    config: DataConfig, origin: Origin, first: str, second: str, read: Any, complain: Complain
) -> Iterator[tuple[int, Any, Any]]:
    for number, record in records_of(origin, complain):
        values = []
        for name in (first, second):
            value = field_of(record, name, origin.path, number, complain)
            values.append(None if value is None else read(value, name, origin.path, number, complain))
        if None not in values:
            yield number, values[0], values[1]


def two_columns(path: Path, what: str, complain: Complain) -> Iterator[tuple[int, str, str]]:
    for number, line in numbered_lines(path, complain):
        if not line.strip():
            continue
        columns = line.split("\t")
        if len(columns) < 2:
            complain(BadLine("columns", path, number, f"only one column; each line must be {what}, with a tab between"))
            continue
        yield number, columns[0].strip(), columns[1].strip()


def aligned_lines(first: Path, second: Path, complain: Complain) -> Iterator[tuple[int, str, str]]:
    counts = [0, 0]
    for one, other in itertools.zip_longest(numbered_lines(first, complain), numbered_lines(second, complain)):
        counts[0] += one is not None
        counts[1] += other is not None
        if one is not None and other is not None:
            yield one[0], one[1].strip(), other[1].strip()
    if counts[0] != counts[1]:
        problem = f"{counts[0]} lines, but {second} has {counts[1]}; line n of one must translate line n of the other"
        complain(BadLine("counts", first, None, problem))


def pair_rows(config: DataConfig, origin: Origin, complain: Complain) -> Iterator[Row]:
    rows: Iterator[tuple[int, str, str]]
    if origin.format == "tsv":
        rows = two_columns(origin.path, "source and target", complain)
    elif origin.target is not None:
        rows = aligned_lines(origin.path, origin.target, complain)
    else:
        rows = two_fields(config, origin, config.source_field, config.target_field, text_of, complain)
    for number, source, target in rows:
        yield Row((source.strip(), target.strip()), source.strip(), origin.path, number)


def classify_rows(config: DataConfig, origin: Origin, complain: Complain) -> Iterator[Row]:
    if origin.format in ("tsv", "lines"):
        rows: Iterable[tuple[int, str, str]] = (
            (number, text, label) for number, label, text in two_columns(origin.path, "label and text", complain)
        )
    else:
        rows = two_fields(config, origin, config.text_field, config.label_field, text_of, complain)
    for number, text, label in rows:
        yield Row((text.strip(), label.strip()), text.strip(), origin.path, number)


def tagged_sentences(path: Path, complain: Complain) -> Iterator[tuple[int, list[str], list[str]]]:
    """Token first, tag last, so that files with columns between them can be read too."""
    start, tokens, tags = 1, list[str](), list[str]()
    for number, line in numbered_lines(path, complain):
        if not line.strip():
            if tokens:
                yield start, tokens, tags
            start, tokens, tags = number + 1, [], []
            continue
        columns = line.split("\t")
        if len(columns) < 2:
            complain(
                BadLine("columns", path, number, "only one column; each line must be token and tag, with a tab between")
            )
            continue
        tokens.append(columns[0].strip())
        tags.append(columns[-1].strip())
    if tokens:
        yield start, tokens, tags


def tag_rows(config: DataConfig, origin: Origin, complain: Complain) -> Iterator[Row]:
    if origin.format in ("tsv", "lines"):
        rows = tagged_sentences(origin.path, complain)
    else:
        rows = two_fields(config, origin, config.text_field, config.label_field, words_of, complain)
    for number, tokens, tags in rows:
        if len(tokens) != len(tags):
            complain(
                BadLine(
                    "columns", origin.path, number, f"{len(tokens)} words but {len(tags)} tags; each word needs one"
                )
            )
            continue
        yield Row((tokens, tags), " ".join(tokens), origin.path, number)


def text_rows(config: DataConfig, origin: Origin, complain: Complain) -> Iterator[Row]:
    """Documents that are lines or records; files as documents are dealt with by `read_text`."""
    if origin.format in ("lines", "tsv"):
        rows: Iterable[tuple[int, str | None]] = numbered_lines(origin.path, complain)
    else:
        rows = (
            (number, None if value is None else text_of(value, config.text_field, origin.path, number, complain))
            for number, record in records_of(origin, complain)
            for value in [field_of(record, config.text_field, origin.path, number, complain)]
        )
    for number, text in rows:
        if text is not None and text.strip():
            yield Row(Document(text, ends=True), text, origin.path, number)


READERS: dict[str, Callable[[DataConfig, Origin, Complain], Iterator[Row]]] = {
    "pairs": pair_rows,
    "classify": classify_rows,
    "tag": tag_rows,
    "text": text_rows,
}


# Splits carved out of the training data


def fraction_of(key: str) -> float:
    """A number in [0, 1) that belongs to a text for ever, on every machine."""
    digest = hashlib.blake2b(key.encode("utf-8", errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def split_of(key: str, fraction: float) -> Split:
    """The split a key would fall into if val and test were both missing: val first, then test, then the rest."""
    place = fraction_of(key)
    return "val" if place < fraction else "test" if place < 2 * fraction else "train"


def held_out_files(files: list[Path], folder: Path, fraction: float) -> set[Path]:
    """A fraction of the files, by a hash of their names; at least one, so that there is something to validate on."""
    if len(files) < 2 or fraction == 0:
        return set()
    ranked = sorted(files, key=lambda path: (fraction_of(path.relative_to(folder).as_posix()), path))
    return set(ranked[: max(1, round(fraction * len(files)))])


def end_part(path: Path, fraction: float) -> int:
    """The byte at which the last `fraction` of a file begins: at a line's start, or at least at a character's."""
    with open_bytes(path) as handle:
        if path.suffix == ".gz":
            size = 0
            while block := read_bytes(path, handle.read, PIECE_BYTES):
                size += len(block)
        else:
            size = path.stat().st_size
        place = int(size * (1 - fraction))
        handle.seek(place)
        block = read_bytes(path, handle.read, PIECE_BYTES)
    newline = block.find(b"\n")
    if 0 <= newline < len(block) - 1:
        return place + newline + 1
    inside = next((i for i, byte in enumerate(block) if byte & 0b1100_0000 != 0b1000_0000), len(block))
    return place + inside  # past what is left of a character


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


# The way in


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
