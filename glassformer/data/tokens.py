"""Token files: a corpus as numbers on disk, read without loading it.

One file holds everything, so one rename makes it complete: the tokens of all sequences end to end, then the offset at
which each sequence starts, then a line of JSON that says how to read the rest. Writing streams through a small buffer;
reading maps the file, so a corpus may be larger than memory and only the pages in use are loaded.

    tokens   uint16 or uint32, whichever holds the vocabulary (int32 for labels, where -100 means "nothing to learn")
    offsets  int64, one more than there are sequences
    header   JSON, then its length and a magic word, found from the file's end

A sequence is whatever the caller says: a sentence, a document, the tags of a line. Control tokens are not added here.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int

from glassformer.errors import UserError

SUFFIX = ".tokens"
MAGIC = b"GLASSTOK"
FORMAT = 1
BUFFERED_TOKENS = 1 << 18
DTYPES = {"uint16": np.uint16, "uint32": np.uint32, "int32": np.int32}


def ranges(starts: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
    """starts[0], starts[0]+1, … (lengths[0] of them), then the same for the next: many slices as one index."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


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
        """Writes `prefix.tokens` and opens it. `vocab_size` None: labels, which may be negative.

        The file appears under its name only when it is complete; an error or a kill leaves what was there before."""
        path = TokenFile.path(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        dtype = dtype_for(vocab_size)
        count = total = 0
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as out, tempfile.TemporaryFile(dir=path.parent) as offsets:
                offsets.write(np.zeros(1, np.int64).tobytes())
                buffer: list[np.ndarray] = []
                buffered = 0

                def flush() -> None:
                    nonlocal total, buffered
                    if buffer:
                        tokens = np.concatenate(buffer)
                        check_range(tokens, vocab_size)
                        out.write(tokens.astype(dtype).tobytes())
                        ends = np.cumsum([len(b) for b in buffer], dtype=np.int64) + total
                        offsets.write(ends.tobytes())
                        total = int(ends[-1])
                        buffer.clear()
                        buffered = 0

                for sequence in sequences:
                    buffer.append(np.asarray(sequence, dtype=np.int64).reshape(-1))
                    buffered += len(buffer[-1]) + 1
                    count += 1
                    if buffered >= BUFFERED_TOKENS:
                        flush()
                flush()
                out.write(bytes(-out.tell() % 8))
                offsets_at = out.tell()
                offsets.seek(0)
                shutil.copyfileobj(offsets, out, 1 << 20)
                header = {
                    "format": FORMAT,
                    "dtype": np.dtype(dtype).name,
                    "vocab_size": vocab_size,
                    "sequences": count,
                    "tokens": total,
                    "offsets_at": offsets_at,
                }
                text = json.dumps(header).encode()
                out.write(text + len(text).to_bytes(8, "little") + MAGIC)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return TokenFile.open(prefix)

    @staticmethod
    def open(prefix: str | os.PathLike[str]) -> TokenFile:
        """A file that `write` made, read from disk as it is needed; a damaged one is refused in a sentence."""
        path = TokenFile.path(prefix)
        try:
            size = path.stat().st_size
            data = np.memmap(path, dtype=np.uint8, mode="r") if size else np.empty(0, np.uint8)
        except OSError as error:
            raise UserError(f"the token file {path} cannot be read: {error.strerror}") from None
        damaged = UserError(f"{path} is not a complete token file; delete it and prepare the data again")
        if size < 16 or bytes(data[-8:]) != MAGIC:
            raise damaged
        text_size = int.from_bytes(bytes(data[-16:-8]), "little")
        if text_size > size - 16:
            raise damaged
        try:
            header = json.loads(bytes(data[size - 16 - text_size : size - 16]))
            version = header["format"]
            dtype = np.dtype(DTYPES[header["dtype"]])
            start, count, total = header["offsets_at"], header["sequences"], header["tokens"]
            vocab_size = header["vocab_size"]
        except (ValueError, KeyError, TypeError):
            raise damaged from None
        if version != FORMAT:
            raise UserError(
                f"{path} has token file format {version}, this version reads {FORMAT}; prepare the data again"
            )
        if start + 8 * (count + 1) + text_size + 16 != size or total * dtype.itemsize > start:
            raise damaged
        tokens = data[: total * dtype.itemsize].view(dtype)
        offsets = data[start : start + 8 * (count + 1)].view(np.int64)
        if offsets[0] != 0 or offsets[-1] != total:
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
