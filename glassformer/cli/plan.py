"""`glassformer plan`: what a recipe will cost on this machine, before it costs it."""

from __future__ import annotations

from typing import Annotated

import typer

from glassformer.cli.own_data import sorted_words, with_data
from glassformer.config import Recipe
from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import table_console

LONGEST = 3600  # seconds; after an hour of measuring one might as well train


def plan(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, a .toml file or a file of data.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY.SUB=VALUE]...")] = None,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = 5.0,
) -> None:
    """Parameters, memory, whether it fits here, tokens a second measured in a few seconds, and the time to finish."""
    values, name = with_data(*sorted_words(recipe, [], overrides or []))
    known = Recipe.from_dict(values, name=name)

    from rich.table import Table

    from glassformer.runs.plan import make_plan

    if not 0 < seconds <= LONGEST:
        raise ConfigError(
            "--seconds must be above 0 and at most {longest:,}, not {seconds:g}", longest=LONGEST, seconds=seconds
        )
    found = make_plan(known, seconds=seconds)
    table = Table(title=f"{recipe} on {found.device}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for name, value in found.rows():
        table.add_row(localized(name), localized(value))
    console = table_console()
    console.print(table)
    if not found.fits:
        console.print(_("It does not fit: {advice}", advice=found.advice), style="red", soft_wrap=True)
        raise SystemExit(1)
