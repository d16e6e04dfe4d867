"""Token files: a corpus as numbers on disk, read without loading it.

A file is one of safetensors, whatever its name ends in, so anybody can open it; sequence i is tokens[offsets[i]:offsets[i + 1]]:

    from safetensors.numpy import load_file
    arrays = load_file("run/data/train.source.tokens")

    tokens   all sequences end to end: uint16 or uint32, whichever holds the vocabulary (int32 for labels, where -100 means
             "nothing to learn")
    offsets  int64, one more than there are sequences
    padding  a few bytes, so that the offsets begin at a multiple of eight

Writing streams through a small buffer, and the header is written last; one rename makes the file complete. Reading maps it, so
a corpus may be larger than memory and only the pages in use are loaded.

A sequence is whatever the caller says: a sentence, a document, the tags of a line. Control tokens are not added here.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Int

from glassformer.errors import UserError
from glassformer.text.flat import ranges

SUFFIX = ".tokens"
FORMAT = 2
HEADER = 512  # bytes, its length included
BUFFER = 1 << 20  # bytes
DTYPES = {"U16": np.uint16, "U32": np.uint32, "I32": np.int32}


@dataclass(frozen=True)
class Layout:
    """Where tokens and offsets lie in a file, by its header."""

    format: int
    dtype: np.dtype[Any]
    total: int
    count: int
    tokens_at: int
    offsets_at: int
    vocab_size: int | None


def header_of(dtype: np.dtype[Any], vocab_size: int | None, count: int, total: int) -> bytes:
    """What safetensors reads first: the length of a JSON object, and that object, with blanks up to where the data begins."""
    end = total * dtype.itemsize
    aligned = end + -end % 8
    kind = next(name for name, known in DTYPES.items() if known == dtype)
    facts: dict[str, Any] = {"__metadata__": {"token_file": str(FORMAT)}}
    if vocab_size is not None:
        facts["__metadata__"]["vocab_size"] = str(vocab_size)
    facts["tokens"] = {"dtype": kind, "shape": [total], "data_offsets": [0, end]}
    if aligned > end:
        facts["padding"] = {"dtype": "U8", "shape": [aligned - end], "data_offsets": [end, aligned]}
    facts["offsets"] = {"dtype": "I64", "shape": [count + 1], "data_offsets": [aligned, aligned + 8 * (count + 1)]}
    return (HEADER - 8).to_bytes(8, "little") + json.dumps(facts).encode().ljust(HEADER - 8)


def layout_of(data: np.ndarray) -> Layout:
    """By the header of a safetensors file; ValueError and its kin, where it is none of ours."""
    size = int.from_bytes(bytes(data[:8]), "little")
    if not 0 < size <= min(len(data) - 8, 1 << 20):
        raise ValueError("no header")
    facts = json.loads(bytes(data[8 : 8 + size]))
    about, tokens, offsets = facts["__metadata__"], facts["tokens"], facts["offsets"]
    vocab_size = int(about["vocab_size"]) if "vocab_size" in about else None
    (total,), (entries,) = tokens["shape"], offsets["shape"]
    starts = [8 + size + int(header["data_offsets"][0]) for header in (tokens, offsets)]
    dtype = np.dtype(DTYPES[tokens["dtype"]])
    return Layout(int(about["token_file"]), dtype, int(total), int(entries) - 1, starts[0], starts[1], vocab_size)


class TokenFile:
    """Sequences of numbers, one behind the other; `offsets` says where each begins."""

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray, vocab_size: int | None) -> None:
        self.tokens = tokens
        self.offsets = offsets
        self.vocab_size = vocab_size

    @staticmethod
    def path(prefix: str | os.PathLike[str]) -> Path:
        """The file of this prefix."""
        return Path(os.fspath(prefix) + SUFFIX)

    @staticmethod
    def of(sequences: Iterable[Sequence[int] | np.ndarray], vocab_size: int | None = None) -> TokenFile:
        """The same thing in memory, for a handful of sentences."""
        arrays = [np.asarray(s, dtype=np.int64) for s in sequences]
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        tokens = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
        check_range(tokens, vocab_size)
        return TokenFile(tokens.astype(dtype_for(vocab_size)), offsets, vocab_size)

    @staticmethod
    def write(
        prefix: str | os.PathLike[str], sequences: Iterable[Sequence[int] | np.ndarray], vocab_size: int | None = None
    ) -> TokenFile:
        """Writes `prefix.tokens` and opens it. `vocab_size` None: labels, which may be negative."""
        with new_token_file(prefix, vocab_size) as writer:
            for sequence in sequences:
                writer.add(np.asarray(sequence, dtype=np.int64).reshape(-1), np.array([len(sequence)]))
        return TokenFile.open(prefix)

    @staticmethod
    def open(prefix: str | os.PathLike[str]) -> TokenFile:
        """A file that `write` made, read from disk as it is needed; a damaged one is refused in a sentence."""
        path = TokenFile.path(prefix)
        try:
            with path.open("rb") as file:
                return TokenFile.read(file, path)
        except OSError as error:
            raise UserError("the token file {path} cannot be read: {reason}", path, error.strerror) from None

    @staticmethod
    def read(file: IO[bytes], path: Path) -> TokenFile:
        """An open file that a `TokenWriter` has finished; `path`: as it is called in an error."""
        size = os.fstat(file.fileno()).st_size
        data = np.memmap(file, dtype=np.uint8, mode="r") if size else np.empty(0, np.uint8)
        damaged = UserError("{path} is not a complete token file; delete it and prepare the data again", path)
        try:
            layout = layout_of(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise damaged from None
        if layout.format != FORMAT:
            raise UserError(
                "{path} has token file format {format}, this version reads {known_format}; prepare the data again",
                path,
                layout.format,
                FORMAT,
            )
        width, offsets_end = layout.dtype.itemsize, layout.offsets_at + 8 * (layout.count + 1)
        tokens_end = layout.tokens_at + layout.total * width
        if min(layout.count, layout.total) < 0 or tokens_end > layout.offsets_at or offsets_end != size:
            raise damaged
        tokens = data[layout.tokens_at : tokens_end].view(layout.dtype)
        offsets = data[layout.offsets_at : offsets_end].view(np.int64)
        if offsets[0] != 0 or offsets[-1] != layout.total:
            raise damaged
        return TokenFile(tokens, offsets, layout.vocab_size)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        index %= len(self)
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @cached_property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """Tokens of each sentence."""
        return np.diff(self.offsets)

    def take(self, indices: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
        """The sequences with these numbers, end to end."""
        return self.tokens[ranges(self.offsets[indices], self.lengths[indices])].astype(np.int64)


def dtype_for(vocab_size: int | None) -> type[np.generic]:
    """The smallest type that holds every id."""
    if vocab_size is None:
        return np.int32
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def check_range(tokens: np.ndarray, vocab_size: int | None) -> None:
    """Refuses an id that the vocabulary does not have."""
    if vocab_size is not None and len(tokens) and not (tokens.min() >= 0 and tokens.max() < vocab_size):
        wrong = int(tokens.min()) if tokens.min() < 0 else int(tokens.max())
        raise ValueError(f"token {wrong} does not belong to a vocabulary of {vocab_size}")


class TokenWriter:
    """Makes a token file of an open file, some sequences at a time; offsets wait in another until the end."""

    def __init__(self, out: IO[bytes], offsets: IO[bytes], vocab_size: int | None = None) -> None:
        self.out, self.offsets, self.vocab_size = out, offsets, vocab_size
        self.dtype = np.dtype(dtype_for(vocab_size))
        self.count = self.total = 0
        self.out.write(bytes(HEADER))
        self.offsets.write(np.zeros(1, np.int64).tobytes())

    def add(self, tokens: Int[np.ndarray, " m"], lengths: Int[np.ndarray, " n"]) -> None:
        """Some more sequences, end to end."""
        check_range(tokens, self.vocab_size)
        self.out.write(tokens.astype(self.dtype).tobytes())
        self.offsets.write((np.cumsum(lengths, dtype=np.int64) + self.total).tobytes())
        self.count += len(lengths)
        self.total += len(tokens)

    def finish(self) -> None:
        """Makes the file complete."""
        self.out.write(bytes(-self.out.tell() % 8))
        self.offsets.seek(0)
        shutil.copyfileobj(self.offsets, self.out, BUFFER)
        self.out.seek(0)
        self.out.write(header_of(self.dtype, self.vocab_size, self.count, self.total))
        self.out.flush()


@contextmanager
def new_token_file(prefix: str | os.PathLike[str], vocab_size: int | None = None) -> Iterator[TokenWriter]:
    """A writer of `prefix.tokens`. The file appears under its name only when it is complete; an error or a kill leaves what was
    there before."""
    path = TokenFile.path(prefix)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".part")
    try:
        with (
            os.fdopen(handle, "wb", BUFFER) as out,
            tempfile.TemporaryFile(dir=path.parent, buffering=BUFFER) as offsets,
        ):
            writer = TokenWriter(out, offsets, vocab_size)
            yield writer
            writer.finish()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
