"""`glassformer look`: what goes on inside a model while it reads a text and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import options
from glassformer.language import _, localized
from glassformer.screen import warn


def look(
    run: options.Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model reads.")],
    target: Annotated[
        str | None, typer.Option(help="An answer that is forced on the model, in place of its own.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="A second text, of as many tokens: the patching map between the two.")
    ] = None,
    beside: Annotated[str | None, typer.Option(help="Another text, shown to the right of this one.")] = None,
    beside_run: Annotated[Path | None, typer.Option(help="Another run, shown to the right of this one.")] = None,
    beside_step: Annotated[
        int | None,
        typer.Option(help="Another checkpoint (of --beside-run, where given), shown to the right of this one."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the report; without it, RUN/look.")] = None,
    across: Annotated[
        bool, typer.Option("--across", help="The same text at every kept checkpoint, side by side.")
    ] = False,
    beam: Annotated[int | None, typer.Option(help="The width of the search that is shown.")] = None,
    new: Annotated[int, typer.Option(help="A GPT: so many tokens are written after the text.")] = 12,
    pictures: Annotated[bool, typer.Option(help="PNG and SVG of the maps and tables beside the page.")] = True,
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
