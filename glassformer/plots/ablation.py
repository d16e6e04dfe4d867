"""Trainings of several variants: their curves with the band over seeds, and the gradient of every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.plots.style import COLOURS, figure

Points = Mapping[int, Sequence[float]]
"""By the step: the value of each seed."""


@dataclass(frozen=True)
class CurvePanel:
    """The curves of a group of variants: training loss and the score of the validations; the first is the base."""

    title: str
    losses: Mapping[str, Points]
    scores: Mapping[str, Points]
    score_name: str


def band(axis: Any, points: Points, colour: str, label: str, **style: Any) -> None:
    """The mean over seeds, and around it all that lies between the lowest and the highest."""
    steps = sorted(points)
    if not steps:
        return
    means = [float(np.mean(points[s])) for s in steps]
    axis.plot(steps, means, color=colour, label=label, linewidth=1.4, **style)
    if any(len(points[s]) > 1 for s in steps):
        low, high = [float(np.min(points[s])) for s in steps], [float(np.max(points[s])) for s in steps]
        axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)


def ablation_curves(panels: Sequence[CurvePanel]) -> Any:
    """A row for each group: on the left the loss in training, on the right the score of the validations; the base in black."""
    fig, axes = figure(10.0, 2.9 * max(1, len(panels)), nrows=max(1, len(panels)), ncols=2, squeeze=False)
    for (left, right), panel in zip(axes, panels, strict=False):
        for axis, found in ((left, panel.losses), (right, panel.scores)):
            colours = ["#000000", *[COLOURS[i % (len(COLOURS) - 1)] for i in range(len(found))]]
            for number, (name, points) in enumerate(found.items()):
                style = {"linestyle": "-" if number <= len(COLOURS) - 1 else "--"}
                band(axis, points, colours[number], name, **style)
            axis.set_xlabel("step", fontsize=8)
            axis.tick_params(labelsize=8)
        values = [v for points in panel.losses.values() for own in points.values() for v in own]
        if values and min(values) > 0 and max(values) / min(values) > 20:
            left.set_yscale("log")
        left.set_title(panel.title, fontsize=10, loc="left")
        left.set_ylabel("training loss (nats)", fontsize=8)
        right.set_ylabel(panel.score_name.replace("_", " ") + " on val", fontsize=8)
        if right.get_legend_handles_labels()[0]:
            right.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def layer_gradients(variants: Mapping[str, Mapping[str, Points]], columns: int = 4) -> Any:
    """A panel for each variant, a line for each layer: the norm of its gradient over training, the mean over seeds. Light is
    near the input, dark near the output; the encoder's layers are drawn through, the decoder's dashed."""
    import matplotlib

    columns = min(columns, max(1, len(variants)))
    rows = -(-max(1, len(variants)) // columns)
    fig, axes = figure(2.7 * columns + 1.2, 2.3 * rows, nrows=rows, ncols=columns, squeeze=False, sharey=True)
    shades = matplotlib.colormaps["viridis_r"]
    for axis, (name, layers) in zip(axes.flat, variants.items(), strict=False):
        for number, (layer, points) in enumerate(layers.items()):
            steps = sorted(points)
            dashed = layer.startswith("decoder") and any(other.startswith("encoder") for other in layers)
            shade = shades(0.15 + 0.85 * number / max(1, len(layers) - 1))
            means = [float(np.mean(points[s])) for s in steps]
            axis.plot(steps, means, color=shade, linewidth=1.1, linestyle="--" if dashed else "-", label=layer)
        axis.set_yscale("log")
        axis.set_title(name, fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in list(axes.flat)[len(variants) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("gradient norm", fontsize=8)
    most = max(axes.flat, key=lambda a: len(a.get_lines()))
    if most.get_lines():
        fig.legend(*most.get_legend_handles_labels(), frameon=False, fontsize=7, loc="outside right center")
    return fig
