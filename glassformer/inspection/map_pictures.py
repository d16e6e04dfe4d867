"""The views of `look` that are maps, as figures.

Each function takes what was seen and returns a figure. A long text is drawn with every n-th label, so that none overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import east_asian_width

import numpy as np

from glassformer import plots
from glassformer.inspection.activations import alignment, rollout
from glassformer.inspection.inspection import Inspection

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


def label_cells(axis: Any, rows: Mapping[Any, str], columns: Mapping[Any, str], size: int) -> None:
    """Labels by their places, those of columns above, and no lines."""
    axis.xaxis.tick_top()
    axis.set_yticks(list(rows), list(rows.values()), fontsize=size)
    axis.set_xticks(list(columns), list(columns.values()), fontsize=size)
    axis.tick_params(length=0)
    axis.grid(False)


def hide_sides(axis: Any) -> None:
    """No lines at the left and below."""
    axis.spines[["left", "bottom"]].set_visible(False)


def map_figure(
    weights: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    bar: str,
    most: float,
    axes: tuple[str, str] = ("query", "key"),
) -> Any:
    """One map with the tokens at its sides, as many as have room, those above upright where they fit."""
    cell = 0.22 if max(len(rows), len(columns)) <= LONGEST else 8.0 / max(len(rows), len(columns))
    width, height = max(2.0, cell * len(columns)), max(1.2, cell * len(rows))
    fig, axis = plots.figure(width + 2.4, height + 1.6)
    image = axis.imshow(weights, cmap=colours(), vmin=0, vmax=most or 1.0, aspect="auto")
    down, across = (max(1, int(np.ceil(len(t) * 8 * 1.25 / 72 / i))) for t, i in ((rows, height), (columns, width)))
    shown_rows = {place: label(rows[place]) for place in range(0, len(rows), down)}
    shown_columns = {place: label(columns[place]) for place in range(0, len(columns), across)}
    label_cells(axis, shown_rows, shown_columns, 8)
    turn_long_labels(axis, width * 72 / max(1, len(columns)) * across, 8)
    axis.set_ylabel(axes[0], fontsize=9)
    axis.set_xlabel(axes[1], fontsize=9)
    axis.xaxis.set_label_position("top")
    hide_sides(axis)
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


def mosaic(
    axis: Any, maps: Sequence[Mapping[int, np.ndarray]], rows: Sequence[str], columns: Sequence[str], size: int = 9
) -> None:
    """Many small maps in one axes, each in a square of its own: for each row, the maps by their columns. `size`: of the columns'
    labels."""
    for down, row in enumerate(maps):
        for right, weights in row.items():
            left, end, bottom, top = right + 0.04, right + 0.96, down + 0.96, down + 0.04
            box = (left, end, bottom, top)
            axis.imshow(weights, cmap=colours(), vmin=0, vmax=1, extent=box, aspect="auto", interpolation="nearest")
            axis.plot([left, end, end, left, left], [bottom, bottom, top, top, bottom], "#bbbbbb", lw=0.5)
    axis.set_xlim(0, 1 + max((right for row in maps for right in row), default=0))
    axis.set_ylim(len(maps), 0)
    label_cells(
        axis,
        {down + 0.5: name for down, name in enumerate(rows)},
        {right + 0.5: name for right, name in enumerate(columns)},
        9,
    )
    axis.tick_params(axis="x", labelsize=size)
    hide_sides(axis)


def maps_figure(inside: Inspection) -> Any:
    """Every layer, head and kind of attention: a row a layer, a column a head."""
    attentions = inside.activations.attentions
    layers = [(kind, n, layer) for kind in attentions for n, layer in enumerate(attentions[kind])]
    heads = 1 + max((number for _, _, layer in layers for number in layer.head_ids), default=0)
    fig, axis = plots.figure(1.2 * heads + 1.2, 1.2 * len(layers) + 0.9)
    maps = [dict(zip(layer.head_ids, with_masks(inside, kind, layer.weights))) for kind, _, layer in layers]
    mosaic(axis, maps, [f"{kind} {n}" for kind, n, _ in layers], [f"head {h}" for h in range(heads)])
    plots.heading(fig, "attention of every head (rows ask, columns answer; colour from 0 to 1, grey: masked)", size=10)
    return fig


def sharpest(inside: Inspection) -> tuple[str, int, int]:
    """The head to show large: that of the last kind of attention whose weights are the least spread; -1 where there is none."""
    kind, layers = list(inside.activations.attentions.items())[-1]
    spread = [
        (float((weights**2).sum(-1).mean()), n, h)
        for n, layer in enumerate(layers)
        for h, weights in enumerate(layer.weights)
    ]
    _, n, h = max(spread, default=(0.0, 0, -1))
    return kind, n, h


def axis_pieces(inside: Inspection, kind: str) -> tuple[list[str], list[str]]:
    """The tokens that ask and those that answer in a kind of attention."""
    sides = inside.readings()
    queries, keys = (sides[name].pieces for name in inside.axes(kind))
    return queries, keys


def head_map_figure(inside: Inspection) -> Any | None:
    """The head that looks most sharply; None where there is none."""
    kind, n, h = sharpest(inside)
    if h < 0:
        return None
    layer = inside.activations.attentions[kind][n]
    title = f"{NAMES[kind]}, layer {n}, head {layer.head_ids[h]}"
    return map_figure(with_masks(inside, kind, layer.weights[h]), *axis_pieces(inside, kind), title, "weight", 1.0)


def alignment_figure(inside: Inspection) -> Any | None:
    """The mean of all cross-attention; None for models without any."""
    weights = alignment(inside.activations)
    if weights is None:
        return None
    title = "alignment: cross-attention, mean of all layers and heads"
    return map_figure(weights, *axis_pieces(inside, "cross"), title, "weight", float(weights.max()))


def rollout_figure(inside: Inspection) -> Any:
    """How much of every token has reached every position after the last layer."""
    kind, flows = list(rollout(inside.activations, residual=inside.residual).items())[-1]
    title = f"attention rollout through all layers, {NAMES[kind]}"
    weights, sides = flows[-1], axis_pieces(inside, kind)
    return map_figure(weights, *sides, title, "share", float(weights.max()), ("position", "input token"))
