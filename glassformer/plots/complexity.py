"""What layers cost, over length and width, and how far their gradients reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glassformer.plots.style import COLOURS, figure

Lines = Mapping[str, tuple[Sequence[int | float], Sequence[int | float]]]
"""By a name: sizes and values."""

MARKERS = "os^vDPX"


def cost_curves(time_over_n: Lines, time_over_d: Lines, memory_over_n: Lines, reach: Lines, reach_title: str) -> Any:
    """Four panels on logarithmic scales, in which a power is a straight line and its exponent the slope. A name has one colour in
    all of them."""
    fig, axes = figure(10.5, 7.2, nrows=2, ncols=2)
    known = list(dict.fromkeys([*time_over_n, *time_over_d, *memory_over_n, *reach]))
    panels = (
        (time_over_n, "time of a forward and a backward pass (s)", "length n"),
        (time_over_d, "time of a forward and a backward pass (s)", "width d"),
        (memory_over_n, "memory (bytes)", "length n"),
        (reach, reach_title, "layers"),
    )
    for axis, (lines, title, label) in zip(axes.flat, panels, strict=True):
        for name, (x, y) in lines.items():
            number = known.index(name)
            style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
            axis.plot(x, y, label=name, linewidth=1.2, markersize=3.5, **style)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=10 if axis is not axes[1, 1] else 2)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(label, fontsize=9)
        axis.tick_params(labelsize=8)
    axes[0, 0].legend(frameon=False, fontsize=7)
    axes[1, 1].legend(frameon=False, fontsize=7)
    return fig
