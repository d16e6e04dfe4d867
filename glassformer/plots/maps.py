"""Grids of cells: attention maps, tables of heads, effects of patching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glassformer.plots.style import MAP, SIGNED, figure, heading, visible


def attention_maps(
    weights: Sequence[np.ndarray], titles: Sequence[str], rows: Sequence[str], columns: Sequence[str], title: str = ""
) -> Any:
    """One map a head (rows ask, columns answer), side by side."""
    across = min(4, len(weights))
    down = -(-len(weights) // across)
    cell = 0.24
    width = across * max(2.2, cell * len(columns) + 1.2) + 0.8
    height = down * max(2.0, cell * len(rows) + 1.0) + 0.6
    fig, axes = figure(width, height, nrows=down, ncols=across, squeeze=False)
    for axis in axes.flat[len(weights) :]:
        axis.set_visible(False)
    image = None
    for axis, weight, name in zip(axes.flat, weights, titles, strict=False):
        image = axis.imshow(weight, cmap=MAP, vmin=0, vmax=1, aspect="equal")
        axis.grid(False)
        axis.set_title(name, fontsize=9)
        axis.set_xticks(range(len(columns)), [visible(c) for c in columns], fontsize=8)
        axis.set_yticks(range(len(rows)), [visible(r) for r in rows], fontsize=8)
        axis.tick_params(length=0)
    if image is not None:
        fig.colorbar(image, ax=axes, shrink=0.6, label="attention weight")
    if title:
        heading(fig, title)
    return fig


def cell_maps(
    panels: Sequence[tuple[str, np.ndarray]],
    rows: Sequence[str],
    columns: Sequence[str],
    words: Sequence[Sequence[Sequence[str]]],
    *,
    across: int,
    cell: float,
    tall: float = 0.30,
    label: str,
    top: float,
) -> Any:
    """Grids of cells with a word or number in each. A cell that does not exist is left blank; darker is more."""
    down = -(-len(panels) // across)
    width = across * (cell * len(columns) + 1.7) + 0.4
    height = down * (tall * len(rows) + 1.15) + 0.2
    fig, axes = figure(width, height, nrows=down, ncols=across, squeeze=False)
    for axis, (title, values), own in zip(axes.flat, panels, words, strict=True):
        draw_cells(axis, values, rows, columns, own, top, root=False)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(label, fontsize=8)
    return fig


def bare(axis: Any, rows: Sequence[str], columns: Sequence[str]) -> None:
    """A grid's labels, and no lines."""
    axis.grid(False)
    axis.set_xticks(range(len(columns)), columns, fontsize=8)
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def draw_cells(
    axis: Any,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    words: Sequence[Sequence[str]] | Callable[[float], str],
    top: float,
    *,
    root: bool = True,
) -> Any:
    """A grid in which each cell has its word, from 0 to `top`; by the square root, which shows what is little."""
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.5 if root else 1.0, vmin=0, vmax=top, clip=True)
    image = axis.imshow(np.ma.masked_invalid(values), cmap=MAP, norm=norm, aspect="auto")
    bare(axis, rows, columns)
    for (i, j), value in np.ndenumerate(values):
        if not np.isnan(value):
            red, green, blue, _ = image.cmap(norm(max(0.0, float(value))))
            ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
            text = words(float(value)) if callable(words) else words[i][j]
            axis.text(j, i, text, ha="center", va="center", fontsize=7.5, color=ink)
    return image


def small_map(axis: Any, values: np.ndarray, title: str, *, numbers: bool = True, **image: Any) -> Any:
    """A grid with its numbers in it."""
    shown = axis.imshow(values, **{"cmap": MAP, "aspect": "equal"} | image)
    axis.grid(False)
    axis.set_title(title, fontsize=9)
    axis.tick_params(length=0, labelsize=8)
    if numbers:
        for (i, j), value in np.ndenumerate(values):
            red, green, blue, _ = shown.cmap(shown.norm(value))
            ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
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
    shown = None
    for axis, (name, values, rows, columns) in zip(axes[:, 0], panels, strict=True):
        shown = small_map(axis, values, name, numbers=False, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if abs(value) >= 0.05:
                ink = "white" if abs(value) > 0.7 else "black"
                axis.text(j, i, f"{value:.2f}".replace("0.", "."), ha="center", va="center", fontsize=7, color=ink)
        axis.set_xticks(range(len(columns)), [visible(c) for c in columns], fontsize=9)
        axis.set_yticks(range(len(rows)), rows, fontsize=8)
    if shown is not None:
        fig.colorbar(shown, ax=axes, shrink=0.8, label="share of the answer carried")
    if title:
        heading(fig, title)
    return fig
