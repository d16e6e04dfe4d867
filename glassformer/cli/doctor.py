"""`glassformer doctor`: what is in a run's folder, what is damaged, and from where it can go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from glassformer.language import localized
from glassformer.screen import table_console


def doctor(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Read every byte of a run and say what is there, what is damaged, and what --resume would do. Changes nothing.

    Exit codes: 0 all is whole; 1 something is damaged; 2 this is no run.
    """
    from glassformer.studies.run_doctor import examine

    found = examine(run)
    if as_json:
        print(json.dumps({"run": str(run), **found.to_dict()}))
    else:
        from rich.table import Table
        from rich.text import Text

        colours = {"good": "green", "note": "yellow", "damaged": "red"}
        table = Table(title=str(run))
        table.add_column("what")
        table.add_column("kB", justify="right")
        table.add_column("condition")
        table.add_column("about", overflow="fold")
        for finding in found.findings:
            size = f"{finding.size / 1000:,.0f}" if finding.size else ""
            table.add_row(
                finding.name,
                size,
                Text(localized(finding.condition), style=colours[finding.condition]),
                Text(localized(finding.about)),
            )
        console = table_console()
        console.print(table)
        console.print(found.outlook, soft_wrap=True)
    if found.damaged:
        raise SystemExit(1)
