"""`look` as a folder: look.html and a picture of each view."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from glassformer.errors import UserError
from glassformer.files.durable import write_atomically
from glassformer.files.owned import OwnedFiles
from glassformer.inspection.data import page_data
from glassformer.inspection.inspection import Inspection
from glassformer.inspection.page import page_html
from glassformer.language import _


@dataclass(frozen=True)
class LookReport:
    """What was written, the page first, and what a reader of it should know."""

    paths: list[Path]
    notes: list[str] = field(default_factory=list)


def write_report(
    inside: Inspection,
    title: str,
    folder: Path,
    *,
    pictures: bool = True,
    beside: Inspection | None = None,
    beside_title: str = "",
) -> LookReport:
    """look.html and the pictures. `beside`: a second report in the same page, to the right of the first."""
    from glassformer import plots
    from glassformer.inspection.pictures import save_pictures

    data = page_data(inside, title)
    if beside is not None:
        data["beside"] = page_data(beside, beside_title)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (page,) = OwnedFiles(folder).claim("look.html")
        write_atomically(page, page_html(data).encode("utf-8", "replace"))
        if not pictures:
            return LookReport([page])
        with plots.missing_glyphs() as missing:
            paths = [page, *save_pictures(inside, folder)]
    except OSError as error:
        raise UserError("the report cannot be written to {folder}: {reason}", folder, error.strerror) from None
    notes = []
    if missing:
        shown = " ".join(sorted(missing)[:8])
        notes.append(
            _(
                "no font here has {shown}, so the pictures show boxes in their place (the page does not); install fonts that "
                "have them, such as the packages fonts-noto-cjk and fonts-noto-core",
                shown,
            )
        )
    return LookReport(paths, notes)
