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
    top: float | None = None,
) -> Any:
    """Grids of cells with a word or number in each. A cell that does not exist is left blank; darker is more."""
    from matplotlib.colors import PowerNorm

    down = -(-len(panels) // across)
    width = across * (cell * len(columns) + 1.7) + 0.4
    height = down * (tall * len(rows) + 1.15) + 0.2
    fig, axes = figure(width, height, nrows=down, ncols=across, squeeze=False)
    for axis, (title, values), own in zip(axes.flat, panels, words, strict=True):
        most = top or max(1e-9, float(np.nanmax(np.where(np.isnan(values), -np.inf, values))))
        norm = PowerNorm(0.5 if top is None else 1.0, vmin=0, vmax=most, clip=True)
        image = axis.imshow(np.ma.masked_invalid(values), cmap=MAP, norm=norm, aspect="auto")
        axis.grid(False)
        axis.set_title(title, fontsize=9)
        axis.set_xticks(range(len(columns)), columns, fontsize=8)
        axis.set_yticks(range(len(rows)), rows, fontsize=8)
        axis.tick_params(length=0)
        axis.set_xlabel(label, fontsize=8)
        for spine in axis.spines.values():
            spine.set_visible(False)
        for (i, j), value in np.ndenumerate(values):
            if not np.isnan(value):
                red, green, blue, _ = image.cmap(norm(max(0.0, float(value))))
                ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
                axis.text(j, i, own[i][j], ha="center", va="center", fontsize=7.5, color=ink)
    return fig


def number(value: float) -> str:
    """Three digits at most, for a small cell."""
    if np.isnan(value):
        return ""
    for digits in (0, 1, 2, 3):
        if abs(value) >= 10 ** (2 - digits):
            return f"{value:.{digits}f}"
    return "0" if abs(value) < 5e-4 else f"{value:.3f}"


def part_maps(panels: Sequence[tuple[str, np.ndarray]], rows: Sequence[str], columns: Sequence[str]) -> Any:
    """What is lost when a part is cut: a row for each attention, a column for each head and the MLP; one panel a measure."""
    words = [[[number(v) for v in row] for row in values] for _, values in panels]
    return cell_maps(panels, rows, columns, words, across=2, cell=0.46, label="head")


def kind_map(strength: np.ndarray, kinds: Sequence[Sequence[str]], rows: Sequence[str], columns: Sequence[str]) -> Any:
    """What each head looks at, by the name of its kind; the darker, the more clearly."""
    words = [
        [f"{kind}\n{value:.2f}" if kind else "" for kind, value in zip(line, values, strict=True)]
        for line, values in zip(kinds, strength, strict=True)
    ]
    title = "what each head looks at, and how clearly (0 to 1)"
    panels = [(title, strength)]
    return cell_maps(panels, rows, columns, [words], across=1, cell=0.78, tall=0.42, label="head", top=1.0)


def cut_curve(values: Sequence[float], line: float, can_go: int, label: str) -> Any:
    """A score against the number of heads that are gone; `line` is what must be left, `can_go` how many may go."""
    fig, axis = figure(6.4, 3.6)
    axis.plot(range(len(values)), values, color=COLOURS[0], marker="o", markersize=3.5, linewidth=1.4)
    axis.axhline(line, color=COLOURS[1], linestyle="--", linewidth=1.2, label="1% lost")
    axis.axvline(can_go, color=COLOURS[2], linestyle=":", linewidth=1.6, label=f"{can_go} of {len(values) - 1} can go")
    axis.set_xlabel("heads cut, the least important first")
    axis.set_ylabel(label)
    axis.legend(frameon=False)
    if min(values) > 0 and max(values) / min(values) > 20:
        axis.set_yscale("log")
    return fig


def differences(
    scores: Mapping[str, tuple[float, float, float]], higher_is_better: Mapping[str, bool], names: tuple[str, str]
) -> Any:
    """Each score's difference (second less first) with its interval, a panel each since scales differ."""
    fig, axes = figure(7.0, 0.95 * len(scores) + 0.9, nrows=max(1, len(scores)), squeeze=False)
    for axis, (name, (value, low, high)) in zip(axes[:, 0], scores.items(), strict=False):
        clear = low > 0 or high < 0
        better = (value > 0) == higher_is_better[name]
        colour = (COLOURS[2] if better else COLOURS[1]) if clear else "#666666"
        axis.axvline(0, color="black", linewidth=1.0)
        axis.errorbar(
            [value], [0], xerr=[[max(0.0, value - low)], [max(0.0, high - value)]], fmt="o", color=colour, capsize=4
        )
        reach = 1.15 * max(abs(low), abs(high), abs(value), 1e-9)
        axis.set_xlim(-reach, reach)
        axis.set_yticks([0], [name.replace("_", " ")], fontsize=10)
        axis.set_ylim(-1, 1)
        axis.grid(axis="y", visible=False)
        axis.tick_params(labelsize=8)
        verdict = ("better" if better else "worse") if clear else "no clear difference"
        axis.set_title(verdict, loc="right", fontsize=9, fontweight="normal", color=colour)
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


def head_distances(
    grid: np.ndarray,
    words: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
    names: tuple[str, str],
) -> Any:
    """Each head of one model, the nearest head of the other, and how far apart they are: 0 the same, 1 nothing in common."""
    title = f"{names[0]}: its heads, the nearest of {names[1]},\nand how far apart they look (0 to 1)"
    return cell_maps([(title, grid)], rows, columns, [words], across=1, cell=0.78, tall=0.42, label="head", top=1.0)
