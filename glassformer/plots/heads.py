"""What heads are worth, what they look at, how many can go."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.plots.maps import bare, cell_maps, draw_cells
from glassformer.plots.style import COLOURS, figure


def number(value: float) -> str:
    """Three digits at most, for a small cell."""
    if np.isnan(value):
        return ""
    for digits in (0, 1, 2, 3):
        if abs(value) >= 10 ** (2 - digits):
            return f"{value:.{digits}f}"
    return "0" if abs(value) < 5e-4 else f"{value:.3f}"


def part_maps(panels: Sequence[tuple[str, np.ndarray, np.ndarray]], rows: Sequence[str], mlps: Sequence[str]) -> Any:
    """What is lost when a part is cut: for each measure a row for each attention with a column for each head, and beside it the
    MLPs, a row each, in the same colours."""
    from matplotlib.ticker import MaxNLocator

    width = panels[0][1].shape[1]
    down, tall = -(-len(panels) // 2), max(len(rows), len(mlps))
    fig, axes = figure(
        2 * (0.52 * (width + 1) + 3.6),
        down * (0.3 * tall + 1.15) + 0.2,
        nrows=down,
        ncols=4,
        width_ratios=(width, 1) * 2,
    )
    for place, (title, heads, layers) in enumerate(panels):
        pair = np.atleast_2d(axes)[place // 2, place % 2 * 2 : place % 2 * 2 + 2]
        top = max(1e-9, float(np.nanmax(heads)), float(np.nanmax(layers)))
        columns = [str(head) for head in range(width)]
        image = draw_cells(pair[0], heads, rows, columns, number, top)
        draw_cells(pair[1], layers[:, None], mlps, ["MLP"], number, top)
        pair[0].set_title(title, fontsize=9, loc="left")
        pair[0].set_xlabel("head", fontsize=8)
        bar = fig.colorbar(image, ax=list(pair), aspect=30, pad=0.02, ticks=MaxNLocator(4))
        bar.ax.tick_params(labelsize=7)
    return fig


def kind_map(strength: np.ndarray, kinds: Sequence[Sequence[str]], rows: Sequence[str], columns: Sequence[str]) -> Any:
    """What each head looks at: a colour for each kind, the stronger the more clearly."""
    from matplotlib.colors import to_rgb

    names = sorted({kind for line in kinds for kind in line if kind} - {"mixed"})
    colours = dict(zip(names, itertools.cycle(COLOURS[:6]))) | {"mixed": "#888888"}
    fig, axis = figure(0.78 * len(columns) + 2.1, 0.42 * len(rows) + 1.35)
    picture = np.ones((*strength.shape, 3))
    for (i, j), value in np.ndenumerate(strength):
        if kinds[i][j]:
            share = 0.15 + 0.5 * min(1.0, max(0.0, float(value)))
            picture[i, j] = 1 - share * (1 - np.array(to_rgb(colours[kinds[i][j]])))
            axis.text(j, i, f"{kinds[i][j]}\n{value:.2f}", ha="center", va="center", fontsize=7.5)
    axis.imshow(picture, aspect="auto")
    bare(axis, rows, columns)
    axis.set_xlabel("head", fontsize=8)
    axis.set_title(
        "what each head looks at (a colour a kind), and how clearly (0 to 1)", fontsize=9, loc="left", wrap=True
    )
    return fig


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
