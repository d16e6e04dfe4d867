"""`glassformer evaluate`: scores of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import writing
from glassformer.errors import UserError


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    source: Annotated[Path | None, typer.Option(help="Score this file of sources (one a line) instead.")] = None,
    target: Annotated[Path | None, typer.Option(help="The references, line by line.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many examples.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    engine: writing.Engine = None,
) -> None:
    """Score a run on one of its splits, or on files of your own."""
    from glassformer.studies.score import score_files, score_split

    if limit is not None and limit < 1:
        raise UserError(f"--limit must be at least 1, not {limit}")
    if (source is None) != (target is None):
        raise UserError("--source and --target go together: a file of sources and a file of references")
    if source is not None and target is not None:
        scores, count = score_files(run, source, target, device=device, limit=limit, engine=engine)
        what = str(source)
    else:
        if split not in ("train", "val", "test"):
            raise UserError(f"--split is train, val or test, not {split!r}")
        scores, count = score_split(run, split, device=device, limit=limit, engine=engine)
        what = split
    if as_json:
        print(
            json.dumps(
                {"run": str(run), "on": what, "examples": count, **scores.values, "signatures": scores.signatures}
            )
        )
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"{run} on {what} ({count:,} examples)")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("signature", style="dim", overflow="fold")
    for name, value in scores.values.items():
        table.add_row(name.replace("_", " "), f"{value:.4f}", scores.signatures.get(name, ""))
    console = Console()
    console.print(table)
    for given, wanted, written in scores.samples:
        mark = "[green]=[/]" if wanted.strip() == written.strip() else "[red]≠[/]"
        console.print(f"  {escape(given)} → {escape(written)}  {mark}  {escape(wanted)}", highlight=False)
