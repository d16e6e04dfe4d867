"""The views of `look` that are maps, as figures.

Each function takes what was seen and returns a figure. A long text is drawn with every n-th label, so that none overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import east_asian_width

import numpy as np

from glassformer import plots
from glassformer.inspection.inspection import Inspection
from glassformer.inspection.rollout import alignment, rollout

LONGEST = 60  # tokens drawn in a table; the rest is in the page


LABEL = 14  # letters of a label


NAMES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}


CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 0x7F)}


def label(text: str) -> str:
    """What has no shape of its own must be seen; a control character has no place in an SVG either."""
    shown = plots.visible(text).translate(CONTROLS).replace("$", r"\$")
    return shown if len(shown) <= LABEL else shown[: LABEL - 1] + "…"


def turn_long_labels(axis: Any, points: float, size: int) -> None:
    """A label of a column that is wider than its place, of so many points, lies on its side. To be called after `tick_top`: a
    label above is another object than the one below."""
    for text in axis.get_xticklabels():
        lines = text.get_text().split("\n")
        ems = max(sum(1.0 if east_asian_width(sign) in "WF" else 0.62 for sign in line) for line in lines)
        text.set_rotation(0 if ems * size <= points else 90)


def ticks(axis: Any, rows: Sequence[str], columns: Sequence[str], inches: tuple[float, float], size: int = 8) -> None:
    """Labels on both sides, as many as have room; columns above, each upright where it fits."""
    down = max(1, int(np.ceil(len(rows) * size * 1.25 / 72 / max(inches[1], 0.1))))
    across = max(1, int(np.ceil(len(columns) * size * 1.25 / 72 / max(inches[0], 0.1))))
    axis.xaxis.tick_top()
    axis.set_yticks(range(0, len(rows), down), [label(t) for t in rows[::down]], fontsize=size)
    axis.set_xticks(range(0, len(columns), across), [label(t) for t in columns[::across]], fontsize=size)
    turn_long_labels(axis, inches[0] * 72 / max(1, len(columns)) * across, size)
    axis.tick_params(length=0)
    axis.grid(False)


def map_figure(
    weights: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    bar: str,
    most: float,
    axes: tuple[str, str] = ("query", "key"),
) -> Any:
    """One map with the tokens at its sides."""
    cell = 0.22 if max(len(rows), len(columns)) <= LONGEST else 8.0 / max(len(rows), len(columns))
    inches = (max(2.0, cell * len(columns)), max(1.2, cell * len(rows)))
    fig, axis = plots.figure(inches[0] + 2.4, inches[1] + 1.6)
    image = axis.imshow(weights, cmap=colours(), vmin=0, vmax=most or 1.0, aspect="auto")
    ticks(axis, rows, columns, inches)
    axis.set_ylabel(axes[0], fontsize=9)
    axis.set_xlabel(axes[1], fontsize=9)
    axis.xaxis.set_label_position("top")
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)
    fig.colorbar(image, ax=axis, shrink=0.8, label=bar)
    plots.heading(fig, title)
    return fig


def with_masks(inside: Inspection, kind: str, weights: np.ndarray) -> np.ma.MaskedArray:
    """What may not be looked at is masked: it is grey in a figure, apart from a weight of 0."""
    window = inside.model.model.config.window
    i, j = np.indices(weights.shape[-2:])
    hidden = np.zeros(weights.shape[-2:], dtype=bool)
    if kind != "cross":
        hidden = (kind == "decoder") & (j > i) | (np.abs(i - j) >= (window or np.inf))
    return np.ma.masked_array(weights, np.broadcast_to(hidden, weights.shape))


def colours() -> Any:
    """The map of weights, grey where there is none."""
    return plots.size_colours().with_extremes(bad="#dedee2")


def mosaic(axis: Any, maps: Sequence[Mapping[int, np.ndarray]]) -> list[float]:
    """Many small maps in one axes, each in a square of its own: for each row, the maps by their columns. Returns the middle of
    each row."""
    for down, row in enumerate(maps):
        for right, weights in row.items():
            box = (right + 0.04, right + 0.96, down + 0.96, down + 0.04)
            axis.imshow(weights, cmap=colours(), vmin=0, vmax=1, extent=box, aspect="auto", interpolation="nearest")
            axis.plot(
                [box[0], box[1], box[1], box[0], box[0]], [box[2], box[2], box[3], box[3], box[2]], "#bbbbbb", lw=0.5
            )
    axis.set_xlim(0, 1 + max((right for row in maps for right in row), default=0))
    axis.set_ylim(len(maps), 0)
    axis.grid(False)
    axis.tick_params(length=0)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)
    return [down + 0.5 for down in range(len(maps))]


def maps_figure(inside: Inspection) -> Any:
    """Every layer, head and kind of attention: a row a layer, a column a head."""
    layers = [
        (kind, f"{kind} {n}", layer)
        for kind, found in inside.activations.attentions.items()
        for n, layer in enumerate(found)
    ]
    heads = 1 + max((number for _, _, layer in layers for number in layer.head_ids), default=0)
    fig, axis = plots.figure(1.2 * heads + 1.2, 1.2 * len(layers) + 0.9)
    middles = mosaic(
        axis, [dict(zip(layer.head_ids, with_masks(inside, kind, layer.weights))) for kind, _, layer in layers]
    )
    axis.set_yticks(middles, [name for _, name, _ in layers], fontsize=9)
    axis.set_xticks([h + 0.5 for h in range(heads)], [f"head {h}" for h in range(heads)], fontsize=9)
    axis.xaxis.tick_top()
    plots.heading(fig, "attention of every head (rows ask, columns answer; colour from 0 to 1, grey: masked)", size=10)
    return fig


def sharpest(inside: Inspection) -> tuple[str, int, int]:
    """The head to show large: that of the last kind of attention whose weights are the least spread."""
    kind = list(inside.activations.attentions)[-1]
    found = [
        (float((weights**2).sum(-1).mean()), n, h)
        for n, layer in enumerate(inside.activations.attentions[kind])
        for h, weights in enumerate(layer.weights)
    ]
    _, n, h = max(found, default=(0.0, 0, -1))
    return kind, n, h


def head_map_figure(inside: Inspection) -> Any | None:
    """The head that looks most sharply; None where there is none."""
    kind, n, h = sharpest(inside)
    if h < 0:
        return None
    layer, sides = inside.activations.attentions[kind][n], inside.readings()
    queries, keys = (sides[name].pieces for name in inside.axes(kind))
    title = f"{NAMES[kind]}, layer {n}, head {layer.head_ids[h]}"
    weights = with_masks(inside, kind, layer.weights[h])
    return map_figure(weights, queries, keys, title, "weight", 1.0)


def alignment_figure(inside: Inspection) -> Any | None:
    """The mean of all cross-attention; None for models without any."""
    weights = alignment(inside.activations)
    if weights is None:
        return None
    sides = inside.readings()
    title = "alignment: cross-attention, mean of all layers and heads"
    return map_figure(weights, sides["written"].pieces, sides["source"].pieces, title, "weight", float(weights.max()))


def rollout_figure(inside: Inspection) -> Any:
    """How much of every token has reached every position after the last layer."""
    found = rollout(inside.activations, residual=inside.residual)
    kind = list(found)[-1]
    sides = inside.readings()
    queries, keys = (sides[name].pieces for name in inside.axes(kind))
    weights = found[kind][-1]
    title = f"attention rollout through all layers, {NAMES[kind]}"
    return map_figure(weights, queries, keys, title, "share", float(weights.max()), ("position", "input token"))


def across_figure(inside: Inspection) -> Any | None:
    """The heads of the last kind of attention at every checkpoint, and the loss above them."""
    kind = list(inside.activations.attentions)[-1]
    heads = [
        (n, h, number)
        for n, layer in enumerate(inside.activations.attentions[kind])
        for h, number in enumerate(layer.head_ids)
    ]
    heads = heads[:16]
    if not inside.across or not heads:
        return None
    rows = [
        {
            i: with_masks(inside, kind, view.activations.attentions[kind][n].weights[h])
            for i, view in enumerate(inside.across)
        }
        for n, h, _ in heads
    ]
    fig, axis = plots.figure(1.0 * len(inside.across) + 1.2, 1.0 * len(heads) + 1.2)
    middles = mosaic(axis, rows)
    axis.set_yticks(middles, [f"{n}.{number}" for n, _, number in heads], fontsize=9)
    titles = [f"{view.name}\nloss {view.activations.loss:.2g}" for view in inside.across]
    axis.set_xticks([i + 0.5 for i in range(len(titles))], titles, fontsize=8)
    axis.xaxis.tick_top()
    plots.heading(fig, f"{NAMES[kind]} at every checkpoint (layer.head; colour from 0 to 1)", size=10)
    return fig
