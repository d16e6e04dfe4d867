"""Curves of a training and histograms of its data; two runs side by side; trainings of several variants with the band over seeds;
what layers cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.plots.style import COLOURS, figure

SMOOTHED = 20  # from so many points on, a smoothed line is drawn over them
WRITTEN = {"bleu": "BLEU", "chrf": "chrF"}
MARKERS = "os^vDPX"
Points = Mapping[int, Sequence[float]]
"""By the step: the value of each seed."""
Lines = Mapping[str, tuple[Sequence[int | float], Sequence[int | float]]]
"""By a name: sizes and values."""


def log_where_wide(axis: Any, values: Sequence[float], ratio: float = 20) -> None:
    """A logarithmic y axis where the largest value is many times the least."""
    if values and min(values) > 0 and max(values) / min(values) > ratio:
        axis.set_yscale("log")


def smoothed(values: Sequence[float]) -> np.ndarray:
    """A centred mean over a twentieth of the curve: it lags behind nothing, unlike a running one."""
    reach = max(1, len(values) // 40)
    total = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    low, high = np.maximum(0, places - reach), np.minimum(len(values), places + reach + 1)
    return (total[high] - total[low]) / (high - low)


def curves(records: Sequence[Mapping[str, Any]], score: str | None = None, title: str = "") -> Any:
    """Loss, learning rate and a score against the step, from the lines of metrics.jsonl."""
    panels = 3 if score else 2
    fig, axes = figure(9.0, 2.2 + 1.6 * (panels - 1), nrows=panels, sharex=True)
    loss_axis, rate_axis = axes[0], axes[1]

    def draw(axis: Any, key: str, colour: int, label: str, **style: Any) -> list[float]:
        """Draws what was logged under a key; its values."""
        points = [(record["step"], record[key]) for record in records if key in record]
        if points:
            axis.plot(*zip(*points), color=COLOURS[colour], label=label, **style)
        return [value for _, value in points]

    many = sum("loss" in record for record in records) >= SMOOTHED
    losses = draw(loss_axis, "loss", 0, "training", linewidth=1.0, alpha=0.35 if many else 1.0)
    if many:
        steps = [record["step"] for record in records if "loss" in record]
        loss_axis.plot(steps, smoothed(losses), color=COLOURS[0], label="training, smoothed", linewidth=1.6)
    measured = {"marker": "o", "markersize": 4, "linestyle": ":", "linewidth": 0.8}  # between two nothing was measured
    draw(loss_axis, "val_loss", 1, "validation", **measured)
    loss_axis.set_ylabel("loss (nats a token)")
    log_where_wide(loss_axis, losses)
    if loss_axis.get_lines():
        loss_axis.legend(frameon=False)
    loss_axis.set_title(title)
    draw(rate_axis, "lr", 2, "learning rate", linewidth=1.4)
    rate_axis.set_ylabel("learning rate")
    if score:
        draw(axes[2], f"val_{score}", 3, score, **measured)
        axes[2].set_ylabel(score.replace("_", " ") + (" (%)" if score in ("exact_match", "accuracy", "f1") else ""))
    axes[-1].set_xlabel("step")
    return fig


def histogram(lengths: Mapping[str, Sequence[int]], title: str, label: str) -> Any:
    """Lengths of several lists in one histogram."""
    fig, axis = figure(7.0, 3.4)
    top = max((max(v) for v in lengths.values() if len(v)), default=1)
    bins = np.linspace(0, top + 1, min(60, top + 2))
    for (name, values), colour in zip(lengths.items(), COLOURS, strict=False):
        axis.hist(values, bins=bins, histtype="step", color=colour, label=name, linewidth=1.5)
    axis.set_title(title)
    axis.set_xlabel(label)
    axis.set_ylabel("lines")
    axis.legend(frameon=False)
    return fig


# ---- two runs


def written(name: str) -> str:
    """A score's name as it is written."""
    return WRITTEN.get(name, name.replace("_", " "))


def differences(
    scores: Mapping[str, tuple[float, float, float]], higher_is_better: Mapping[str, bool], names: tuple[str, str]
) -> Any:
    """Each score's difference (second less first) with its interval, a panel each since scales differ."""
    fig, axes = figure(8.4, 1.15 * len(scores) + 0.9, nrows=max(1, len(scores)), squeeze=False)
    for axis, (name, (value, low, high)) in zip(axes[:, 0], scores.items(), strict=False):
        clear = low > 0 or high < 0
        better = (value > 0) == higher_is_better[name]
        colour = (COLOURS[2] if better else COLOURS[1]) if clear else "#666666"
        axis.axvline(0, color="black", linewidth=1.0)
        reaches = [[max(0.0, value - low)], [max(0.0, high - value)]]
        axis.errorbar([value], [0], xerr=reaches, fmt="o", color=colour, capsize=4)
        reach = 1.15 * max(abs(low), abs(high), abs(value)) or 1.0
        axis.set_xlim(-reach, reach)
        axis.set_yticks([0], [written(name)], fontsize=10)
        axis.set_ylim(-1, 1)
        axis.grid(axis="y", visible=False)
        axis.tick_params(labelsize=8)
        verdict = ("better" if better else "worse") if clear else "no clear difference"
        axis.set_xlabel(f"difference in {written(name)}", fontsize=8)
        axis.annotate(verdict, (1.01, 0.5), xycoords="axes fraction", fontsize=9, color=colour, va="center")
    axes[0, 0].set_title(f"{names[1]} less {names[0]}", loc="left", fontsize=10)
    return fig


def losses_apart(first: np.ndarray, second: np.ndarray, names: tuple[str, str]) -> Any:
    """A point for each example: its loss under the one and under the other; below the line the second is better."""
    fig, axis = figure(5.2, 4.8)
    least, most = float(min(first.min(), second.min())), float(max(first.max(), second.max()))
    log = least > 0 and most / least > 50
    if log:
        axis.set_xscale("log")
        axis.set_yscale("log")
    axis.plot([least, most], [least, most], color="black", linewidth=1.0)
    axis.scatter(first, second, s=14, color=COLOURS[0], alpha=0.6, linewidths=0)
    axis.set_xlabel(f"loss under {names[0]} (nats a token)")
    axis.set_ylabel(f"loss under {names[1]}")
    won = int((second < first).sum())
    axis.set_title(f"{names[1]} is better on {won} of {len(first)}", fontsize=10)
    return fig


# ---- several variants


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
        for axis, variants in ((left, panel.losses), (right, panel.scores)):
            for number, (name, points) in enumerate(variants.items()):
                colour = COLOURS[(number - 1) % (len(COLOURS) - 1)] if number else "#000000"
                band(axis, points, colour, name, linestyle="-" if number <= len(COLOURS) - 1 else "--")
            axis.set_xlabel("step", fontsize=8)
            axis.tick_params(labelsize=8)
        log_where_wide(left, [v for points in panel.losses.values() for of_seeds in points.values() for v in of_seeds])
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
