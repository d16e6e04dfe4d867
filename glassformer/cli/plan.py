"""`glassformer plan`: what a recipe will cost on this machine, before it costs it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from glassformer.cli import options
from glassformer.cli.own_data import sorted_words, with_data
from glassformer.config import Recipe
from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import make_table, table_console

if TYPE_CHECKING:
    from glassformer.runs.scaling import Cluster, OneGpu

LONGEST = 3600  # seconds; after an hour of measuring one might as well train
MOST = 10**6  # GPUs


def show(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A table of what and how much."""
    columns = ("", {"style": "bold"}), ""
    table_console().print(make_table(columns, [map(localized, row) for row in rows], title=title, show_header=False))


def show_scaling(recipe: Recipe, one: OneGpu, gpus: int, cluster: Cluster) -> None:
    """What so many GPUs need, and by which figures."""
    from glassformer.runs import scaling

    need = scaling.needs(one, gpus, cluster)
    show(
        _("{name} on {gpus:,} GPU{plural}", recipe.name, gpus, "" if gpus == 1 else "s"),
        scaling.rows(need, scaling.needs(one, 1, cluster), cluster),
    )
    told = _(
        "Computed for {machine} GPUs a machine, {inside:.0f} GB/s from each inside it and {network:g} GB/s between machines, "
        "{speed:,.0f} target tokens/s on one GPU.",
        cluster.gpus_per_machine,
        cluster.inside / 1e9,
        cluster.network / 1e9,
        one.tokens_per_second,
    )
    table_console().print(told, soft_wrap=True)
    if not need.fits:
        raise SystemExit(1)


@options.documented
def plan(
    recipe: str,
    overrides: list[str] | None = None,
    seconds: float = 5.0,
    gpus: int | None = None,
    speed: float | None = None,
    network: float = 50.0,
) -> None:
    """Parameters, memory, whether it fits here, tokens a second measured in a few seconds, and the time to finish."""
    values, name = with_data(*sorted_words(recipe, [], overrides or []))
    known = Recipe.from_dict(values, name=name)
    if not 0 < seconds <= LONGEST:
        raise ConfigError("--seconds must be above 0 and at most {longest:,}, not {seconds:g}", LONGEST, seconds)
    if gpus is None:
        if speed is not None:
            raise ConfigError("--speed is what one of several GPUs does; say how many by --gpus")
    elif not (1 <= gpus <= MOST and 0 < network < math.inf and (speed is None or 0 < speed < math.inf)):
        raise ConfigError("--gpus must be at least 1 and at most {most:,}, --speed and --network above 0", MOST)
    from glassformer.runs import pick_device
    from glassformer.runs.plan import make_plan
    from glassformer.runs.scaling import Cluster, measured, stated

    cluster = Cluster(network=network * 1e9)
    if gpus is not None and speed is not None:
        return show_scaling(known, stated(known, speed), gpus, cluster)
    if gpus is not None and pick_device(known.train).type != "cuda":
        raise ConfigError(
            "there is no GPU here to measure on; say by --speed how many target tokens a second one trains "
            "(docs/results.md has an H200's)"
        )
    found = make_plan(known, seconds=seconds)
    show(f"{recipe} on {found.device}", found.rows())
    if not found.fits:
        table_console().print(_("It does not fit: {advice}", found.advice), style="red", soft_wrap=True)
        raise SystemExit(1)
    if gpus is not None:
        show_scaling(
            known, measured(known, found), gpus, replace(cluster, memory=float(found.available or cluster.memory))
        )
