"""`look` as a folder: look.html and a picture of each view."""

from __future__ import annotations

from pathlib import Path

from glassformer.errors import UserError
from glassformer.files.durable import write_atomically
from glassformer.files.owned import OwnedFiles
from glassformer.studies.look.data import page_data
from glassformer.studies.look.inside import Inside
from glassformer.studies.page.bundle import page_html


def write_report(inside: Inside, title: str, folder: Path, *, pictures: bool = True) -> list[Path]:
    """look.html and the pictures; the paths that were written."""
    from glassformer.studies.look.pictures import save_pictures

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (page,) = OwnedFiles(folder).claim("look.html")
        write_atomically(page, page_html(page_data(inside, title)).encode("utf-8", "replace"))
        return [page, *(save_pictures(inside, folder) if pictures else [])]
    except OSError as error:
        raise UserError(f"the report cannot be written to {folder}: {error.strerror}") from None
