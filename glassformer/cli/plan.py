"""`glassformer plan`: what a recipe will cost on this machine, before it costs it."""

from __future__ import annotations

import shlex
from pathlib import Path

from glassformer.cli import options
from glassformer.cli.own_data import sorted_words, with_data
from glassformer.config import Recipe
from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import make_table, table_console

LONGEST = 3600  # seconds; after an hour of measuring one might as well train


@options.documented
def plan(recipe: str, overrides: list[str] | None = None, seconds: float = 5.0) -> None:
    """Parameters, memory, whether it fits here, tokens a second measured in a few seconds, and the time to finish."""
    if (Path(recipe) / "run.json").exists():
        raise ConfigError(
            "{recipe} is a run; `glassformer info {run}` shows it, `glassformer train {run} --resume` goes on with it",
            recipe,
            shlex.quote(recipe),
        )
    values, name = with_data(*sorted_words(recipe, [], overrides or []))
    known = Recipe.from_dict(values, name=name)
    if not 0 < seconds <= LONGEST:
        raise ConfigError("--seconds must be above 0 and at most {longest:,}, not {seconds:g}", LONGEST, seconds)
    from glassformer.runs.plan import make_plan

    found = make_plan(known, seconds=seconds)
    columns, rows = (("", {"style": "bold"}), ""), [map(localized, row) for row in found.rows()]
    title = f"{recipe} on {found.device}"
    table_console().print(make_table(columns, rows, title=title, show_header=False))
    if not found.fits:
        table_console().print(_("It does not fit: {advice}", found.advice), style="red", soft_wrap=True)
        raise SystemExit(1)
