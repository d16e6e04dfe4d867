"""The views of `look` as pictures: PNG and SVG, for papers and slides. What can be turned and hovered over is in the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import glassformer.inspection.map_pictures as maps
from glassformer import plots
from glassformer.inspection.inspection import Inspection
from glassformer.inspection.search import paths_of


def tokens_figure(inside: Inspection) -> Any:
    """Probability, rank, entropy and alternatives, a line a token."""
    outputs = inside.activations.outputs
    shown = min(maps.LONGEST, len(outputs.tokens))
    names = inside.names(outputs.tokens[:shown].tolist())
    if inside.kind == "tag":
        names = [f"{word}: {tag}" for word, tag in zip(inside.readings()["written"].pieces, names)]
    fig, (bars, spread) = plots.figure(10.5, 0.26 * shown + 1.4, ncols=2, sharey=True, width_ratios=(3, 2))
    positions = np.arange(shown)
    bars.barh(positions, np.exp(outputs.logprob[:shown]), color=plots.COLOURS[0], height=0.7)
    bars.set_xlim(0, 1)
    bars.set_yticks(positions, [maps.label(name) for name in names], fontsize=8)
    bars.set_ylim(shown - 0.5, -0.5)
    bars.set_xlabel("probability")
    bars.set_title("probability of each token")
    spread.barh(positions, outputs.entropy[:shown], color=plots.COLOURS[1], height=0.7)
    spread.set_xlim(0, max(0.1, float(outputs.entropy[:shown].max())) * 2.6)
    spread.set_xlabel("entropy (nats)")
    spread.set_title("entropy, rank and best alternatives")
    for axis in (bars, spread):
        axis.grid(axis="y", visible=False)
    for i in range(shown):
        others = [(b, p) for b, p in zip(outputs.best[i], outputs.chances[i]) if b != outputs.tokens[i]][:3]
        texts = zip(inside.names([int(b) for b, _ in others]), others)
        best = "  ".join(f"{maps.label(name)} {chance:.2g}" for name, (_, chance) in texts)
        place = float(outputs.entropy[i]) + 0.02 * spread.get_xlim()[1]
        spread.text(place, i, f"#{outputs.rank[i]}   {best}", va="center", fontsize=7)
    return fig


def lens_figure(inside: Inspection) -> Any:
    """The best word after every block, if the rest of the model were left out (logit lens)."""
    lens, tokens = inside.activations.lens, inside.activations.outputs.tokens[: maps.LONGEST]
    shown = len(tokens)
    chances = np.stack([layer.chances[:shown, 0] for layer in lens])
    fig, axis = plots.figure(max(5.0, 0.62 * shown + 2.2), 0.36 * len(lens) + 1.6)
    # A scale that ends in orange, so that black letters are read on all of it: what matters is the word.
    image = axis.imshow(chances, cmap=plots.pale_colours(), vmin=0, vmax=1, aspect="auto", origin="lower")
    for depth, layer in enumerate(lens):
        best = layer.best[:shown, 0]
        for place, name in enumerate(inside.names(best.tolist())):
            weight = "bold" if depth > 0 and best[place] == tokens[place] else "normal"
            axis.text(place, depth, maps.label(name)[:8], ha="center", va="center", fontsize=8, fontweight=weight)
    depths = ["embedding", *(f"after layer {n}" for n in range(len(lens) - 1))]
    chosen = [maps.label(name)[:8] for name in inside.names(tokens.tolist())]
    maps.label_cells(axis, dict(enumerate(depths)), dict(enumerate(chosen)), 8)
    fig.colorbar(image, ax=axis, label="probability of the word shown")
    plots.heading(fig, "logit lens: what each layer would have said (bold: what stands there in the end)")
    return fig


PARTS = {"attention": ("attention", 0), "cross": ("cross-attention", 2), "mlp": ("MLP", 1)}
"""The parts of a block: the name and the colour of each."""


def norms_figure(inside: Inspection) -> Any:
    """What each part of a block adds to the residual stream, layer by layer."""
    stacks = inside.activations.norms
    fig, axes = plots.figure(4.6 * len(stacks) + 0.6, 3.6, ncols=len(stacks), squeeze=False)
    for axis, (stack, norms) in zip(axes[0], stacks.items()):
        layers = np.arange(len(norms.entering))
        wide = 0.8 / len(norms.parts)
        for place, (part, values) in enumerate(norms.parts.items()):
            name, colour = PARTS[part]
            left = layers + (place - (len(norms.parts) - 1) / 2) * wide
            axis.bar(left, values.mean(axis=1), wide * 0.92, color=plots.COLOURS[colour], label=name)
        axis.plot(layers, norms.entering.mean(axis=1), "o--", color="#444444", markersize=4, label="the stream itself")
        axis.set_xticks(layers, [f"layer {n}" for n in layers], fontsize=8)
        axis.grid(axis="x", visible=False)
        axis.set_title(stack)
        axis.set_ylabel("mean length of the vectors")
        axis.set_ylim(0, 1.3 * axis.get_ylim()[1])
        axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    plots.heading(fig, "what each part adds to the residual stream")
    return fig


def head_figure(inside: Inspection) -> Any | None:
    """The last query of the maps.sharpest head: keys, scores, weights, values."""
    kind, n, h = maps.sharpest(inside)
    if h < 0:
        return None
    from matplotlib.ticker import MaxNLocator

    layer, scaled = inside.activations.attentions[kind][n], inside.model.model.config.scaled_attention
    queries, keys = maps.axis_pieces(inside, kind)
    query = len(queries) - 1
    strongest = np.sort(np.argsort(-layer.weights[h, query], kind="stable")[: maps.LONGEST])
    shown = len(strongest)
    q = layer.q[h, query]
    k, v = (side[layer.kv_head_of[h]][strongest] for side in (layer.k, layer.v))
    scores = k @ q / (np.sqrt(len(q)) if scaled else 1.0)
    fig, axes = plots.figure(12.0, 0.22 * shown + 2.2, ncols=4, sharey=True, width_ratios=(3, 2, 2, 3))
    for axis, numbers in ((axes[0], k), (axes[3], v)):
        top = float(np.abs(numbers).max()) or 1.0
        axis.imshow(numbers, cmap=plots.SIGNED, vmin=-top, vmax=top, aspect="auto")
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_xlabel("dimension")
        axis.grid(False)
    for axis, numbers, colour in ((axes[1], scores, 0), (axes[2], layer.weights[h, query, strongest], 1)):
        axis.barh(range(shown), numbers, color=plots.COLOURS[colour])
        axis.xaxis.set_major_locator(MaxNLocator(3))
        axis.grid(axis="y", visible=False)
    for axis, name in zip(axes, ("keys", "q·k / √d" if scaled else "q·k", "weights (softmax)", "values")):
        axis.set_title(name, fontsize=10)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(shown), [maps.label(keys[j]) for j in strongest], fontsize=8)
    title = f"{maps.NAMES[kind]}, layer {n}, head {layer.head_ids[h]}: what {maps.label(queries[query])} asks and gets"
    plots.heading(fig, title)
    return fig


def beam_figure(inside: Inspection) -> Any | None:
    """Every candidate of every step; lines lead from where it came to what it is."""
    search = inside.search
    if search is None or not search.trace.steps:
        return None
    steps = search.trace.steps[:24]
    rows = max(len(step) for step in steps)
    fig, axis = plots.figure(1.15 * len(steps) + 1.2, 0.46 * rows + 1.2)
    answer, paths = inside.answer_ids(), paths_of(search.trace)
    place_of_slot = {0: 0.0}
    for s, step in enumerate(steps):
        names = inside.names([candidate.token for candidate in step])
        for rank, (candidate, name) in enumerate(zip(step, names)):
            dropped = candidate.fate == "dropped"
            on_the_way = paths[s][rank] == answer[: s + 1]
            colour = plots.COLOURS[1] if on_the_way else "#999999" if dropped else plots.COLOURS[0]
            if candidate.parent in place_of_slot:
                wide = 2.6 if on_the_way else 0.7 if dropped else 1.8
                # From middle to middle; the boxes cover the ends.
                ends = [s - 1 if s else -0.7, s], [place_of_slot[candidate.parent], rank]
                axis.plot(*ends, color=colour, linewidth=wide, zorder=2 if on_the_way else 1)
            text = f"{maps.label(name)[:7]}\n{candidate.score:.2f}".replace("\n-0.00", "\n0.00")
            filling = "#d9ebf7" if candidate.fate == "ended" else "white"
            box = {"boxstyle": "round,pad=0.25", "facecolor": filling, "edgecolor": colour}
            style = {"color": "#666666" if dropped else "black", "bbox": box, "zorder": 3}
            axis.text(s, rank, text, ha="center", va="center", fontsize=7, **style)
        place_of_slot = {candidate.slot: rank for rank, candidate in enumerate(step) if candidate.slot is not None}
    axis.set_xlim(-0.8, len(steps) - 0.5)
    axis.set_ylim(rows - 0.4, -0.6)
    axis.set_xticks(range(len(steps)), [str(s) for s in range(len(steps))], fontsize=8)
    axis.set_yticks([])
    axis.set_xlabel("step")
    axis.grid(False)
    axis.spines["left"].set_visible(False)
    legend = "orange: the answer; blue: kept; filled: ended; grey: dropped"
    title = f"beam of {search.beam}: the best {2 * search.beam} candidates of each step ({legend})"
    plots.heading(fig, title, size=10)
    return fig


def attribution_figure(inside: Inspection) -> Any | None:
    """What each part pushed each token by, against the token that came next to it."""
    attribution = inside.attribution
    if attribution is None:
        return None
    shown = min(maps.LONGEST, len(attribution.tokens))
    pushes = (attribution.terms[:shown, 0] - attribution.terms[:shown, 1]).T
    names = [inside.names(row) for row in attribution.tokens[:shown, :2].tolist()]
    fig, axis = plots.figure(max(6.0, 0.42 * shown + 2.8), 0.24 * len(pushes) + 1.8)
    top = float(np.abs(pushes).max()) or 1.0
    image = axis.imshow(pushes, cmap=plots.SIGNED, vmin=-top, vmax=top, aspect="auto")
    labels = [f"{maps.label(token)[:8]}\nnot {maps.label(other)[:8]}" for token, other in names]
    maps.label_cells(axis, dict(enumerate(attribution.parts)), dict(enumerate(labels)), 7)
    maps.turn_long_labels(axis, 0.42 * 72, 7)
    fig.colorbar(image, ax=axis, label="logit of the token minus that of the next best")
    plots.heading(fig, "attribution: which part pushed for each token (orange) or against it (purple)")
    return fig


FIGURES: dict[str, Callable[[Inspection], Any]] = {
    "maps": maps.maps_figure,
    "map": maps.head_map_figure,
    "alignment": maps.alignment_figure,
    "tokens": tokens_figure,
    "lens": lens_figure,
    "attribution": attribution_figure,
    "norms": norms_figure,
    "rollout": maps.rollout_figure,
    "head": head_figure,
    "beam": beam_figure,
    "across": maps.across_figure,
}


def save_pictures(inside: Inspection, folder: Path) -> list[Path]:
    """Every view that this sentence has, as PNG and SVG."""
    paths: list[Path] = []
    for name, draw in FIGURES.items():
        fig = draw(inside)
        if fig is not None:
            paths += plots.save(fig, folder / name)
    return paths
