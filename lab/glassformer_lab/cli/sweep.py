"""`glassformer sweep`: what each setting is worth, over several seeds."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import writing
from glassformer.language import _, localized
from glassformer.screen import BARE, FIXED, RIGHT, make_table, table_console, warn

if TYPE_CHECKING:
    from glassformer_lab.sweep.report import SweepReport

SHOWN = {0: {}, 3: FIXED | RIGHT, 4: FIXED | RIGHT, 5: RIGHT, 6: FIXED | RIGHT, 7: FIXED}
"""Of the columns: all of them are wider than a terminal."""


def sweep(
    recipe: str | None = None,
    overrides: list[str] | None = None,
    *,
    vary: list[str] | None = None,
    seeds: int | None = None,
    out: Path | None = None,
    jobs: int | None = None,
    cross: bool = False,
    quick: bool = False,
    as_json: bool = False,
) -> None:
    """Change one thing at a time and see what it is worth: [bold]glassformer sweep dates --vary model.n_head=1,2,8[/].

    Every variant is trained with several seeds and held against the recipe as it is. The same command goes on where it
    was stopped. Ready: table3, parts, gpt-ablation. Exit codes: 0 done; 1 some trials did not get to their end; 2 something
    to put right; 75 stopped on request and saved.

    Example: sweep dates --vary model.n_layer=1,2,4 --seeds 3

    recipe: A recipe's name or a .toml file, or a ready ablation; without it, a list.
    overrides (KEY.SUB=VALUE): Changes for every trial.
    vary (KEY=A,B,C): Vary this; settings that move together in one: 'K=1,2 L=8,4'.
    seeds: Trainings of each variant, with seeds one after the other; 3.
    out: Where everything goes; runs/sweep/NAME by default.
    jobs: Trials at a time; on a CPU one a core, on CUDA one.
    cross: Every combination, not one thing at a time.
    quick: A few steps of one seed: does it run?
    """
    from glassformer import runs
    from glassformer_lab.sweep import sweep as study

    if recipe is None:
        show_list(as_json)
        return
    asked = study.make_sweep(recipe, vary or [], overrides or [], seeds=seeds, cross=cross, quick=quick)
    folder = out or Path("runs") / "sweep" / (Path(recipe).stem + ("-quick" if quick else ""))
    words = [recipe, *(overrides or []), *(word for setting in vary or [] for word in ("--vary", setting))]
    words += [] if seeds is None else ["--seeds", str(seeds)]
    command = shlex.join(["glassformer", "sweep", *words, *["--cross"] * cross, *["--quick"] * quick])
    try:
        with writing(folder):
            found = study.sweep(asked, folder, command=command, jobs=jobs)
    except runs.Stopped:
        more = f" --out {shlex.quote(str(out))}" if out is not None else ""
        warn(_("stopped; go on with: {command}{more}", command, more))
        raise SystemExit(runs.STOPPED) from None
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        show(found, folder)
    raise SystemExit(1 if found.failed else 0)


def show_list(as_json: bool) -> None:
    """The ablations that are ready, as a table or as JSON."""
    from glassformer_lab.sweep.variants import ready_sets

    ready = ready_sets()
    if as_json:
        print(json.dumps([{"name": one.name, "about": one.about, "variants": len(one.variants)} for one in ready]))
        return
    columns = (_("name"), FIXED), (_("variants"), FIXED | RIGHT), (_("seeds"), FIXED | RIGHT), _("what")
    rows = [(one.name, str(len(one.variants)), str(one.seeds), localized(one.about)) for one in ready]
    console = table_console()
    console.print(make_table(columns, rows, **BARE), "")
    console.print(_("Or vary what you like: glassformer sweep RECIPE --vary key.sub=a,b,c"))


def show(report: SweepReport, folder: Path) -> None:
    """The table, what did not end, and where everything is."""
    from glassformer_lab.sweep.report import cells, columns

    heads = columns(report.metric)
    table = make_table([(heads[number], options) for number, options in SHOWN.items()], title=report.about)
    for row in report.rows:
        found = cells(row, report.metric)
        table.add_row(*(found[number] for number in SHOWN))
    console = table_console()
    console.print(table)
    console.print(report.facts["budget"])
    for name, failed in report.failed.items():
        for seed, why in failed.items():
            warn(_("{name}, seed {seed}, did not get to its end: {why}", name, seed, why))
    console.print(_("table, pictures and trials: {folder}", folder), soft_wrap=True)
