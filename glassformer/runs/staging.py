"""How a run's folder comes into being, and how one takes another's place.

A run is made in a new or an empty folder. A new one stands beside its place under a temporary name until its data is
prepared, so that what cannot start leaves nothing; an empty one that is there already (a mounted disk, say) is filled where
it is. A run that is to be replaced is set aside when the new one is prepared, and says in a file of its own whose place it had.
It is dropped when the new one has its first checkpoint: file by file, and only what it wrote itself. Until then it is put back
where the new one ends: at once, or, if there was no time (SIGKILL, a power cut), by the next `train` in its place or by
`doctor --prune`; `--resume` goes on with the new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.config import VERSION, Recipe
from glassformer.errors import UserError
from glassformer.files import owned, structured
from glassformer.files.durable import free_name, fsync, to_json, write_atomically
from glassformer.language import _
from glassformer.runs.facts import REPLACED
from glassformer.runs.folder import RunFolder
from glassformer.screen import say


def sibling_path(out: Path, prefix: str) -> Path:
    """A name beside a folder, whatever way the folder was named."""
    whole = Path(os.path.abspath(out))
    return whole.with_name(f".{prefix}-{whole.name}")


def clear_draft(draft: Path, out: Path) -> None:
    """Removes what a crash left of an earlier preparation; one that another process works on is refused."""
    owned.refuse_link(draft)
    if not draft.is_dir():
        return
    with RunFolder(draft).exclusive_lock():
        left = RunFolder(draft).discard()
    if left:
        raise UserError(
            "{draft} stands in the way of {out} and holds files that no run wrote ({left}); move it away",
            draft,
            out,
            ", ".join(left[:3]),
        )


def create_draft(out: Path, recipe: Recipe, origin: dict[str, Any] | None = None) -> RunFolder:
    """A run that is not prepared yet, where nobody's files are. `origin`: the run that it begins with (`from`), what changed
    its model (`build`)."""
    owned.refuse_link(out)
    if not RunFolder.is_run(out):
        owned.require_new_or_empty(out, _("a run"))
        if out.is_dir():
            return RunFolder.create(out, recipe, VERSION, origin)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = sibling_path(out, "making")
        clear_draft(draft, out)
        return RunFolder.create(draft, recipe, VERSION, origin)
    except OSError as error:
        raise UserError("the run's folder {path} cannot be made: {reason}", out, error.strerror) from None


def move_aside(out: Path) -> Path:
    """The run that is to be replaced, under another name; whose place it had is told by a file in it."""
    whole = Path(os.path.abspath(out))
    write_atomically(out / REPLACED, to_json({"name": whole.name}))
    aside = free_name(sibling_path(out, "replaced"))
    os.rename(out, aside)
    return aside


def commit(draft: RunFolder, out: Path) -> tuple[RunFolder, Path | None]:
    """The draft takes its name; the run that had it is set aside, and its new name comes back."""
    if draft.path == out:
        return draft, None
    aside = None
    if RunFolder.is_run(out):
        prepared = RunFolder(out).prepared
        aside = move_aside(out)
        if prepared:
            say(
                _("the run that was in {out} is kept in {aside} until the new one has its first checkpoint", out, aside)
            )
    try:
        os.rename(draft.path, out)  # refuses a folder in which something has appeared
    except OSError:
        if aside is not None:
            os.rename(aside, out)
            (out / REPLACED).unlink(missing_ok=True)
        raise
    fsync(Path(os.path.abspath(out)).parent)
    return RunFolder(out), aside


def missing_parents(out: Path) -> list[Path]:
    """The folders above a run that would be made with it, the nearest first."""
    return [folder for folder in out.absolute().parents if not folder.exists()]


def rollback(
    run: RunFolder, out: Path, aside: Path | None, made: Sequence[Path] = (), *, keep_folder: bool = False
) -> None:
    """A run that cannot start leaves nothing behind, nor the folders above it that were `made` for it and hold nothing; what it
    was to replace is back, and so is an empty folder that was there before."""
    with contextlib.suppress(OSError):
        run.discard(keep_folder=keep_folder)
        if aside is not None:
            os.rename(aside, out)
            (out / REPLACED).unlink(missing_ok=True)
        for folder in made:
            folder.rmdir()


def adopt(out: Path) -> None:
    """A run whose preparation was killed is still under its temporary name; to go on with it, it takes its own."""
    draft = sibling_path(out, "making")
    if out.exists() or draft.is_symlink() or not RunFolder.is_run(draft):
        return
    with RunFolder(draft).exclusive_lock():
        os.rename(draft, out)


@dataclass(frozen=True)
class Replaced:
    """The note in a run that was set aside: whose place it had, and whether it is being dropped."""

    name: str
    dropped: bool = False


def read_replaced(path: Path) -> Replaced | None:
    """Whose place a run had that was set aside; None where it does not say."""
    if path.is_symlink():
        return None
    try:
        note: Replaced = structured.read(path / REPLACED, Replaced, 1 << 16)
    except (OSError, UserError):
        return None
    return note if note.name == Path(note.name).name != "" else None


def replaced(out: Path) -> list[Path]:
    """Runs that were set aside for the one that stands here now, by what they say themselves: `.replaced-x-2` is one of x-2,
    or the second of x."""
    whole = Path(os.path.abspath(out))
    with contextlib.suppress(OSError):
        paths = sorted(p for p in whole.parent.iterdir() if p.name.startswith(".replaced-"))
        return [p for p in paths if (note := read_replaced(p)) is not None and note.name == whole.name]
    return []


def drop(path: Path, name: str) -> None:
    """Removes a run file by file. What somebody else put into its folder stays, under a name that shows, and is told."""
    left = RunFolder(path).discard()
    if left:
        kept = free_name(path.with_name(f"kept-from-{name}"))
        os.rename(path, kept)
        say(_("the old run is gone; what was not its own ({left}) is in {kept}", ", ".join(left[:3]), kept))


def drop_replaced(out: Path) -> None:
    """The new run has its first checkpoint: the old one goes."""
    name = Path(os.path.abspath(out)).name
    for path in replaced(out):
        with contextlib.suppress(OSError):
            write_atomically(path / REPLACED, to_json({"name": name, "dropped": True}))  # half of it is never put back
            drop(path, name)


def to_put_back(out: Path) -> Path | None:
    """The run that was set aside for one that has not come to a checkpoint, if it has weights itself."""
    if os.path.lexists(out) and (RunFolder(out).has_weights or not RunFolder.is_run(out)):
        return None
    kept = (p for p in replaced(out) if RunFolder(p).has_weights and not read_replaced(p).dropped)  # type: ignore[union-attr]
    return next(kept, None)


def put_back(out: Path) -> bool:
    """Until a new run has its first checkpoint, the old one is the run: it takes its place again where the new one has died
    before that. Whether it did; refused, where the new one is being trained."""
    aside = to_put_back(out)
    if aside is None:
        return False
    with contextlib.ExitStack() as held:
        if RunFolder.is_run(out):
            held.enter_context(RunFolder(out).exclusive_lock())
            drop(out, Path(os.path.abspath(out)).name)
        os.rename(aside, out)
        (out / REPLACED).unlink(missing_ok=True)
    say(_("the training that was to replace {out} had no checkpoint yet: the run from before is back", out))
    return True
