"""What there is to reproduce, as reproductions.toml has it.

The metric belongs to the table, not to the recipe: no setting can change how a run is scored, only what it learned.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from glassformer.config import not_among
from glassformer.errors import UserError
from glassformer.files import structured

Metric = Literal["bleu-none", "bleu-13a", "bleu-zh", "exact-match", "bracket-f1", "loss"]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A recipe, what was published for it, and what it must reach here."""

    name: str  # of the recipe too
    what: str
    metric: Metric
    published: float | None = None
    source: str = "no published number; the goal is our own"
    goal: float | None = None  # None: what `beside` reaches, and `margin` more
    beside: str | None = None  # a recipe that is run with it, to be compared
    margin: float = 0.0
    collection: str | None = None  # of `glassformer data get`; None: built in
    seeds: int = 1  # the median over so many, where nothing else is said
    time: str = ""  # what training should take, and on which machine
    no_larger_than: str | None = None  # a recipe whose number of parameters is the most

    @property
    def lower_is_better(self) -> bool:
        """A loss should be small, a score large."""
        return self.metric == "loss"

    @property
    def folder(self) -> str:
        """Where `glassformer data get` puts the data."""
        return "" if self.collection is None else f"data/{self.collection.replace(':', '-')}"

    @property
    def goal_text(self) -> str:
        """The goal in a few signs."""
        sign = "≤" if self.lower_is_better else "≥"
        return f"{sign} {self.goal:g}" if self.goal is not None else f"{sign} {self.beside} + {self.margin:g}"

    def reached(self, value: float, goal: float) -> bool:
        """Whether a value is as good as the goal."""
        return value <= goal if self.lower_is_better else value >= goal


@cache
def reproductions() -> tuple[Reproduction, ...]:
    """What reproductions.toml lists."""
    values = tomllib.loads(Path(__file__).with_name("reproductions.toml").read_text(encoding="utf-8"))
    listed = structured.convert(values["reproduction"], tuple[Reproduction, ...], "reproductions.toml")
    return listed  # type: ignore[no-any-return]


def reproduction(name: str) -> Reproduction:
    """The reproduction of this name; a misspelt one is an error with a suggestion."""
    for one in reproductions():
        if one.name == name:
            return one
    names = [one.name for one in reproductions()]
    raise UserError(
        "there is nothing called {name!r} to reproduce{suggestion}; there are {names}", *not_among(name, names)
    )
