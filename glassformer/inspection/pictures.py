"""The views of `look` as pictures: PNG and SVG, for papers and slides. What can be turned and hovered over is in the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from glassformer import plots
from glassformer.inspection.inspection import Inspection
from glassformer.inspection.map_pictures import (
    LONGEST,
    NAMES,
    across_figure,
    alignment_figure,
    head_map_figure,
    label,
    maps_figure,
    rollout_figure,
    sharpest,
    turn_long_labels,
)
from glassformer.inspection.search import paths_of


def tokens_figure(inside: Inspection) -> Any:
    """Probability, rank, entropy and alternatives, a line a token."""
    said = inside.activations.outputs
    shown = min(LONGEST, len(said.tokens))
    names = inside.names([int(i) for i in said.tokens[:shown]])
    if inside.kind == "tag":
        words = inside.readings()["written"].pieces
        names = [f"{word}: {tag}" for word, tag in zip(words, names)]
    fig, (bars, spread) = plots.figure(10.5, 0.26 * shown + 1.4, ncols=2, sharey=True, width_ratios=(3, 2))
    positions = np.arange(shown)
    bars.barh(positions, np.exp(said.logprob[:shown]), color=plots.COLOURS[0], height=0.7)
    bars.set_xlim(0, 1)
    bars.set_yticks(positions, [label(name) for name in names], fontsize=8)
    bars.set_ylim(shown - 0.5, -0.5)
    bars.grid(axis="y", visible=False)
    bars.set_xlabel("probability")
    spread.barh(positions, said.entropy[:shown], color=plots.COLOURS[1], height=0.7)
    spread.grid(axis="y", visible=False)
    spread.set_xlabel("entropy (nats)")
    spread.set_xlim(0, max(0.1, float(said.entropy[:shown].max())) * 2.6)
    for i in range(shown):
        others = [(b, p) for b, p in zip(said.best[i], said.chances[i]) if b != said.tokens[i]][:3]
        best = "  ".join(
            f"{label(name)} {p:.2g}" for name, (_, p) in zip(inside.names([int(b) for b, _ in others]), others)
        )
        text = f"#{said.rank[i]}   {best}"
        spread.text(float(said.entropy[i]) + 0.02 * spread.get_xlim()[1], i, text, va="center", fontsize=7)
    bars.set_title("probability of each token")
    spread.set_title("entropy, rank and best alternatives")
    return fig


def lens_figure(inside: Inspection) -> Any:
    """The best word after every block, if the rest of the model were left out (logit lens)."""
    lens, said = inside.activations.lens, inside.activations.outputs
    shown = min(LONGEST, len(said.tokens))
    chances = np.stack([layer.chances[:shown, 0] for layer in lens])
    fig, axis = plots.figure(max(5.0, 0.62 * shown + 2.2), 0.36 * len(lens) + 1.6)
    # A scale that ends in orange, so that black letters are read on all of it: what matters is the word.
    image = axis.imshow(chances, cmap=plots.pale_colours(), vmin=0, vmax=1, aspect="auto", origin="lower")
    for depth, layer in enumerate(lens):
        names = inside.names([int(i) for i in layer.best[:shown, 0]])
        for place, name in enumerate(names):
            right = depth > 0 and layer.best[place, 0] == said.tokens[place]
            weight = "bold" if right else "normal"
            text = label(name)[:8]
            axis.text(place, depth, text, ha="center", va="center", fontsize=8, fontweight=weight)
    depths = ["embedding", *(f"after layer {n}" for n in range(len(lens) - 1))]
    chosen = inside.names([int(i) for i in said.tokens[:shown]])
    axis.set_yticks(range(len(lens)), depths, fontsize=8)
    axis.set_xticks(range(shown), [label(name)[:8] for name in chosen], fontsize=8)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.grid(False)
    fig.colorbar(image, ax=axis, label="probability of the word shown")
    plots.heading(fig, "logit lens: what each layer would have said (bold: what stands there in the end)")
    return fig


def norms_figure(inside: Inspection) -> Any:
    """What each part of a block adds to the residual stream, layer by layer."""
    stacks = inside.activations.norms
    fig, axes = plots.figure(4.6 * len(stacks) + 0.6, 3.6, ncols=len(stacks), squeeze=False)
    for axis, (stack, norms) in zip(axes[0], stacks.items()):
        layers = np.arange(len(norms.entering))
        wide = 0.8 / len(norms.parts)
        for place, (part, values) in enumerate(norms.parts.items()):
            colour = {"attention": 0, "cross": 2, "mlp": 1}[part]
            name = {"attention": "attention", "cross": "cross-attention", "mlp": "MLP"}[part]
            axis.bar(
                layers + (place - (len(norms.parts) - 1) / 2) * wide,
                values.mean(axis=1),
                wide * 0.92,
                color=plots.COLOURS[colour],
                label=name,
            )
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
    """The last query of the sharpest head: keys, scores, weights, values."""
    kind, n, h = sharpest(inside)
    if h < 0:
        return None
    from matplotlib.ticker import MaxNLocator

    layer, sides = inside.activations.attentions[kind][n], inside.readings()
    queries, keys = (sides[name].pieces for name in inside.axes(kind))
    query = len(queries) - 1
    strongest = np.sort(np.argsort(-layer.weights[h, query], kind="stable")[:LONGEST])
    shown = len(strongest)
    q, k, v = layer.q[h, query], layer.k[layer.kv_head_of[h]][strongest], layer.v[layer.kv_head_of[h]][strongest]
    scores = k @ q / (np.sqrt(len(q)) if inside.model.model.config.scaled_attention else 1.0)
    fig, axes = plots.figure(12.0, 0.22 * shown + 2.2, ncols=4, sharey=True, width_ratios=(3, 2, 2, 3))
    top_k, top_v = (float(np.abs(x).max()) or 1.0 for x in (k, v))
    axes[0].imshow(k, cmap=plots.SIGNED, vmin=-top_k, vmax=top_k, aspect="auto")
    axes[0].set_title("keys", fontsize=10)
    axes[1].barh(range(shown), scores, color=plots.COLOURS[0])
    axes[1].set_title("q·k / √d" if inside.model.model.config.scaled_attention else "q·k", fontsize=10)
    axes[2].barh(range(shown), layer.weights[h, query, strongest], color=plots.COLOURS[1])
    axes[2].set_title("weights (softmax)", fontsize=10)
    axes[3].imshow(v, cmap=plots.SIGNED, vmin=-top_v, vmax=top_v, aspect="auto")
    axes[3].set_title("values", fontsize=10)
    axes[0].set_yticks(range(shown), [label(keys[j]) for j in strongest], fontsize=8)
    for axis in axes[1:3]:
        axis.xaxis.set_major_locator(MaxNLocator(3))
    for axis in (axes[0], axes[3]):
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_xlabel("dimension")
    for axis in axes:
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
    axes[0].grid(False)
    axes[3].grid(False)
    title = f"{NAMES[kind]}, layer {n}, head {layer.head_ids[h]}: what {label(queries[query])} asks and gets"
    plots.heading(fig, title)
    return fig


def beam_figure(inside: Inspection) -> Any | None:
    """Every candidate of every step; lines lead from where it came to what it is."""
    found = inside.search
    if found is None or not found.trace.steps:
        return None
    steps = found.trace.steps[:24]
    rows = max(len(step) for step in steps)
    fig, axis = plots.figure(1.15 * len(steps) + 1.2, 0.46 * rows + 1.2)
    colours = {"kept": plots.COLOURS[0], "ended": plots.COLOURS[0], "dropped": "#999999"}
    answer, paths = inside.answer_ids(), paths_of(found.trace)
    slots = {0: 0.0}
    for s, step in enumerate(steps):
        here: dict[int, float] = {}
        names = inside.names([candidate.token for candidate in step])
        for rank, (candidate, name) in enumerate(zip(step, names)):
            on_the_way = paths[s][rank] == answer[: s + 1]
            colour = plots.COLOURS[1] if on_the_way else colours[candidate.fate]
            if candidate.parent in slots:
                wide = 2.6 if on_the_way else 0.7 if candidate.fate == "dropped" else 1.8
                # From middle to middle; the boxes cover the ends.
                ends = [s - 1 if s else -0.7, s], [slots[candidate.parent], rank]
                axis.plot(*ends, color=colour, linewidth=wide, zorder=2 if on_the_way else 1)
            axis.text(
                s,
                rank,
                f"{label(name)[:7]}\n{candidate.score:.2f}".replace("\n-0.00", "\n0.00"),
                ha="center",
                va="center",
                fontsize=7,
                color="#666666" if candidate.fate == "dropped" else "black",
                bbox={
                    "boxstyle": "round,pad=0.25",
                    "facecolor": "#d9ebf7" if candidate.fate == "ended" else "white",
                    "edgecolor": colour,
                },
                zorder=3,
            )
            if candidate.slot is not None:
                here[candidate.slot] = rank
        slots = here
    axis.set_xlim(-0.8, len(steps) - 0.5)
    axis.set_ylim(rows - 0.4, -0.6)
    axis.set_xticks(range(len(steps)), [str(s) for s in range(len(steps))], fontsize=8)
    axis.set_yticks([])
    axis.set_xlabel("step")
    axis.grid(False)
    axis.spines["left"].set_visible(False)
    legend = "orange: the answer; blue: kept; filled: ended; grey: dropped"
    title = f"beam of {found.beam}: the best {2 * found.beam} candidates of each step ({legend})"
    plots.heading(fig, title, size=10)
    return fig


def attribution_figure(inside: Inspection) -> Any | None:
    """What each part pushed each token by, against the token that came next to it."""
    attribution = inside.attribution
    if attribution is None:
        return None
    shown = min(LONGEST, len(attribution.tokens))
    pushes = (attribution.terms[:shown, 0] - attribution.terms[:shown, 1]).T
    names = [inside.names([int(i) for i in row[:2]]) for row in attribution.tokens[:shown]]
    fig, axis = plots.figure(max(6.0, 0.42 * shown + 2.8), 0.24 * len(pushes) + 1.8)
    top = float(np.abs(pushes).max()) or 1.0
    image = axis.imshow(pushes, cmap=plots.SIGNED, vmin=-top, vmax=top, aspect="auto")
    labels = [f"{label(token)[:8]}\nnot {label(other)[:8]}" for token, other in names]
    axis.set_xticks(range(shown), labels, fontsize=7)
    axis.set_yticks(range(len(pushes)), attribution.parts, fontsize=7)
    axis.xaxis.tick_top()
    turn_long_labels(axis, 0.42 * 72, 7)
    axis.tick_params(length=0)
    axis.grid(False)
    fig.colorbar(image, ax=axis, label="logit of the token minus that of the next best")
    plots.heading(fig, "attribution: which part pushed for each token (orange) or against it (purple)")
    return fig


FIGURES: dict[str, Callable[[Inspection], Any]] = {
    "maps": maps_figure,
    "map": head_map_figure,
    "alignment": alignment_figure,
    "tokens": tokens_figure,
    "lens": lens_figure,
    "attribution": attribution_figure,
    "norms": norms_figure,
    "rollout": rollout_figure,
    "head": head_figure,
    "beam": beam_figure,
    "across": across_figure,
}


def save_pictures(inside: Inspection, folder: Path) -> list[Path]:
    """Every view that this sentence has, as PNG and SVG."""
    paths: list[Path] = []
    for name, draw in FIGURES.items():
        fig = draw(inside)
        if fig is not None:
            paths += plots.save(fig, folder / name)
    return paths
