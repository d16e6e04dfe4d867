"""`glassformer verify-resume`: train, kill, resume, and compare with the run that was never stopped."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from glassformer.config import read_recipe
from glassformer.language import _
from glassformer.screen import say, table_console


def verify_resume(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or a .toml file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY.SUB=VALUE]...", help="Changes, such as train.ema=0.99.")
    ] = None,
    steps: Annotated[int, typer.Option(help="n: trains 2n steps, and n, a kill, a resume and n.")] = 20,
) -> None:
    """Train 2n steps; train n, kill, resume, train n; show whether the two agree, bit by bit.

    Exit codes: 0 they agree; 1 they differ; 2 something to put right.
    """
    from rich.table import Table

    from glassformer.lab import verify_resume as study
    from glassformer.runs import pick_device

    resolved = read_recipe(recipe, overrides or [])
    device = pick_device(resolved.train).type
    with study.ending_in_order(), TemporaryDirectory() as folder:
        parts = study.verify_resume(resolved, steps, Path(folder), say)
    table = Table(title=f"{resolved.name}: {2 * steps} steps, and {steps} + kill + resume + {steps}, on {device}")
    table.add_column(_("what"))
    table.add_column(_("compared"), justify="right")
    table.add_column(_("differ"), justify="right")
    table.add_column(_("bits"), justify="right")
    for part in parts:
        table.add_row(part.name, f"{part.compared:,}", f"{len(part.differences):,}", f"{part.bits:,}")
    console = table_console()
    console.print(table)
    wrong = [(part.name, d) for part in parts for d in part.differences]
    for where, difference in wrong[:20]:
        console.print(f"  {where}: {difference.name}: {difference.what}")
    if len(wrong) > 20:
        console.print(f"  … and {len(wrong) - 20:,} more")
    console.print(_("{parts:,} bits differ", parts=sum(part.bits for part in parts)), style="red" if wrong else "green")
    if wrong:
        if device == "cuda" and not resolved.train.deterministic:
            console.print(_("On CUDA runs are the same to the bit only with train.deterministic=true."))
        raise SystemExit(1)
