"""`glassformer doctor`: what is in a run's folder, what is damaged, and from where it can go on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from glassformer.cli import options
from glassformer.language import _, localized
from glassformer.screen import FOLD, RIGHT, make_table, table_console


@options.documented
def doctor(run: Path, prune: bool = False, as_json: options.JsonObject = False) -> None:
    """Read every byte of a run and say what is there, damaged or left behind, and what --resume would do. Changes nothing.

    With --prune, what killed commands have left in it and beside it is cleared away.

    Exit codes: 0 all is whole; 1 something is damaged; 2 this is no run.
    """
    from glassformer.runs import doctor as run_doctor

    pruned = run_doctor.prune(run) if prune else []
    found = run_doctor.examine(run)
    if as_json:
        facts = {"pruned": [asdict(one) for one in pruned]} if prune else {}
        print(json.dumps({"run": str(run), **found.to_dict(), **facts}))
    else:
        from rich.text import Text

        colours = {_("good"): "green", _("note"): "yellow", _("damaged"): "red"}
        table = make_table((_("what"), ("kB", RIGHT), _("condition"), (_("about"), FOLD)), title=str(run))
        for one in found.findings:
            condition = Text(localized(one.condition), style=colours[one.condition])
            size = f"{one.size / 1000:,.0f}" if one.size else ""
            table.add_row(one.name, size, condition, Text(localized(one.about)))
        console = table_console()
        for gone in pruned:
            told = _("cleared away: {name}, {size:,.0f} kB ({about})", gone.name, gone.size / 1000, gone.about)
            console.print(told, soft_wrap=True)
        if prune and not pruned:
            console.print(_("nothing to clear away"))
        console.print(table)
        console.print(found.outlook, soft_wrap=True)
    if found.damaged:
        raise SystemExit(1)
