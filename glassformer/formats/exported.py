"""A folder that was exported is known by the list of its files, which its glassformer.json holds: only such a folder is ever
replaced."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from glassformer.config import VERSION
from glassformer.errors import UserError
from glassformer.formats.untrusted import LARGEST_JSON, read_json

FACTS = "glassformer.json"


def files_in(folder: Path) -> set[str]:
    """The names of everything that lies in a folder and is no folder."""
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}


def own_export(out: Path) -> Collection[str]:
    """The files of an earlier export that this one may replace; none where there is nothing. Whatever else lies there is
    somebody's, and the folder is refused."""
    if not out.is_dir() or not (found := files_in(out)):
        return ()
    listed = read_json(out, FACTS, LARGEST_JSON).get("files") if (out / FACTS).exists() else None
    if not isinstance(listed, list):
        raise UserError(
            f"{out} was not exported by this command, so --overwrite leaves it alone; choose another folder"
        )
    if others := sorted(found - {*map(str, listed)}):
        raise UserError(
            f"{out} holds {others[0]}, which is no file of the export, so --overwrite leaves it alone; move it away"
        )
    return found


def list_files(folder: Path) -> None:
    """Writes the names of its files into an export, by which it is known as one."""
    facts = read_json(folder, FACTS, LARGEST_JSON) if (folder / FACTS).exists() else {"glassformer": VERSION}
    facts |= {"files": sorted({*files_in(folder), FACTS})}
    (folder / FACTS).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
