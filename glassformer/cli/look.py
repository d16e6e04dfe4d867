"""`glassformer look`: what goes on inside a model while it reads a text and answers."""

from __future__ import annotations

from pathlib import Path

import typer

from glassformer.cli import options
from glassformer.language import _, localized
from glassformer.screen import warn


@options.documented
def look(
    run: options.Run,
    text: str,
    target: str | None = None,
    against: str | None = None,
    beside: str | None = None,
    beside_run: Path | None = None,
    beside_step: int | None = None,
    out: Path | None = None,
    across: bool = False,
    beam: int | None = None,
    new: int = 12,
    pictures: bool = True,
    device: options.Device = "cpu",
    step: options.Step = None,
) -> None:
    """Write a report on one text: look.html, which opens in any browser and needs no network, and pictures of maps and tables.

    The machine itself, attention of every head as maps and lines, probabilities and alternatives, logit lens, attribution,
    residual stream, rollout, one head step by step, and the beam. With --across, the same at every checkpoint that the
    run has kept.
    """
    from dataclasses import replace

    from glassformer.api import load
    from glassformer.inspection import look_across, look_inside, write_report
    from glassformer.inspection.explanation_data import importance_of
    from glassformer.inspection.inspection import Inspection
    from glassformer.inspection.patching import patch
    from glassformer.runs.folder import RunFolder

    def seen(folder: Path, words: str, at: int | None) -> Inspection:
        model = load(folder, device=device, step=at)
        found = look_inside(model, words, target, beam=beam, new=new)
        if at is None:  # `heads` cuts the final weights; what it found is not true of others
            found = replace(found, importance=importance_of(folder))
        return look_across(RunFolder.open(folder), found) if across else found

    def named(folder: Path, at: int | None) -> str:
        return folder.resolve().name + (f", step {at}" if at is not None else "")

    inside, title = seen(run, text, step), named(run, step)
    if against is not None:
        inside = replace(inside, patching=patch(inside.model, text, against))
    other, other_title = None, ""
    if beside is not None or beside_run is not None or beside_step is not None:
        folder = run if beside_run is None else beside_run
        # Another text is read by the same weights, unless others are asked for.
        at = step if beside_step is None and beside_run is None else beside_step
        other, other_title = seen(folder, text if beside is None else beside, at), named(folder, at)
    for note in [*inside.input.notes, *(other.input.notes if other is not None else [])]:
        warn(_("note: {warning}", note))
    report = write_report(inside, title, out or run / "look", pictures=pictures, beside=other, beside_title=other_title)
    for warning in report.notes:
        warn(_("note: {warning}", warning))
    page = report.paths[0]
    typer.echo(f"{page} ({page.stat().st_size / 1e6:.1f} MB)")
    if len(report.paths) > 1:
        typer.echo(localized(_("{count} pictures beside it, PNG and SVG", len(report.paths) - 1)))
