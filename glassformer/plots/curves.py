"""Curves of a training and histograms of its data; two runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.plots.style import COLOURS, figure

SMOOTHED = 20  # from so many points on, a smoothed line is drawn over them
WRITTEN = {"bleu": "BLEU", "chrf": "chrF"}


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
