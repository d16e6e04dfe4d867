"""Token files: a corpus as numbers on disk, read without loading it.

A file is one of safetensors, whatever its name ends in, so anybody can open it; sequence i is tokens[offsets[i]:offsets[i + 1]]:

    from safetensors.numpy import load_file
    arrays = load_file("run/data/train.source.tokens")

    tokens   all sequences end to end: uint16 or uint32, whichever holds the vocabulary (int32 for labels, where -100 means
             "nothing to learn")
    offsets  int64, one more than there are sequences
    padding  a few bytes, so that the offsets begin at a multiple of eight

Writing streams through a small buffer, and the header is written last; one rename makes the file complete. Reading maps it, so
a corpus may be larger than memory and only the pages in use are loaded. Files of earlier versions are read, too.

A sequence is whatever the caller says: a sentence, a document, the tags of a line. Control tokens are not added here.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Int

from glassformer.errors import UserError
from glassformer.text.flat import ranges

SUFFIX = ".tokens"
MAGIC = b"GLASSTOK"  # ends a file of format 1
FORMAT = 2
HEADER = 512  # bytes, its length included
BUFFER = 1 << 20  # bytes
DTYPES: dict[str, type[np.generic]] = {"U16": np.uint16, "U32": np.uint32, "I32": np.int32, "I64": np.int64}


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


def arrays_of(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Tokens, offsets and the size of the vocabulary, by the header of a safetensors file; ValueError and its kin, where it is
    none of ours or not whole."""
    begin = 8 + int.from_bytes(bytes(data[:8]), "little")
    facts = json.loads(bytes(data[8:begin])) if begin <= min(len(data), 1 << 20) else {}
    about, arrays = facts["__metadata__"], []
    for name in ("tokens", "offsets"):
        start, end = facts[name]["data_offsets"]
        if not 0 <= start <= end <= len(data) - begin or about["token_file"] != str(FORMAT):
            raise ValueError(name)
        arrays.append(data[begin + start : begin + end].view(DTYPES[facts[name]["dtype"]]))
    if begin + end != len(data):
        raise ValueError("more than was written")
    return arrays[0], arrays[1], int(about["vocab_size"]) if "vocab_size" in about else None


def arrays_of_format_1(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Of a file of an earlier version: tokens, offsets, header, its length and a magic word, in this order."""
    behind = len(data) - 16
    facts = json.loads(bytes(data[behind - int.from_bytes(bytes(data[behind : behind + 8]), "little") : behind]))
    width, start = np.dtype(facts["dtype"]).itemsize, facts["offsets_at"]
    tokens = data[: facts["tokens"] * width].view(
        {"uint16": np.uint16, "uint32": np.uint32, "int32": np.int32}[facts["dtype"]]
    )
    return tokens, data[start : start + 8 * (facts["sequences"] + 1)].view(np.int64), facts["vocab_size"]


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
            read = arrays_of_format_1 if bytes(data[-8:]) == MAGIC else arrays_of
            tokens, offsets, vocab_size = read(data)
            complete = offsets[0] == 0 and offsets[-1] == len(tokens)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            raise damaged from None
        if not complete:
            raise damaged
        return TokenFile(tokens, offsets, vocab_size)

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
