"""The curves of a run, drawn from its metrics."""

from __future__ import annotations

from pathlib import Path

from glassformer import plots
from glassformer.run_folder import RunFolder


def draw_curves(run: RunFolder) -> list[Path]:
    records = run.metrics()
    names = [n for n in ("exact_match", "bleu", "accuracy") if any(f"val_{n}" in r for r in records)]
    fig = plots.curves(records, names[0] if names else None, title=run.recipe.name)
    return plots.save(fig, run.path / "curves")
