"""The one place that reads structured files: run.json, manifests, states, labels, lists of checksums.

A file is read only if it is a regular one and no larger than its kind can be; then it is held against a schema (a
dataclass, a TypedDict or a plain type) by msgspec, which reads JSON strictly. Whatever is wrong with it, a wrong shape, a
cut file, nesting without end, a number of a thousand digits, is one sentence that says where.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, TypeVar

from glassformer.errors import UserError
from glassformer.language import _

T = TypeVar("T")
LARGEST = 64 << 20
"""Bytes a structured file may have: a manifest has a few hundred, the state of a run some thousands."""


class Unreadable(UserError):
    """A structured file that is not what it should be."""


def read_regular(path: Path, limit: int = LARGEST) -> bytes:
    """The bytes of a regular file, at most `limit`. A pipe, a device or a folder is refused before it is waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("{path} cannot be read: it is not a regular file", path=path)
        if found.st_size > limit:
            raise Unreadable(
                "{path} cannot be read: it has {size:,} bytes, and at most {limit:,} are expected",
                path=path,
                size=found.st_size,
                limit=limit,
            )
        return file.read(found.st_size + 1)


def convert(value: Any, kind: Any, where: str) -> Any:
    """A value that was read already, held against a schema."""
    import msgspec

    try:
        return msgspec.convert(value, kind, strict=True)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise Unreadable("{path} cannot be read: {reason}", path=where, reason=in_words(error)) from None


def decode(content: bytes, kind: type[T] | Any, where: str | Path) -> Any:
    """JSON, held against a schema."""
    import msgspec

    try:
        return msgspec.json.decode(content, type=kind, strict=True)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise Unreadable("{path} cannot be read: {reason}", path=where, reason=in_words(error)) from None


def read(path: Path, kind: type[T] | Any, limit: int = LARGEST) -> Any:
    """A JSON file, held against a schema. An OSError (a missing file) is the caller's to explain."""
    return decode(read_regular(path, limit), kind, path)


def in_words(error: Exception) -> str:
    """msgspec says "Expected `int`, got `str` - at `$.files[...].size`"."""
    if isinstance(error, RecursionError):
        return _("it is nested too deeply")
    text = str(error).replace("`", "")
    return text[:1].lower() + text[1:300] if text else type(error).__name__
