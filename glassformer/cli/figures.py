"""`glassformer figures`: the figures of the tour."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassformer.errors import UserError


def figures(out: Annotated[Path, typer.Argument(help="The folder they go to, as SVG.")] = Path("docs/figures")) -> None:
    """Draw the figures of the parts (docs/tour), each from the part itself."""
    from glassformer.studies.figures import draw_all

    try:
        for path in draw_all(out):
            print(path)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from None
