"""The examples of a run as text, in the run's own folder: written once while the data is prepared, read by whoever validates,
evaluates or looks. With them a run needs none of the files it was made from.

One file a split, `data/train.examples.gz` and its sisters: gzipped lines of JSON, an example each, as the model sees it
(lower-cased, swapped, tagged where the recipe says so).

    pairs      ["source", "target"]          classify   ["text", "label"]
    tag        [["words", …], ["tags", …]]   text       ["a piece", true]    (true: the document ends here)

A third item, where there is one, says how often an example is learned in an epoch. Reading and writing stream.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.files import Document
from glassformer.data.sources import open_split
from glassformer.data.splits import SPLITS, Split
from glassformer.errors import UserError

SUFFIX = ".examples.gz"
LEVEL = 1  # the fastest; a higher one saves a tenth of the room and takes three times as long
AT_ONCE = 1000  # examples that are written together
BLOCK = 1 << 20  # bytes that are read together


def store_path(folder: Path, split: str) -> Path:
    """Where the examples of a split lie below a run's data folder."""
    return folder / f"{split}{SUFFIX}"


class ExampleWriter:
    """Writes one split. The file takes its name when it is complete; a split without examples leaves none."""

    def __init__(self, folder: Path, split: str) -> None:
        self.path = store_path(folder, split)
        self.temporary = self.path.with_name(self.path.name + ".part")
        self.examples = self.learned = 0
        self.rows: list[Any] = []
        self.waiting = 0  # characters of the rows, or words
        folder.mkdir(parents=True, exist_ok=True)
        self.raw = open(self.temporary, "wb")  # noqa: SIM115 (closed by close)
        self.packed = gzip.GzipFile(filename="", fileobj=self.raw, mode="wb", compresslevel=LEVEL, mtime=0)

    def write(self, example: Any, times: int = 1) -> None:
        """One more example."""
        row = (example.text, example.ends) if isinstance(example, Document) else example
        self.rows.append(row if times == 1 else (*row, times))
        self.examples += 1
        self.learned += times
        self.waiting += len(row[0])
        if len(self.rows) >= AT_ONCE or self.waiting > BLOCK:
            self.flush()

    def flush(self) -> None:
        """Writes what has come since the last time."""
        rows, self.rows, self.waiting = self.rows, [], 0
        import msgspec

        try:
            lines = msgspec.json.Encoder().encode_lines(rows)
        except UnicodeEncodeError:  # half a character
            text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
            lines = text.encode("utf-8", errors="surrogatepass")
        self.packed.write(lines)

    def close(self, *, keep: bool = True) -> None:
        """Makes the file complete, or leaves nothing of it."""
        try:
            self.flush()
            self.packed.close()
            self.raw.flush()
            os.fsync(self.raw.fileno())
            if keep and self.examples:
                os.replace(self.temporary, self.path)
        finally:
            with suppress(OSError):  # what is still in its buffer has nowhere to go
                self.raw.close()
            self.temporary.unlink(missing_ok=True)


class StoreWriter:
    """Writes the splits of a run, as a `with` statement: what is left after an error is nothing."""

    def __init__(self, folder: Path) -> None:
        self.splits = {split: ExampleWriter(folder, split) for split in SPLITS}

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with ExitStack() as closing:
            for writer in reversed(self.splits.values()):
                closing.callback(writer.close, keep=kind is None)

    def write(self, split: Split, example: Any, times: int = 1) -> None:
        """One more example of a split."""
        self.splits[split].write(example, times)


@dataclass(frozen=True)
class StoredExamples:
    """One split as it was prepared; every `iter()` starts again at its first example. `repeated`: an example comes as often
    as it is learned in an epoch."""

    path: Path
    is_text: bool
    repeated: bool = False

    def __iter__(self) -> Iterator[Any]:
        for row in self.rows():
            example = Document(row[0], row[1]) if self.is_text else (row[0], row[1])
            for _unused in range(row[2] if self.repeated and len(row) > 2 else 1):
                yield example

    def rows(self) -> Iterator[list[Any]]:
        """The lines of the file, as lists."""
        damaged = UserError("{path} is damaged; see `glassformer doctor`, and bring it back from a copy", self.path)
        try:
            with gzip.open(self.path, "rb") as file:
                while block := file.read(BLOCK):
                    block += file.readline()
                    rows = parsed(block)
                    if not all(len(row) in (2, 3) for row in rows):
                        raise damaged
                    yield from rows
        except (EOFError, zlib.error, gzip.BadGzipFile, ValueError, TypeError, RecursionError):
            raise damaged from None
        except OSError as error:
            raise UserError("{path} cannot be read: {reason}", self.path, error.strerror) from None


def parsed(lines: bytes) -> list[list[Any]]:
    """Lines of JSON, an array each."""
    import msgspec

    try:
        rows: list[list[Any]] = msgspec.json.Decoder(list).decode_lines(lines)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # half a character, which only the slow one takes
        rows = [json.loads(line) for line in lines.splitlines()]
        if not all(isinstance(row, list) for row in rows):
            raise ValueError("a line is no array") from None
    return rows


def stored_splits(folder: Path) -> tuple[Split, ...]:
    """The splits whose examples lie in a run's data folder."""
    return tuple(split for split in SPLITS if store_path(folder, split).exists())


def run_examples(config: DataConfig, split: Split, folder: Path, *, repeated: bool = False) -> Any:
    """The examples of a split of a run, by its data folder: a re-iterable; of one that keeps none, those of its files."""
    if store_path(folder, split).exists():
        return StoredExamples(store_path(folder, split), config.task == "text", repeated)
    if stored_splits(folder):
        there = " and ".join(stored_splits(folder))
        raise UserError("this run has no {split} split: it was made with {there}", split, there)
    return open_split(config, split)
