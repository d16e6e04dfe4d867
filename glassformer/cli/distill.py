"""`glassformer distill`: a small, fast student of a run, and how far behind its teacher it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import lines, options
from glassformer.cli.backtranslate import pair_writer
from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table, say, table_console


def distill(
    run: options.Run,
    overrides: options.Changes = None,
    text: Annotated[Path | None, typer.Option(help="More texts for the teacher to translate, one a line.")] = None,
    test: Annotated[
        Path | None, typer.Option(help="Pairs to score both on; the run's own test split if not said.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where everything goes; RUN-student by default.")] = None,
    jobs: Annotated[int | None, typer.Option(help="The teacher translates with so many processes.")] = None,
    as_json: options.JsonObject = False,
    device: options.Device = "auto",
) -> None:
    """Make a small student of a run: it learns what the run writes for its own training sources (sequence-level distillation),
    with a deep encoder and a shallow decoder, and is scored beside its teacher.

    The student is OUT/student, a run as any other. Changes are of its recipe: model.n_embd=128, train.steps=5000. The same
    command goes on with what was broken off. Exit codes: 0 done; 2 something to put right; 75 stopped on request.
    """
    from glassformer import runs
    from glassformer.improve import distill as study

    lines.check_counts(jobs=jobs)
    write = pair_writer("distill", jobs, device)
    place = out or run.parent / f"{run.name}-student"
    try:
        found = study.distill(run, place, write, texts=text, test=test, overrides=overrides or [], device=device)
    except runs.Stopped:
        say(_("stopped; the same command goes on"))
        raise SystemExit(runs.STOPPED) from None
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    console, gap = table_console(), found.paired.difference
    numbers = [(name, RIGHT) for name in (found.metric, _("in int8"), _("parameters"), _("sentences/s"))]
    console.print(make_table(("", *numbers), found.rows()))
    told = _(
        "student less teacher: {gap:+.2f} [{low:+.2f}, {high:+.2f}] on {examples:,} pairs of {split}; it is in {student}",
        gap=gap.value,
        low=gap.low,
        high=gap.high,
        examples=found.examples,
        split=found.split,
        student=found.student,
    )
    console.print(told, soft_wrap=True)
    console.print(localized(found.shortlist_in_words()), soft_wrap=True)
