"""Small files written so that a crash at any moment leaves the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


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
