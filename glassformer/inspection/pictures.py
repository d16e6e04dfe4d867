"""The views of `look` as pictures: PNG and SVG, for papers and slides. Everything else, and what can be turned and hovered
over, is in the page."""

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


FIGURES: dict[str, Callable[[Inspection], Any]] = {
    "maps": maps.maps_figure,
    "map": maps.head_map_figure,
    "alignment": maps.alignment_figure,
    "tokens": tokens_figure,
    "lens": lens_figure,
    "rollout": maps.rollout_figure,
    "beam": beam_figure,
}


def save_pictures(inside: Inspection, folder: Path) -> list[Path]:
    """Every view that this sentence has, as PNG and SVG."""
    paths: list[Path] = []
    for name, draw in FIGURES.items():
        fig = draw(inside)
        if fig is not None:
            paths += plots.save(fig, folder / name)
    return paths
