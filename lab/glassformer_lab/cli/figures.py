"""`glassformer figures`: the figures of the tour."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from glassformer.errors import UserError, writing

# They illustrate the documents and lie with them, in the source and not in an installed package.
DOCS = Path(__file__).parents[3] / "docs"


def figures(out: Path = Path("docs/figures")) -> None:
    """Draw the figures of the parts (docs/tour), each from the part itself.

    Example: figures

    out: The folder they go to, as SVG.
    """
    if not (DOCS / "make_figures.py").is_file():
        raise UserError(
            "the figures of the tour are drawn in a checkout of the source, and this package is installed without it"
        )
    sys.path.insert(0, str(DOCS))
    try:
        with writing(out):
            for path in runpy.run_path(str(DOCS / "make_figures.py"))["draw_all"](out):
                print(path)
    finally:
        sys.path.remove(str(DOCS))
