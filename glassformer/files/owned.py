"""A command writes only into what it has created.

A folder to write into is new or empty, and stands under a temporary name until what goes into it is whole. Files are
opened without following links, so that a link laid in the way of a log is refused and not written through. What is
removed is named one by one; whatever else lies in the folder is somebody's, and stays. A folder that a command comes back
to (downloads, pictures) holds a list of the files that the command made, and only those are replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import to_json, write_atomically
from glassformer.language import _

LIST = ".glassformer-files"
MARK = ".glassformer-staging"
"""In a folder that is not finished yet: locked by whoever fills it."""


def refuse_link(path: Path) -> None:
    """Nothing is written through a link."""
    if path.is_symlink():
        raise UserError(
            "{path} is a link to {target}, and links are not written through; remove it or name the folder itself",
            path,
            os.readlink(path),
        )


def require_new_or_empty(path: Path, what: str) -> None:
    """Refuses a place where something is already; an empty folder is as good as none."""
    refuse_link(path)
    try:
        found = sorted(os.listdir(path))
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise UserError(
            "{what} cannot be made in {path}: {reason}; choose another place", what, path, error.strerror
        ) from None
    except OSError as error:
        raise UserError("{path} cannot be used: {reason}", path, error.strerror) from None
    if found:
        some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise UserError(
            "{path} is not empty (it has {some}), and {what} is only made in a new or an empty folder; choose another one",
            path,
            some,
            what,
        )


def own_folder(path: Path) -> Path:
    """The folder itself, made where it is missing (but not those above it); a link or a file in its place is refused."""
    try:
        os.mkdir(path)
    except FileExistsError:
        refuse_link(path)
        if not path.is_dir():
            raise UserError("{path} is a file and should be a folder; move it away", path) from None
    return path


def open_own(path: Path, flags: int) -> int:
    """A descriptor of a regular file of one's own, made where it is missing. Links are not followed, and a pipe or a device
    in its place is refused before anything waits for it."""
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            refuse_link(path)
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


@contextlib.contextmanager
def exclusive_lock(path: Path, refusal: str) -> Iterator[None]:
    """Held by one process at a time, and freed when it ends, however it ends; whoever comes second gets `refusal`."""
    import fcntl

    descriptor = open_own(path, os.O_RDWR)
    try:
        for patience in (0.1, 0.2, 0.4, None):  # somebody who only looks is gone in an instant
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if patience is None:
                    raise UserError(refusal) from None
                time.sleep(patience)
            except OSError:
                break  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool | None:
    """Whether a process holds this lock; None where that cannot be known: there is no such file, or its file system has no
    locks."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def identity(path: Path) -> tuple[int, int] | None:
    """What stays the same about a folder however it is renamed; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class HeldFolder:
    """A folder that is known by itself and not by its name: it may be moved while somebody works in it, and another one
    may take its place."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self.descriptor)
        self.identity = found.st_dev, found.st_ino

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self.descriptor)

    def moved_to(self) -> str:
        """The name it has now, as the system knows it."""
        import fcntl

        if hasattr(fcntl, "F_GETPATH"):  # macOS
            return os.fsdecode(fcntl.fcntl(self.descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{self.descriptor}")

    def find(self, path: Path) -> Path:
        """`path`, if the folder is still there; else where it is now; a sentence, if it is nowhere."""
        if identity(path) == self.identity:
            return path
        with contextlib.suppress(OSError):
            now = Path(self.moved_to())
            if identity(now) == self.identity:
                return now
        raise UserError(
            "{path} was removed or replaced while it was in use; nothing has been written into what stands there now",
            path,
        )


def remove_own(folder: Path, is_own: Callable[[str], bool], *, keep_folder: bool = False) -> list[str]:
    """Removes the regular files in `folder` whose relative name `is_own`, and folders that are empty then, itself among
    them unless `keep_folder`. What is left, by its relative name; nothing of it was touched."""
    left = []
    for here, folders, files in os.walk(folder, topdown=False, followlinks=False):
        for name in [*files, *(f for f in folders if os.path.islink(os.path.join(here, f)))]:
            path = Path(here, name)
            relative = path.relative_to(folder).as_posix()
            if is_own(relative) and not path.is_symlink():
                path.unlink()
            else:
                left.append(relative)
        if not (keep_folder and Path(here) == folder):
            with contextlib.suppress(OSError):
                os.rmdir(here)
    return sorted(left)


def take_place(draft: Path, path: Path, old: Collection[str]) -> None:
    """A finished folder takes its name. Of one that has the name, the files `old` go once the new one is there."""
    if not old:
        os.rename(draft, path)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".old-{path.name}-", dir=path.parent))
    try:
        os.rename(path, aside)
        os.rename(draft, path)
    except OSError:
        if os.path.lexists(path):
            os.rmdir(aside)
        else:
            os.rename(aside, path)
        raise
    remove_own(aside, lambda name: name in old)


