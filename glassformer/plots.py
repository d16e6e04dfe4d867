"""Arrays in, figures out. Every figure is saved as PNG (to look at) and SVG (to print).

Colours are those of Okabe and Ito (2008), told apart by colour-blind readers, and one perceptually even map (viridis'
relative "magma" reversed: light is little, dark is much, and it survives a black-and-white printer).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MAP = "magma_r"
FONTS = [
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans",
    "Noto Sans Devanagari",
    "PingFang SC",
    "sans-serif",
]


def figure(width: float = 7.0, height: float = 4.0, **layout: Any) -> tuple[Any, Any]:
    """A figure and its axes, in the house style and without a display."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    style: dict[Any, Any] = {
        "font.family": FONTS,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "svg.fonttype": "path",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
    }
    with matplotlib.rc_context(style):
        fig = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(fig)
        return fig, fig.subplots(**layout)


def save(fig: Any, stem: Path) -> list[Path]:
    import warnings

    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing"
        )  # a font without that script is not our reader's fault
        for path in paths:
            fig.savefig(path, dpi=150)
    return paths


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

    draw(loss_axis, "loss", COLOURS[0], "training", linewidth=1.4)
    draw(loss_axis, "val_loss", COLOURS[1], "validation", marker="o", markersize=4, linewidth=1.2)
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
        draw(axes[2], f"val_{score}", COLOURS[3], score, marker="o", markersize=4)
        axes[2].set_ylabel(score.replace("_", " ") + (" (%)" if score in ("exact_match", "accuracy", "f1") else ""))
    axes[-1].set_xlabel("step")
    return fig


def attention_maps(
    weights: Sequence[np.ndarray],
    titles: Sequence[str],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
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
        fig.suptitle(title, fontsize=11, fontweight="bold")
    return fig


def visible(piece: str) -> str:
    """A piece as a label: a space must be seen."""
    return piece.replace(" ", "␣").replace("\n", "⏎") or "·"


def histogram(lengths: Mapping[str, Sequence[int]], title: str, label: str) -> Any:
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
