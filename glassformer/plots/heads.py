"""What heads are worth, what they look at, how many can go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.plots.maps import cell_maps
from glassformer.plots.style import COLOURS, figure


def number(value: float) -> str:
    """Three digits at most, for a small cell."""
    if np.isnan(value):
        return ""
    for digits in (0, 1, 2, 3):
        if abs(value) >= 10 ** (2 - digits):
            return f"{value:.{digits}f}"
    return "0" if abs(value) < 5e-4 else f"{value:.3f}"


def part_maps(panels: Sequence[tuple[str, np.ndarray]], rows: Sequence[str], columns: Sequence[str]) -> Any:
    """What is lost when a part is cut: a row for each attention, a column for each head and the MLP; one panel a measure."""
    words = [[[number(v) for v in row] for row in values] for _, values in panels]
    return cell_maps(panels, rows, columns, words, across=2, cell=0.46, label="head")


def kind_map(strength: np.ndarray, kinds: Sequence[Sequence[str]], rows: Sequence[str], columns: Sequence[str]) -> Any:
    """What each head looks at, by the name of its kind; the darker, the more clearly."""
    words = [
        [f"{kind}\n{value:.2f}" if kind else "" for kind, value in zip(line, values, strict=True)]
        for line, values in zip(kinds, strength, strict=True)
    ]
    title = "what each head looks at, and how clearly (0 to 1)"
    panels = [(title, strength)]
    return cell_maps(panels, rows, columns, [words], across=1, cell=0.78, tall=0.42, label="head", top=1.0)


def cut_curve(values: Sequence[float], line: float, can_go: int, label: str) -> Any:
    """A score against the number of heads that are gone; `line` is what must be left, `can_go` how many may go."""
    fig, axis = figure(6.4, 3.6)
    axis.plot(range(len(values)), values, color=COLOURS[0], marker="o", markersize=3.5, linewidth=1.4)
    axis.axhline(line, color=COLOURS[1], linestyle="--", linewidth=1.2, label="1% lost")
    axis.axvline(can_go, color=COLOURS[2], linestyle=":", linewidth=1.6, label=f"{can_go} of {len(values) - 1} can go")
    axis.set_xlabel("heads cut, the least important first")
    axis.set_ylabel(label)
    axis.legend(frameon=False)
    if min(values) > 0 and max(values) / min(values) > 20:
        axis.set_yscale("log")
    return fig


def head_distances(
    grid: np.ndarray,
    words: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
    names: tuple[str, str],
) -> Any:
    """Each head of one model, the nearest head of the other, and how far apart they are: 0 the same, 1 nothing in common."""
    title = f"{names[0]}: its heads, the nearest of {names[1]},\nand how far apart they look (0 to 1)"
    return cell_maps([(title, grid)], rows, columns, [words], across=1, cell=0.78, tall=0.42, label="head", top=1.0)
