"""`glassformer look`: what goes on inside a model while it reads a text and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import lines


def look(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model reads.")],
    target: Annotated[
        str | None, typer.Option(help="An answer that is forced on the model, in place of its own.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the report; without it, RUN/look.")] = None,
    across: Annotated[
        bool, typer.Option("--across", help="The same text at every kept checkpoint, side by side.")
    ] = False,
    beam: Annotated[int | None, typer.Option(help="The width of the search that is shown.")] = None,
    new: Annotated[int, typer.Option(help="A GPT: so many tokens are written after the text.")] = 12,
    pictures: Annotated[bool, typer.Option(help="PNG and SVG of every view beside the page.")] = True,
    device: lines.Device = "cpu",
    step: lines.Step = None,
) -> None:
    """Write a report on one text: look.html, which opens in any browser and needs no network, and a picture of each view.

    Attention of every head, alignment, probabilities and alternatives, logit lens, residual stream, rollout, one head step by
    step, and the beam. With --across, the same at every checkpoint that the run has kept.
    """
    from glassformer.api import load
    from glassformer.runs.folder import RunFolder
    from glassformer.studies.look import look_across, look_inside, write_report

    model = load(run, device=device, step=step)
    inside = look_inside(model, text, target, beam=beam, new=new)
    if across:
        inside = look_across(RunFolder.open(run), inside)
    for note in inside.input.notes:
        typer.echo(f"note: {note.en}", err=True)
    paths = write_report(inside, run.resolve().name, out or run / "look", pictures=pictures)
    typer.echo(f"{paths[0]} ({paths[0].stat().st_size / 1e6:.1f} MB)")
    if len(paths) > 1:
        typer.echo(f"{len(paths) - 1} pictures beside it, PNG and SVG")
