"""Panels of lines with their spread over seeds, and panels of bars: the figures of the studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassformer.plots.style import COLOURS, figure

Line = tuple[Sequence[int | float], Sequence[Sequence[int | float]]]
"""Where the points are, and for each seed their values."""


@dataclass(frozen=True)
class LinePanel:
    """Lines by their names: the mean over seeds, and a band from the least to the largest."""

    title: str
    across: str
    up: str
    lines: Mapping[str, Line]
    log: str = ""  # the axes that are logarithmic: "x", "y", "xy"
    level: tuple[float, str] | None = None  # a horizontal line to compare with, and its name
    bottom: int | float | None = None


@dataclass(frozen=True)
class BarPanel:
    """Groups of bars: for each group and each name a value a seed."""

    title: str
    up: str
    groups: Sequence[str]
    bars: Mapping[str, Sequence[Sequence[int | float]]]
    level: tuple[float, str] | None = field(default=None)
    log: bool = False


def short(number: int | float) -> str:
    """A number as an axis has it.

    >>> short(16), short(2048), short(10_000), short(1_800_000)
    ('16', '2048', '10k', '1.8M')
    """
    for size, name in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= 10 * size or (number >= size and number % size == 0) or number >= 1e6:
            return f"{number / size:.3g}{name}"
    return f"{number:g}"


def label_points(axis: Any, points: Sequence[int | float]) -> None:
    """A logarithmic x axis with a label under each point where they are few, and under the powers of ten alone otherwise."""
    axis.xaxis.set_minor_formatter("")
    if len(points) <= 6:
        axis.set_xticks(points, [short(point) for point in points])


def label_plainly(axis: Any) -> None:
    """A logarithmic axis of less than two decades has plain numbers: powers of ten would be too few to read it by."""
    low, high = axis.get_view_interval()
    if 0 < high < 100 * low:
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda value, _: f"{value:g}" if high < 4 * low else "")


def draw_lines(axis: Any, panel: LinePanel) -> None:
    """One panel of lines."""
    for (name, (xs, seeds)), colour in zip(panel.lines.items(), COLOURS * 4, strict=False):
        length = min(len(xs), *(len(values) for values in seeds))
        values = np.array([list(one)[:length] for one in seeds], dtype=float)
        marker = "o" if length <= 12 else None
        axis.plot(xs[:length], values.mean(0), color=colour, label=name, marker=marker, markersize=3.5, linewidth=1.5)
        if len(values) > 1:
            axis.fill_between(xs[:length], values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0)
    if "x" in panel.log:
        axis.set_xscale("log")
        label_points(axis, sorted({x for xs, _ in panel.lines.values() for x in xs}))
    if "y" in panel.log:
        axis.set_yscale("log")
        label_plainly(axis.yaxis)
    axis.set_xlabel(panel.across)
    if panel.bottom is not None:
        axis.set_ylim(bottom=panel.bottom)


def draw_bars(axis: Any, panel: BarPanel) -> None:
    """One panel of bars, with a dot a seed."""
    width = 0.8 / max(1, len(panel.bars))
    for i, ((name, groups), colour) in enumerate(zip(panel.bars.items(), COLOURS * 4, strict=False)):
        places = np.arange(len(groups)) + (i - (len(panel.bars) - 1) / 2) * width
        axis.bar(places, [np.mean(values) for values in groups], width * 0.92, color=colour, alpha=0.75, label=name)
        for place, values in zip(places, groups, strict=True):
            axis.plot([place] * len(values), list(values), ".", color="black", markersize=4)
    axis.set_xticks(range(len(panel.groups)), panel.groups, fontsize=8)
    axis.grid(axis="x", visible=False)
    if panel.log:
        axis.set_yscale("log")


def panels(parts: Sequence[LinePanel | BarPanel], across: int = 3) -> Any:
    """Panels side by side, so many in a row."""
    across = min(across, len(parts))
    down = -(-len(parts) // across)
    fig, axes = figure(3.9 * across + 0.3, 3.2 * down + 0.2, nrows=down, ncols=across, squeeze=False)
    for axis in axes.flat[len(parts) :]:
        axis.set_visible(False)
    for axis, part in zip(axes.flat, parts, strict=False):
        if isinstance(part, LinePanel):
            draw_lines(axis, part)
        else:
            draw_bars(axis, part)
        if part.level is not None:
            axis.axhline(part.level[0], color="black", linestyle="--", linewidth=1.0, label=part.level[1])
        axis.set_title(part.title, fontsize=9)
        axis.set_ylabel(part.up, fontsize=8)
        axis.tick_params(labelsize=8)
        below = -0.3 if isinstance(part, LinePanel) or any("\n" in group for group in part.groups) else -0.14
        axis.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(0, below), borderaxespad=0)
    return fig
