"""Arrays in, figures out. Every figure is saved as PNG (to look at) and SVG (to print).

Colours are those of Okabe and Ito (2008), told apart by colour-blind readers, and one perceptually even map (viridis'
relative "magma" reversed: light is little, dark is much, and it survives a black-and-white printer).
"""

from __future__ import annotations

import logging
import textwrap
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


def heading(fig: Any, text: str, size: int = 11) -> None:
    """The title of a whole figure, in as many lines as its width asks for: a bold letter is about two thirds of its size wide."""
    letters = max(12, int(fig.get_figwidth() * 72 / (0.68 * size)))
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, letters) or [""]]
    fig.suptitle("\n".join(lines), fontsize=size, fontweight="bold")


def save(fig: Any, stem: Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """The same figure leaves the same bytes: an SVG has no date, and its inner names follow from its content."""
    import warnings

    import matplotlib

    paths = [stem.with_suffix(f".{kind}") for kind in kinds]
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "glassformer"}):
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing"
        )  # a font without that script is not our reader's fault
        for path in paths:
            fig.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
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
        heading(fig, title)
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
        reach = 1.15 * max(abs(low), abs(high), abs(value)) or 1.0
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


# ---- figures of the parts (studies/figures.py makes their arrays)


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


def worked_attention(found: Mapping[str, np.ndarray]) -> Any:
    fig, axes = figure(9.0, 3.1, ncols=3, width_ratios=[4, 4, 2.2])
    tokens = [f"token {i}" for i in range(len(found["scores"]))]
    small_map(axes[0], found["scores"], "scores: Q K$^T$ / √d", vmin=-2.5, vmax=4.5)
    small_map(axes[1], found["weights"], "weights: softmax of each row,\nnothing from the future", vmin=0, vmax=1)
    small_map(axes[2], found["output"], "output: weights V", vmin=-1.5, vmax=2)
    for axis in axes[:2]:
        axis.set_xticks(range(4), [f"key {i}" for i in range(4)])
        axis.set_yticks(range(4), tokens if axis is axes[0] else [""] * 4)
    axes[2].set_xticks(range(2), ["dim 0", "dim 1"])
    axes[2].set_yticks(range(4), [""] * 4)
    return fig


def softmax_scaling(found: Mapping[str, Any]) -> Any:
    fig, axes = figure(10.0, 3.2, ncols=3)
    titles = {
        "spread": "standard deviation of the scores",
        "largest": "the largest of ten weights",
        "gradient": "gradient that gets through\n(size of d weights / d scores)",
    }
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for name, colour, marker in (("with", COLOURS[0], "o"), ("without", COLOURS[1], "s")):
            axis.plot(found["sizes"], found[name][key], color=colour, marker=marker, markersize=4, label=f"{name} 1/√d")
        axis.set_xscale("log", base=2)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("head size d")
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
    axes[0].legend(frameon=False, fontsize=9)
    return fig


def masks(found: Mapping[str, np.ndarray]) -> Any:
    from matplotlib.colors import ListedColormap

    fig, axes = figure(8.4, 5.8, nrows=2, ncols=3)
    for axis, (name, mask) in zip(axes.flat, found.items(), strict=True):
        axis.imshow(mask, cmap=ListedColormap(["#eeeeee", COLOURS[0]]), vmin=0, vmax=1)
        axis.grid(False)
        axis.set_title(name, fontsize=10)
        axis.set_xticks(np.arange(-0.5, len(mask)), [])
        axis.set_yticks(np.arange(-0.5, len(mask)), [])
        axis.grid(True, color="white", linewidth=1.5)
        axis.set_axisbelow(False)
        axis.tick_params(length=0)
        axis.set_xlabel("key: source token" if "cross" in name else "key", fontsize=9)
        axis.set_ylabel("query: target token" if "cross" in name else "query", fontsize=9)
    heading(fig, "who may see whom (blue: allowed)")
    return fig


