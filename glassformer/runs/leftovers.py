"""What commands that were killed have left behind, in a run and beside it: named by `doctor`, removed by `doctor --prune`.

Nothing is known by its name alone: a staging folder has a mark in it and nobody holds its lock, a run that was set aside says
whose place it had, and what is half done lies in a run that nobody trains. What a link leads to is never touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from glassformer.files import owned
from glassformer.language import _
from glassformer.runs import checkpoint, staging
from glassformer.runs.folder import RunFolder


def size_of(path: Path) -> int:
    """Bytes, of a file or of all in a folder; what goes away while it is looked at has none."""
    total = 0
    for folder, _unused, names in os.walk(path) if path.is_dir() else [(str(path.parent), [], [path.name])]:
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(folder, name)).st_size
    return total


@dataclass(frozen=True)
class Leftover:
    """One thing that was left behind. `clear` removes it, or puts it back; None where that is for a person to decide."""

    path: Path
    about: str
    clear: Callable[[], object] | None


@dataclass(frozen=True)
class Pruned:
    """One thing that was cleared away, and how many bytes it had."""

    name: str
    about: str
    size: int


def in_run(run: RunFolder) -> Iterator[Leftover]:
    """Of a run that nobody trains: checkpoints half written or half removed, and those that a resume set aside."""
    for path in run.leftovers():
        clear = path.unlink if path.suffix == ".part" else partial(checkpoint.recover, path.parent)
        yield Leftover(path, _("left half done by a crash; --resume or --prune clears it up"), clear)
    for path in run.checkpoints.moved_aside():
        yield Leftover(path, _("set aside by an earlier resume"), partial(checkpoint.empty_out, path))


def replaced_run(path: Path) -> Leftover:
    """A run that another was to replace: dropped where that one has weights, else put back."""
    owner = staging.read_replaced(path)
    if owner is None:
        return Leftover(path, _("a run that was set aside, and does not say whose place it had"), None)
    out = path.with_name(owner.name)
    if owner.dropped or (RunFolder.is_run(out) and RunFolder(out).has_weights):
        return Leftover(path, _("the run that was in {said} before", owner.name), partial(staging.drop_replaced, out))
    if staging.to_put_back(out) == path and not owned.is_locked(out / ".lock"):
        about = _(
            "the run that was in {said} before; the new one has no checkpoint yet, and --prune puts the old one back",
            owner.name,
        )
        return Leftover(path, about, partial(staging.put_back, out))
    return Leftover(path, _("the run that was in {said} before", owner.name), None)


def in_folder(folder: Path, run: Path | None = None) -> Iterator[Leftover]:
    """In a folder of runs or exports: staging folders whose process is gone, runs that were set aside (of one run, if it is
    given), and preparations that were broken off."""
    for path in owned.abandoned(folder):
        yield Leftover(path, _("left by a command that was killed before it was done"), partial(shutil.rmtree, path))
    for path in sorted(folder.glob(".replaced-*")) if run is None else staging.replaced(run):
        if RunFolder.is_run(path) and not path.is_symlink():
            yield replaced_run(path)
    for path in sorted(folder.glob(".making-*")) if run is None else [staging.sibling_path(run, "making")]:
        if not RunFolder.is_run(path) or path.is_symlink() or owned.is_locked(path / ".lock"):
            continue
        out = path.with_name(path.name.removeprefix(".making-"))
        if RunFolder.is_run(out):
            about = _("a preparation of {out} that was broken off", out.name)
            yield Leftover(path, about, partial(staging.clear_draft, path, out))
        elif run is None:
            about = _("a preparation of {out} that was broken off; --resume goes on with it", out.name)
            yield Leftover(path, about, None)


def prune(found: list[Leftover]) -> list[Pruned]:
    """Clears away what can be; what it was and how large."""
    pruned = []
    for left in found:
        size = size_of(left.path)
        if left.clear is not None and os.path.lexists(left.path):
            left.clear()
            if not os.path.lexists(left.path):
                pruned.append(Pruned(left.path.name, left.about, size))
    return pruned
