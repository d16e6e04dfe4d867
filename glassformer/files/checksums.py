"""Files that are what they were when they were written: each is held against its size and SHA-256, once a process."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glassformer.files.durable import sha256
from glassformer.language import _


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
