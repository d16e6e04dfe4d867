"""Figures of the parts of the machine, for the tour (make_figures.py computes their arrays)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassformer.plots.maps import small_map
from glassformer.plots.style import COLOURS, MAP, SIGNED, figure, heading


def worked_attention(found: Mapping[str, np.ndarray]) -> Any:
    """Attention by hand: scores, weights and output of a few tokens, as three small maps."""
    fig, axes = figure(9.0, 3.1, ncols=3, width_ratios=[4, 4, 2.2])
    tokens = [f"token {i}" for i in range(len(found["scores"]))]
    small_map(axes[0], found["scores"], "scores: Q K$^T$ / √d", cmap=SIGNED, vmin=-4.5, vmax=4.5)
    small_map(axes[1], found["weights"], "weights: softmax of each row,\nnothing from the future", vmin=0, vmax=1)
    small_map(axes[2], found["output"], "output: weights V", cmap=SIGNED, vmin=-1.5, vmax=1.5)
    for axis in axes[:2]:
        axis.set_xticks(range(4), [f"key {i}" for i in range(4)])
        axis.set_yticks(range(4), tokens if axis is axes[0] else [""] * 4)
    axes[2].set_xticks(range(2), ["dim 0", "dim 1"])
    axes[2].set_yticks(range(4), [""] * 4)
    return fig


def softmax_scaling(found: Mapping[str, Any]) -> Any:
    """What dividing by the square root of d_k does to scores, weights and gradients, over the head size."""
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
    """Masks side by side, dark where attention is allowed."""
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
    """The table of sinusoids, and the product of two positions over their distance."""
    fig, axes = figure(10.0, 3.6, ncols=2)
    shown = axes[0].imshow(table, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
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
    """The angles of rotary positions, and the product of a turned query and key over their distance."""
    fig, axes = figure(10.0, 3.6, ncols=2)
    shown = axes[0].imshow(angles, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
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
    """What ALiBi takes off a score, over the distance, a line a head."""
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
    """Activations and their slopes."""
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
    """Targets with smoothed labels, and the loss over the probability of the right word."""
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
    """Learning rates over the steps of a run."""
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


def dictionary(found: Mapping[str, Any]) -> Any:
    """A soft look-up: the weight of every key, the value beside it, and the weighted mean that is the answer."""
    fig, axes = figure(9.0, 2.8, ncols=2)
    words, weights, values = found["words"], found["weights"], found["values"]
    axes[0].barh(words, weights, color=COLOURS[0])
    axes[0].set_title('how much of each key answers "fruit"', fontsize=10)
    axes[0].set_xlim(0, 1)
    shares = weights * values
    axes[1].barh(words, values, color="#dddddd", label="value")
    axes[1].barh(words, shares, color=COLOURS[1], label="weight · value")
    axes[1].set_title(
        " + ".join(f"{w:g}·{v:g}" for w, v in zip(weights, values)) + f" = {found['answer']:g}", fontsize=10
    )
    axes[1].legend(frameon=False, fontsize=9)
    for axis in axes:
        axis.invert_yaxis()
    return fig


def sum_of_tables(found: Mapping[str, np.ndarray], tokens: list[str]) -> Any:
    """Word vectors, position vectors and their sum, number by number."""
    fig, axes = figure(9.6, 3.0, ncols=3)
    for axis, (name, title) in zip(
        axes, (("words", "words"), ("positions", "+ positions"), ("sum", "= what layer 1 reads"))
    ):
        small_map(axis, found[name], title, cmap=SIGNED, vmin=-1.7, vmax=1.7)
        axis.set_xticks(range(4), [f"dim {i}" for i in range(4)])
        axis.set_yticks(range(len(tokens)), tokens if axis is axes[0] else [""] * len(tokens))
    return fig


def turns(points: np.ndarray) -> Any:
    """The pairs of the sinusoidal table as hands of clocks, each with its own speed."""
    fig, axes = figure(9.6, 2.9, ncols=len(points))
    for pair, (axis, places) in enumerate(zip(axes, points, strict=True)):
        for number, (x, y) in enumerate(places):
            axis.plot([0, x], [0, y], color=COLOURS[0], alpha=0.25 + 0.75 * number / len(places), linewidth=1)
            axis.plot([x], [y], "o", color=COLOURS[1], markersize=3)
            if pair < 2 or number in (0, len(places) - 1):
                axis.text(1.18 * x, 1.18 * y, str(number), fontsize=7, ha="center", va="center")
        axis.set_xlim(-1.4, 1.4)
        axis.set_ylim(-1.4, 1.4)
        axis.set_aspect("equal")
        axis.set_title(f"dimensions {2 * pair}, {2 * pair + 1}", fontsize=9)
        axis.set_xlabel("cosine", fontsize=8)
        axis.tick_params(labelsize=7)
    axes[0].set_ylabel("sine", fontsize=8)
    return fig


def norm_reach(found: Mapping[str, np.ndarray]) -> Any:
    """What each norm averages over for one number of its output: blue; padding is never blue."""
    from matplotlib.colors import ListedColormap

    fig, axes = figure(9.6, 3.8, ncols=len(found))
    for axis, (name, reach) in zip(axes, found.items(), strict=True):
        sentences, tokens, features = reach.shape
        axis.imshow(reach.reshape(-1, features), cmap=ListedColormap(["#eeeeee", COLOURS[0]]), vmin=0, vmax=1)
        axis.plot([2], [1], "o", color=COLOURS[1], markersize=7)
        axis.axhline(tokens - 0.5, color="black", linewidth=1.5)
        axis.grid(False)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("feature")
        labels = [f"sentence {b}, token {t}" for b in range(sentences) for t in range(tokens)]
        labels[-1] = "sentence 1, padding"
        axis.set_yticks(range(len(labels)), labels if axis is axes[0] else [""] * len(labels), fontsize=8)
        axis.set_xticks(range(features))
    heading(fig, "what the marked number depends on (blue)")
    return fig


def gradient_by_depth(found: Mapping[str, np.ndarray]) -> Any:
    """The gradient on its way back through the layers, with residual lines and without."""
    fig, axis = figure(7.0, 3.4)
    for (name, values), colour, marker in zip(found.items(), COLOURS, ("o", "s")):
        axis.plot(values, color=colour, marker=marker, markersize=3, label=f"{name} residual lines")
    axis.set_yscale("log")
    axis.set_xlabel("layer whose input it is (the loss is at the right)")
    axis.set_ylabel("size of the gradient")
    axis.legend(frameon=False)
    return fig


def length_divisors(found: Mapping[str, Any]) -> Any:
    """What log-probabilities are divided by, over the length."""
    fig, axis = figure(6.4, 3.2)
    for (name, values), colour in zip([(k, v) for k, v in found.items() if k != "length"], COLOURS):
        axis.plot(found["length"], values, color=colour, linewidth=1.5, label=name)
    axis.set_xlabel("length of the hypothesis")
    axis.set_ylabel("divisor of its log-probability")
    axis.legend(frameon=False)
    return fig
