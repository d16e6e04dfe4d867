"""The house style of every figure, and how one is saved: as PNG (to look at) and SVG (to print).

Colours are those of Okabe and Ito (2008), told apart by colour-blind readers, and one perceptually even map, the page's: from
white over "magma" reversed to a dark purple. Light is little, dark is much, and it survives a black-and-white printer.
"""

from __future__ import annotations

import logging
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassformer.errors import UserError
from glassformer.plots import fonts

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


MAP = "glassformer"  # registered by `figure`
SIGNED = "PuOr_r"  # purple below zero, orange above, as in the page


def figure(width: float = 7.0, height: float = 4.0, **layout: Any) -> tuple[Any, Any]:
    """A figure and its axes, in the house style and without a display."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    if MAP not in matplotlib.colormaps:
        matplotlib.colormaps.register(size_colours())
    style: dict[Any, Any] = {
        "font.family": fonts.families(),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "svg.fonttype": "path",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
    }
    with matplotlib.rc_context(style):
        fig = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(fig)
        return fig, fig.subplots(**layout)


def size_colours() -> Any:
    """The page's colours of sizes as a colour map."""
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    magma = matplotlib.colormaps["magma"]
    shares = [0.08 + 0.92 * i / 17 for i in range(18)]
    stops = [(0.0, (1.0, 1.0, 1.0)), *((share, magma((19 - i) / 20)[:3]) for i, share in enumerate(shares))]
    return LinearSegmentedColormap.from_list(MAP, stops)


def pale_colours() -> Any:
    """The lighter half of the map, on which black letters are read."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("pale", size_colours()([i / 20 * 0.32 for i in range(21)]))


def heading(fig: Any, text: str, size: int = 11) -> None:
    """The title of a whole figure, in as many lines as its width asks for: a bold letter is about two thirds of its size wide."""
    letters = max(12, int(fig.get_figwidth() * 72 / (0.68 * size)))
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, letters) or [""]]
    fig.suptitle("\n".join(lines), fontsize=size, fontweight="bold")


MARK = "glassformer"


def refuse_foreign(path: Path) -> None:
    """A picture is replaced only by a later one of its kind: each carries a mark, and what has none is somebody else's."""
    if path.is_symlink():
        raise UserError("{path} is a link, and links are not drawn through; remove it, or choose another place", path)
    if path.is_file():
        with path.open("rb") as file:
            if MARK.encode() not in file.read(1 << 14):
                raise UserError(
                    "{path} is there already and was not drawn by {mark}; move it away, or choose another place",
                    path,
                    MARK,
                )


MISSING: set[str] = set()
"""Characters that no font had since somebody last asked (`missing_glyphs`)."""


@contextmanager
def missing_glyphs() -> Iterator[set[str]]:
    """Inside, the characters that `save` found in no font are collected: they are boxes in the pictures."""
    MISSING.clear()
    yield MISSING


DPI = 150
"""Of a PNG; an SVG has no pixels."""


def write(fig: Any, paths: Sequence[Path]) -> set[str]:
    """Writes the figure to each path, laid out once for all; the characters that no font had. (`savefig` lays it out for each
    file and draws it twice, which takes seconds where there are many labels.)"""
    import warnings

    import matplotlib
    from matplotlib.backend_bases import get_registered_canvas_class

    missing, layout = set(), fig.get_layout_engine()
    with warnings.catch_warnings(record=True) as caught, matplotlib.rc_context({"svg.hashsalt": MARK}):
        warnings.simplefilter("always")
        fig.set_dpi(DPI)
        try:
            for path in paths:
                kind = path.suffix.removeprefix(".")
                marks = {"Date": None, "Creator": MARK} if kind == "svg" else {"Software": MARK}
                getattr(get_registered_canvas_class(kind)(fig), f"print_{kind}")(path, metadata=marks)
                fig.set_layout_engine("none")
        finally:
            fig.set_layout_engine(layout)
    for one in caught:
        found = re.match(r"Glyph (\d+) .* missing", str(one.message))
        if found:
            missing.add(chr(int(found[1])))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return missing


def save(fig: Any, stem: Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """The same figure leaves the same bytes: an SVG has no date, and its inner names follow from its content. Characters that the
    fonts of the house lack are written in whatever font of this machine has them."""
    from matplotlib.text import Text

    if not stem.name:
        raise UserError("a picture needs the name of a file to go to, and {stem!r} has none", str(stem))
    paths = [stem.with_suffix(f".{kind}") for kind in kinds]
    for path in paths:
        refuse_foreign(path)
    missing = write(fig, paths)
    if missing:
        new = fonts.look_up(missing)
        others = [text for text in fig.findobj(Text) if text.get_fontfamily() != fonts.families()]
        for text in others:
            text.set_fontfamily(fonts.families())
        missing = write(fig, paths) if new or others else missing
    MISSING.update(missing)
    return paths


def visible(piece: str) -> str:
    """A piece as a label: a space must be seen."""
    return piece.replace(" ", "␣").replace("\n", "⏎") or "·"
