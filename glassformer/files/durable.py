"""Small files written so that a crash at any moment leaves the old content or the new one, never a part; and files that are
what they were when they were written: each is held against its size and SHA-256, once a process."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.language import _


def no_fault(name: str) -> None:
    """Called at each point of a save where a crash would be most interesting; fault tests put a crash here."""


fault_point: Callable[[str], None] = no_fault
FAULT_POINTS = (
    "after-write",
    "before-fsync",
    "before-rename",
    "between-renames",
    "after-rename",
    "before-prune",
    "during-prune",
)


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fsync(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Writes every byte: the system may take a part at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def append(descriptor: int, lines: bytes) -> None:
    """Adds lines at the end of a file: all of them, or none where an error is raised."""
    before = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, lines)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """A file with this content, on the disk when the call comes back. A link in its place is not written through."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, content)
        fault_point("before-fsync")
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """A small file replaced whole: the old content or the new one, never a part."""
    temporary = temporary_name(path)
    try:
        write_bytes(temporary, content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    fsync(path.parent)


def to_json(value: Any) -> bytes:
    """JSON with sorted keys, the same bytes for the same value. What is not Unicode (a file's name may be so) becomes "?"."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def temporary_name(path: Path) -> Path:
    """The name under which a file is written before it takes its own."""
    return path.with_name(f".tmp-{path.name}")


def free_name(path: Path) -> Path:
    """The path, or with -2, -3 … at its end: the first under which there is nothing."""
    names = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(name for name in itertools.chain([path], names) if not os.path.lexists(name))


@dataclass(frozen=True)
class ListedFile:
    """What a manifest says of one file."""

    size: int
    sha256: str


VERIFIED: dict[tuple[str, str], tuple[int, int, int, int]] = {}
"""Files whose bytes were found to be right, with what the system said of them then: each is read once a process."""


BLOCK = 1 << 20
SETTLED = 2_000_000_000  # ns; of a file that changed just now, the next change may have the same time


def signature(path: Path) -> tuple[int, int, int, int]:
    """What changes whenever a file's content may have: device, inode, size and time."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def blocks(path: Path, expected: ListedFile) -> Iterator[bytes]:
    """The content of a listed file, block by block; OSError where it is not a regular file of the size that is listed, or, in
    the end, not the bytes. A link is not followed, and a pipe or a device not waited for."""
    digest, left = hashlib.sha256(), expected.size
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size != left:
            raise OSError(errno.EINVAL, "it is not the file that is listed", str(path))
        while block := file.read(min(BLOCK, left)):
            digest.update(block)
            left -= len(block)
            yield block
    if left or digest.hexdigest() != expected.sha256:
        raise OSError(errno.EINVAL, "it is not the file that is listed", str(path))


def file_problem(path: Path, expected: ListedFile, *, again: bool = False) -> str | None:
    """What is wrong with a file, in words; None if every byte is as it was written. A file that was found right is believed
    until it changes, or `again` asks for another look."""
    try:
        if not path.is_file() or path.is_symlink():
            return _("is missing") if not path.exists() else _("is not a regular file")
        size = path.stat().st_size
        if size != expected.size:
            return _("has {size:,} bytes and should have {expected_size:,}", size, expected.size)
        key, now = (str(path.absolute()), expected.sha256), signature(path)
        if not again and VERIFIED.get(key) == now:
            return None
        if sha256(path) != expected.sha256:
            return _("has changed since it was written")
        if time.time_ns() - now[-1] > SETTLED:
            VERIFIED[key] = now
    except OSError as error:
        return _("cannot be read: {reason}", error.strerror)
    return None
