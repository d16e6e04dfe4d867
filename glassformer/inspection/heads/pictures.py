"""The figures of `glassformer heads`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer import plots
from glassformer.evaluation.metrics import BETTER_WHEN_LOWER
from glassformer.inspection.heads.importance import LOST, MODES, HeadImportances, Importance

NAMES = {
    "bleu": "BLEU",
    "exact_match": "exact match (%)",
    "accuracy": "accuracy (%)",
    "perplexity": "perplexity",
    "loss": "loss (nats a token)",
}


def row_label(name: str) -> str:
    """The name of an attention as a figure shows it."""
    side, layer, part = name.split(".")
    return f"{side} {layer} {'self' if part == 'attention' else part}"


def as_grid(
    found: HeadImportances, attentions: Sequence[str], width: int, value: Callable[[Importance], float]
) -> np.ndarray:
    """A row for each attention, a column for each head."""
    grid = np.full((len(attentions), width), np.nan)
    for one in found.parts:
        if one.part.head is not None:
            grid[attentions.index(one.part.module), one.part.head] = value(one)
    return grid


def mlps_of(found: HeadImportances) -> list[tuple[str, Importance]]:
    """The MLPs, each with the name of its layer."""
    mlps = [one for one in found.parts if one.part.head is None]
    return [(one.part.module.removesuffix(".mlp").replace(".", " "), one) for one in mlps]


def draw(found: HeadImportances, config: Any, out: Path) -> list[Path]:
    """heads (one), kinds and curve, each as PNG and SVG."""
    attentions, width = config.attentions, max(map(config.heads_of, config.attentions))
    rows, columns = [row_label(name) for name in attentions], [*map(str, range(width))]
    mlps = mlps_of(found)
    panels = []
    for name in ("loss", found.score):
        sign = -1.0 if name not in BETTER_WHEN_LOWER else 1.0
        for mode in MODES:

            def harm(part: Importance, name: str = name, mode: Any = mode, sign: float = sign) -> float:
                return sign * found.change(part, mode, name)

            gain = "rise" if sign > 0 else "fall"
            grid = as_grid(found, attentions, width, harm)
            panels.append(
                (f"{gain} of {NAMES[name]}, {mode} ablation", grid, np.array([harm(part) for _, part in mlps]))
            )
    paths = plots.save(plots.part_maps(panels, rows, [label for label, _ in mlps]), out / "heads")
    strength = as_grid(found, attentions, width, lambda w: w.strength)
    words = [["" for _ in columns] for _ in rows]
    for one in found.parts:
        if one.part.head is not None:
            words[attentions.index(one.part.module)][one.part.head] = one.kind
    kind_map = plots.kind_map(strength, words, rows, columns)
    paths += plots.save(kind_map, out / "kinds")
    values = [found.whole[found.score], *(v[found.score] for _, v in found.curve)]
    whole = found.whole[found.score]
    line = whole * (1 + LOST if found.score in BETTER_WHEN_LOWER else 1 - LOST)
    curve = plots.cut_curve(values, line, found.can_go, NAMES[found.score])
    return [*paths, *plots.save(curve, out / "curve")]
