"""Curves of a training, and histograms of its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.plots.style import COLOURS, figure

SMOOTHED = 20  # from so many points on, a smoothed line is drawn over them


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

    def draw(axis: Any, key: str, colour: str, label: str, **style: Any) -> None:
        points = [(r["step"], r[key]) for r in records if key in r]
        if points:
            steps, values = zip(*points, strict=True)
            axis.plot(steps, values, color=colour, label=label, **style)

    points = [(r["step"], r["loss"]) for r in records if "loss" in r]
    if points:
        steps, losses = zip(*points, strict=True)
        many = len(losses) >= SMOOTHED
        loss_axis.plot(steps, losses, color=COLOURS[0], label="training", linewidth=1.0, alpha=0.35 if many else 1.0)
        if many:
            loss_axis.plot(steps, smoothed(losses), color=COLOURS[0], label="training, smoothed", linewidth=1.6)
    measured = {"marker": "o", "markersize": 4, "linestyle": ":", "linewidth": 0.8}  # between two nothing was measured
    draw(loss_axis, "val_loss", COLOURS[1], "validation", **measured)
    loss_axis.set_ylabel("loss (nats a token)")
    values = [r["loss"] for r in records if "loss" in r]
    if values and min(values) > 0 and max(values) / min(values) > 20:
        loss_axis.set_yscale("log")
    if loss_axis.get_lines():
        loss_axis.legend(frameon=False)
    loss_axis.set_title(title)
    draw(rate_axis, "lr", COLOURS[2], "learning rate", linewidth=1.4)
    rate_axis.set_ylabel("learning rate")
    if score:
        draw(axes[2], f"val_{score}", COLOURS[3], score, **measured)
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
