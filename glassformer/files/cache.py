"""The user's cache folder: what can be made again, and lies there so that it need not be."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

OFF = ("off", "0", "no", "false")


@dataclass(frozen=True)
class CacheEntry:
    """One folder or file of the cache: what it holds, in words, and its bytes. `used`: when last, in seconds since 1970."""

    path: Path
    about: str
    size: int
    used: float


def cache_folder() -> Path | None:
    """GLASSFORMER_CACHE, or as the system has it; None where GLASSFORMER_CACHE=off says that nothing is to be kept."""
    if given := os.environ.get("GLASSFORMER_CACHE"):
        return None if given.lower() in OFF else Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "glassformer"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "glassformer" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer"


def is_private(folder: Path) -> bool:
    """Whether a folder is a real one of this user, into which nobody else may write, nor put another in its place. (In a folder
    such as /tmp everybody may write, and nobody rename what is another's.)"""
    own = folder.lstat()
    if not stat.S_ISDIR(own.st_mode) or not hasattr(os, "geteuid"):
        return stat.S_ISDIR(own.st_mode)
    user, others = os.geteuid(), stat.S_IWGRP | stat.S_IWOTH
    above = [path.stat() for path in {*folder.absolute().parents, *folder.resolve().parents}]
    return (
        own.st_uid == user
        and not own.st_mode & others
        and all(s.st_uid in (0, user) and (not s.st_mode & others or s.st_mode & stat.S_ISVTX) for s in above)
    )


def remove(path: Path) -> None:
    """An entry goes: first its name, so that nobody finds half of it."""
    aside = path.with_name(f".old-{path.name}-{os.getpid()}")
    with suppress(OSError):
        os.rename(path, aside)
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)
