"""The curves of a run, drawn from its metrics."""

from __future__ import annotations

from pathlib import Path

from glassformer import plots
from glassformer.files.owned import refuse_link
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.screen import warn


def draw_curves(run: RunFolder) -> list[Path]:
    """curves.png and curves.svg in the run. A picture is never a reason to fail: where it cannot be drawn, that is said."""
    try:
        records = run.metrics()
        names = [n for n in ("exact_match", "bleu", "accuracy") if any(f"val_{n}" in r for r in records)]
        for name in ("curves.png", "curves.svg"):
            refuse_link(run.path / name)
            (run.path / name).unlink(missing_ok=True)
        changed = run.facts.get("build")
        title = run.recipe.name if changed is None else f"{run.recipe.name}, {changed}"
        fig = plots.curves(records, names[0] if names else None, title=title)
        return plots.save(fig, run.path / "curves")
    except Exception as error:
        warn(_("the curves of {path} could not be drawn: {error}", run.path, error))
        return []
