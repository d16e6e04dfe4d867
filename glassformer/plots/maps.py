"""Grids of cells: attention maps, effects of patching; what heads are worth, what they look at, how many can go."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.plots.curves import log_where_wide
from glassformer.plots.style import COLOURS, MAP, SIGNED, figure, heading, visible


def bare(axis: Any, rows: Sequence[str], columns: Sequence[str]) -> None:
    """A grid's labels, and no lines."""
    axis.grid(False)
    axis.set_xticks(range(len(columns)), columns, fontsize=8)
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def readable_ink(image: Any, value: float) -> str:
    """Black or white, whichever is read better on the colour of this value."""
    red, green, blue, _ = image.cmap(image.norm(value))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def number(value: float) -> str:
    """Three digits at most, for a small cell."""
    if np.isnan(value):
        return ""
    for digits in (0, 1, 2, 3):
        if abs(value) >= 10 ** (2 - digits):
            return f"{value:.{digits}f}"
    return "0" if abs(value) < 5e-4 else f"{value:.3f}"


def draw_cells(axis: Any, values: np.ndarray, rows: Sequence[str], columns: Sequence[str], top: float) -> Any:
    """A grid in which each cell has its number, from 0 to `top`; by the square root, which shows what is little."""
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.5, vmin=0, vmax=top, clip=True)
    image = axis.imshow(np.ma.masked_invalid(values), cmap=MAP, norm=norm, aspect="auto")
    bare(axis, rows, columns)
    for (i, j), value in np.ndenumerate(values):
        if not np.isnan(value):
            ink = readable_ink(image, max(0.0, float(value)))
            axis.text(j, i, number(float(value)), ha="center", va="center", fontsize=7.5, color=ink)
    return image


def small_map(axis: Any, values: np.ndarray, title: str, *, numbers: bool = True, **image: Any) -> Any:
    """A grid with its numbers in it."""
    shown = axis.imshow(values, **{"cmap": MAP, "aspect": "equal"} | image)
    axis.grid(False)
    axis.set_title(title, fontsize=9)
    axis.tick_params(length=0, labelsize=8)
    if numbers:
        for (i, j), value in np.ndenumerate(values):
            ink = readable_ink(shown, value)
            axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=ink)
    return shown


def effects(panels: Sequence[tuple[str, np.ndarray, Sequence[str], Sequence[str]]], title: str = "") -> Any:
    """Effect maps, one under the other: (title, layers x positions, layer names, token labels) each."""
    widest = max(len(columns) for *_, columns in panels)
    fig, axes = figure(
        max(5.0, 0.42 * widest + 2.6),
        sum(0.34 * len(rows) + 1.0 for _, _, rows, _ in panels) + 0.5,
        nrows=len(panels),
        squeeze=False,
        height_ratios=[len(rows) + 1.5 for _, _, rows, _ in panels],
    )
    for axis, (name, values, rows, columns) in zip(axes[:, 0], panels, strict=True):
        shown = small_map(axis, values, name, numbers=False, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if abs(value) >= 0.05:
                ink = "white" if abs(value) > 0.7 else "black"
                axis.text(j, i, f"{value:.2f}".replace("0.", "."), ha="center", va="center", fontsize=7, color=ink)
        axis.set_xticks(range(len(columns)), [visible(c) for c in columns], fontsize=9)
        axis.set_yticks(range(len(rows)), rows, fontsize=8)
    fig.colorbar(shown, ax=axes, shrink=0.8, label="share of the answer carried")
    heading(fig, title)
    return fig


# ---- heads


def part_maps(panels: Sequence[tuple[str, np.ndarray, np.ndarray]], rows: Sequence[str], mlps: Sequence[str]) -> Any:
    """What is lost when a part is cut: for each measure a row for each attention with a column for each head, and beside it the
    MLPs, a row each, in the same colours."""
    from matplotlib.ticker import MaxNLocator

    width = panels[0][1].shape[1]
    down, tall = -(-len(panels) // 2), max(len(rows), len(mlps))
    size = 2 * (0.52 * (width + 1) + 3.6), down * (0.3 * tall + 1.15) + 0.2
    fig, axes = figure(*size, nrows=down, ncols=4, width_ratios=(width, 1) * 2)
    for place, (title, heads, layers) in enumerate(panels):
        pair = np.atleast_2d(axes)[place // 2, place % 2 * 2 : place % 2 * 2 + 2]
        top = max(1e-9, float(np.nanmax(heads)), float(np.nanmax(layers)))
        columns = [str(head) for head in range(width)]
        image = draw_cells(pair[0], heads, rows, columns, top)
        draw_cells(pair[1], layers[:, None], mlps, ["MLP"], top)
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
    title = "what each head looks at (a colour a kind), and how clearly (0 to 1)"
    axis.set_title(title, fontsize=9, loc="left", wrap=True)
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
    log_where_wide(axis, values)
    return fig
