"""`glassformer reproduce`: a published number, reached again or not, with one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.language import _, localized
from glassformer.screen import BARE, FIXED, FOLD, RIGHT, make_table, table_console, warn


def reproduce(
    name: str | None = None,
    overrides: list[str] | None = None,
    *,
    data: Path | None = None,
    seeds: int | None = None,
    out: Path | None = None,
    as_json: bool = False,
    overwrite: bool = False,
) -> None:
    """Train a recipe, score it by the published metric, and say PASS or FAIL.

    Exit codes: 0 the goal is reached; 1 it is not; 2 something to put right; 75 stopped on request.

    Example: reproduce dates

    name: What to reproduce; without it, a list.
    data: The folder with the data; else where `data get` puts it.
    seeds: So many runs, each with another seed.
    out: Where runs and results go; runs/reproduce/NAME by default.
    overwrite: Throw away runs that are there.
    """
    if name is None:
        show_list(as_json)
        return
    from glassformer_lab.reproduce.table import reproduction

    reproduction(name)  # a name that is not there is refused at once
    from glassformer import runs
    from glassformer_lab.reproduce import reproduction as study

    try:
        report = study.reproduce(
            name,
            out or Path("runs") / "reproduce" / name,
            data=data,
            seeds=seeds,
            overrides=overrides or [],
            overwrite=overwrite,
        )
    except runs.Stopped:
        warn(_("stopped; nothing was judged"))
        raise SystemExit(runs.STOPPED) from None
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False))
    else:
        show(report)
    raise SystemExit(0 if report.passed else 1)


def show_list(as_json: bool) -> None:
    """Every published result that can be reproduced, on stdout."""
    from dataclasses import asdict

    from glassformer_lab.reproduce.table import reproductions

    if as_json:
        print(json.dumps([asdict(one) for one in reproductions()], ensure_ascii=False))
        return
    columns = (_("name"), FIXED), (_("measure"), FIXED), (_("published"), FIXED | RIGHT), (_("goal"), FIXED), _("what")
    table = make_table(columns, **BARE)
    for one in reproductions():
        published = "—" if one.published is None else f"{one.published:g}"
        goal = one.goal_text if one.goal is not None else f"plain + {one.margin:g}"
        what = _(one.what)
        if one.time:
            what = _("{what}; training within {time}", what, _(one.time))
        table.add_row(one.name, one.metric, published, goal, localized(what))
    console = table_console()
    console.print(table)
    commands = sorted({f"glassformer data get {one.collection}" for one in reproductions() if one.collection})
    console.print(_("\nWhat is not built in needs its data first: {commands}; or --data DIR.", ", ".join(commands)))


def show(report: Any) -> None:
    """One reproduction's report, on stdout."""
    from rich.text import Text

    columns, title = (("", FIXED | {"style": "bold"}), ("", FOLD)), f"{report.what.name}: {report.what.what}"
    console = table_console()
    console.print(make_table(columns, report.rows(), title=title, show_header=False))
    verdict = Text("PASS", "bold green") if report.passed else Text("FAIL", "bold red")
    why = f" ({report.too_large})" if report.too_large else ""
    told = f"  {report.what.metric} {report.median:.4f}, goal {report.goal_text}{why}"
    console.print(verdict.append(told, "default not bold"), soft_wrap=True)
