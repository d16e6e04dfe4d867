"""How a run's folder comes into being, and how one takes another's place.

A run is made in a new or an empty folder. A new one stands beside its place under a temporary name until its data is
prepared, so that what cannot start leaves nothing; an empty one that is there already (a mounted disk, say) is filled where
it is. A run that is to be replaced is set aside when the new one is prepared, and dropped when the new one has its first
checkpoint: file by file, and only what it wrote itself.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from glassformer.config import VERSION, Recipe
from glassformer.errors import UserError
from glassformer.files import owned
from glassformer.files.durable import fsync
from glassformer.runs.folder import RunFolder
from glassformer.screen import say


def beside(out: Path, prefix: str) -> Path:
    """A name beside a folder, whatever way the folder was named."""
    whole = Path(os.path.abspath(out))
    return whole.with_name(f".{prefix}-{whole.name}")


def clear_draft(draft: Path, out: Path) -> None:
    """What a crash left of an earlier preparation goes; one that another process is at is not touched."""
    owned.refuse_link(draft)
    if not draft.is_dir():
        return
    with RunFolder(draft).exclusive_lock():
        left = RunFolder(draft).discard()
    if left:
        raise UserError(
            f"{draft} stands in the way of {out} and holds files that no run wrote ({', '.join(left[:3])}); move it away"
        )


def begin(out: Path, recipe: Recipe, origin: dict[str, Any] | None = None) -> RunFolder:
    """A run that is not prepared yet, where nobody's files are. `origin`: the run that it begins with."""
    owned.refuse_link(out)
    if not RunFolder.is_run(out):
        owned.require_new_or_empty(out, "a run")
        if out.is_dir():
            return RunFolder.create(out, recipe, VERSION, origin)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = beside(out, "making")
        clear_draft(draft, out)
        return RunFolder.create(draft, recipe, VERSION, origin)
    except OSError as error:
        raise UserError(f"the run's folder {out} cannot be made: {error.strerror}") from None


def set_aside(out: Path) -> Path:
    """The run that is to be replaced, under another name."""
    aside = beside(out, "replaced")
    for number in range(2, 1000):
        if not aside.exists():
            break
        aside = beside(out, "replaced").with_name(f"{beside(out, 'replaced').name}-{number}")
    os.rename(out, aside)
    return aside


def put_in_place(draft: RunFolder, out: Path) -> tuple[RunFolder, Path | None]:
    """The draft takes its name; the run that had it is set aside, and its new name comes back."""
    if draft.path == out:
        return draft, None
    aside = None
    if RunFolder.is_run(out):
        prepared = RunFolder(out).prepared
        aside = set_aside(out)
        if prepared:
            say(f"the run that was in {out} is kept in {aside} until the new one has its first checkpoint")
    try:
        os.rename(draft.path, out)  # refuses a folder in which something has appeared
    except OSError:
        if aside is not None:
            os.rename(aside, out)
        raise
    fsync(Path(os.path.abspath(out)).parent)
    return RunFolder(out), aside


def give_up(run: RunFolder, out: Path, aside: Path | None, *, keep_folder: bool = False) -> None:
    """A run that cannot start leaves nothing behind, and what it was to replace is back; so is an empty folder that was
    there before."""
    with contextlib.suppress(OSError):
        run.discard(keep_folder=keep_folder)
        if aside is not None:
            os.rename(aside, out)


def adopt_draft(out: Path) -> None:
    """A run whose preparation was killed is still under its temporary name; to go on with it, it takes its own."""
    draft = beside(out, "making")
    if out.exists() or draft.is_symlink() or not RunFolder.is_run(draft):
        return
    with RunFolder(draft).exclusive_lock():
        os.rename(draft, out)


def replaced(out: Path) -> list[Path]:
    """Runs that were set aside for the one that stands here now."""
    name = re.escape(beside(out, "replaced").name)
    parent = Path(os.path.abspath(out)).parent
    with contextlib.suppress(OSError):
        found = [p for p in parent.iterdir() if re.fullmatch(rf"{name}(-\d+)?", p.name)]
        return sorted(p for p in found if p.is_dir() and not p.is_symlink())
    return []


def drop_replaced(out: Path) -> None:
    """The new run has its first checkpoint: the old one goes. What somebody else put into its folder stays, under a name
    that shows."""
    for path in replaced(out):
        with contextlib.suppress(OSError):
            left = RunFolder(path).discard()
            if left:
                kept = path.with_name(path.name.replace(".replaced-", "kept-from-", 1))
                os.rename(path, kept)
                say(f"the old run is gone; what was not its own ({', '.join(left[:3])}) is in {kept}")