def abandoned(folder: Path) -> list[Path]:
    """Staging folders in `folder` whose process is gone: the mark in them says that they are ours, and nobody holds it. One that
    was left before it had its mark has a name as `mkdtemp` makes them, nothing in it but a mark in the making, and its age."""
    with contextlib.suppress(OSError):
        found = sorted(p for p in folder.iterdir() if p.name.startswith(".making-") and not p.is_symlink())
        return [p for p in found if is_locked(p / MARK) is False or is_unmarked(p)]
    return []


def is_unmarked(staging: Path) -> bool:
    """Whether a staging folder was left before it had its mark, an hour ago or more."""
    with contextlib.suppress(OSError):
        if re.fullmatch(r"\.making-.+-[a-z0-9_]{8}", staging.name) and time.time() - staging.stat().st_mtime > 3600:
            return set(os.listdir(staging)) <= {f".tmp-{MARK}"} and not is_locked(staging / f".tmp-{MARK}")
    return False


@contextlib.contextmanager
def new_folder(path: Path, what: str, old: Collection[str] = ()) -> Iterator[Path]:
    """A folder to fill, which takes the name `path` only when all has gone well; else nothing of it is left, and what a kill
    leaves is removed by whoever comes next. `old`: the files of a folder of that name which it replaces."""
    refuse_link(path) if old else require_new_or_empty(path, what)
    staging = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in abandoned(path.parent):
            shutil.rmtree(left, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=f".making-{path.name}-", dir=path.parent))
        with exclusive_lock(staging / f".tmp-{MARK}", f"{staging} is another process's"):
            os.rename(staging / f".tmp-{MARK}", staging / MARK)  # once it has this name it is locked
            draft = staging / "content"
            draft.mkdir()
            yield draft
            take_place(draft, path, old)
    except OSError as error:
        raise UserError(
            "{path} could not be written: {reason}; nothing was left there", path, error.strerror or error
        ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


class OwnedFiles:
    """A folder that a command comes back to. It keeps a list of what it wrote there, and replaces nothing else."""

    def __init__(self, folder: Path) -> None:
        refuse_link(folder)
        self.folder = folder

    def names(self) -> set[str]:
        """What the list has; a list that cannot be read lists nothing."""
        path = self.folder / LIST
        try:
            return set() if path.is_symlink() else set(structured.read(path, list[str], 1 << 20))
        except (OSError, structured.Unreadable):
            return set()

    def exclusive_lock(self, what: str) -> contextlib.AbstractContextManager[None]:
        """One command at a time works in this folder, and a kill frees it; `what` is what a second one is told is there."""
        (lock,) = self.claim(".lock")
        return exclusive_lock(
            lock, _("another {what} is at work in {folder}; wait for it, or choose another --out", what, self.folder)
        )

    def forget(self, names: set[str]) -> None:
        """Takes names off the list: what the command has removed itself."""
        if names:
            write_atomically(self.folder / LIST, to_json(sorted(self.names() - names)))

    def claim(self, *names: str) -> list[Path]:
        """The paths to write to, once it is sure that nobody else's files are there; from now on they are on the list."""
        known = self.names()
        for name in names:
            path = self.folder / name
            if name not in known and (path.exists() or path.is_symlink()):
                raise UserError(
                    "{path} is there already and was not written by this command; move it away, or choose another place",
                    path,
                )
            refuse_link(path)
        if not known.issuperset(names):
            self.folder.mkdir(parents=True, exist_ok=True)
            refuse_link(self.folder / LIST)
            write_atomically(self.folder / LIST, to_json(sorted(known | set(names))))
        return [self.folder / name for name in names]
