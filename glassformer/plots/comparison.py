"""Two runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassformer.plots.style import COLOURS, figure

WRITTEN = {"bleu": "BLEU", "chrf": "chrF"}


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
        axis.errorbar(
            [value], [0], xerr=[[max(0.0, value - low)], [max(0.0, high - value)]], fmt="o", color=colour, capsize=4
        )
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