def sinusoids(table: np.ndarray, products: Mapping[int, np.ndarray], mark: tuple[int, int]) -> Any:
    fig, axes = figure(10.0, 3.6, ncols=2)
    shown = axes[0].imshow(table, cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
    axes[0].grid(False)
    axes[0].set_xlabel("dimension")
    axes[0].set_ylabel("position")
    axes[0].set_title("the table, width 128", fontsize=10)
    fig.colorbar(shown, ax=axes[0], shrink=0.8)
    for (width, values), colour in zip(products.items(), COLOURS, strict=False):
        axes[1].plot(values, color=colour, linewidth=1.2, label=f"width {width}")
    width, distance = mark
    value = float(products[width][distance])
    axes[1].plot([distance], [value], "o", color="black", markersize=5)
    axes[1].annotate(
        f"{value:.2f} at distance {distance}",
        (distance, value),
        xytext=(distance + 110, value + 0.2),
        fontsize=9,
        arrowprops={"arrowstyle": "-", "color": "black", "linewidth": 0.8},
    )
    axes[1].axhline(0, color="black", linewidth=0.8)
    axes[1].set_xlabel("distance")
    axes[1].set_ylabel("PE(p) · PE(q), as a share of the largest")
    axes[1].set_title("what tends to zero, and how slowly", fontsize=10)
    axes[1].legend(frameon=False)
    return fig


def rotary(angles: np.ndarray, products: np.ndarray) -> Any:
    fig, axes = figure(10.0, 3.6, ncols=2)
    shown = axes[0].imshow(angles, cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
    axes[0].set_xlabel("position")
    axes[0].set_ylabel("pair of dimensions")
    axes[0].set_title("cosine of the angle each pair is turned by", fontsize=10)
    fig.colorbar(shown, ax=axes[0], shrink=0.8)
    shown = axes[1].imshow(products, cmap=MAP, aspect="equal")
    axes[1].set_xlabel("position of the key")
    axes[1].set_ylabel("position of the query")
    axes[1].set_title("one query, one key, every place:\nonly the distance counts", fontsize=10)
    fig.colorbar(shown, ax=axes[1], shrink=0.8)
    for axis in axes:
        axis.grid(False)
    return fig


def alibi(lines: np.ndarray) -> Any:
    fig, axis = figure(6.0, 3.4)
    for head, (line, colour) in enumerate(zip(lines, COLOURS, strict=False)):
        axis.plot(line, color=colour, linewidth=1.4)
        axis.text(len(line) - 0.5, line[-1], f"head {head}", fontsize=8, va="center", color=colour)
    axis.set_xlim(0, len(lines[0]) + 4)
    axis.set_xlabel("distance from query to key")
    axis.set_ylabel("added to the score")
    axis.set_title("ALiBi: each head has its own slope", fontsize=10)
    return fig


def activations(found: Mapping[str, Any]) -> Any:
    fig, axes = figure(9.0, 3.4, ncols=2)
    styles = {
        "relu": ("ReLU", COLOURS[0], "-"),
        "gelu": ("GELU", COLOURS[1], "-"),
        "relu2": ("ReLU²", COLOURS[2], "--"),
    }
    for axis, key, title in ((axes[0], "value", "value"), (axes[1], "slope", "slope")):
        for name, (label, colour, line) in styles.items():
            axis.plot(found["x"], found[name][key], color=colour, linestyle=line, linewidth=1.6, label=label)
        axis.set_title(title, fontsize=10)
        axis.set_xlim(-4, 3)
        axis.set_ylim(-0.5, 3.0)
        axis.set_xlabel("x")
    axes[0].legend(frameon=False)
    return fig


def smoothing(found: Mapping[str, Any]) -> Any:
    fig, axes = figure(9.0, 3.5, ncols=2)
    words = found["words"]
    amounts = [key for key in found if key not in ("chance", "words")]
    for number, (amount, colour) in enumerate(zip(amounts, COLOURS, strict=False)):
        s = float(amount)
        target = np.full(words, s / words)
        target[0] += 1 - s
        axes[0].bar(
            np.arange(words) + 0.27 * (number - 1), target, width=0.25, color=colour, label=f"smoothing {amount}"
        )
        values = found[amount]
        axes[1].plot(found["chance"], values, color=colour, linewidth=1.5)
        least = int(np.argmin(values))
        axes[1].plot([found["chance"][least]], [values[least]], "o", color=colour, markersize=6)
    axes[0].set_title("what the model is told", fontsize=10)
    axes[0].set_xticks(range(words), ["right", *[""] * (words - 1)], fontsize=8)
    axes[0].set_xlabel(f"the {words} words")
    axes[0].set_ylabel("target probability")
    axes[0].legend(frameon=False, fontsize=9)
    axes[1].set_title("loss, and where it is least", fontsize=10)
    axes[1].set_xlabel("probability the model gives to the right word")
    axes[1].set_ylabel("loss (nats)")
    axes[1].set_ylim(0, 2.5)
    return fig


def schedules(found: Mapping[str, Any]) -> Any:
    fig, axis = figure(7.0, 3.4)
    styles = {
        "noam": ("Noam", COLOURS[0], "-"),
        "cosine": ("cosine", COLOURS[1], "--"),
        "wsd": ("WSD", COLOURS[2], "-."),
    }
    for name, (label, colour, line) in styles.items():
        axis.plot(found["step"], found[name], color=colour, linestyle=line, linewidth=1.6, label=label)
    axis.set_xlabel("step")
    axis.set_ylabel("learning rate")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)
    return fig


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
        shown = small_map(axis, values, name, numbers=False, cmap="PuOr_r", vmin=-1, vmax=1, aspect="auto")
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
