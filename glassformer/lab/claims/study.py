"""What a study is: a claim, the trials that put it to the test, and what they say.

A trial is a plain function from settings to numbers, so that it can be run in another process, kept, and read back; a
study that was broken off goes on with the trials that are missing. Nothing here trains or measures.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassformer.lab.claims.verdict import Condition, Verdict, verdict
from glassformer.lab.claims.words import Words

Settings = dict[str, Any]
"""What tells one trial from another: names to numbers, words and lists."""

Measured = dict[str, Any]
"""What a trial found: names to numbers and lists of numbers."""


@dataclass(frozen=True)
class Effort:
    """How much a study may cost.

    >>> QUICK.steps(1000), DEFAULT.steps(1000)
    (100, 1000)
    """

    name: str
    seeds: int
    share: float  # of the steps of the default

    def steps(self, count: int) -> int:
        """So many steps of training at the default effort are how many at this one."""
        return max(2, round(count * self.share))

    def pick(self, quick: Sequence[Any], default: Sequence[Any], full: Sequence[Any] | None = None) -> list[Any]:
        """The sizes to try: few, the usual ones, or more."""
        return list(quick if self.name == "quick" else default if self.name == "default" or full is None else full)


QUICK = Effort("quick", 2, 0.1)
DEFAULT = Effort("default", 3, 1.0)
FULL = Effort("full", 5, 2.0)
EFFORTS = {effort.name: effort for effort in (QUICK, DEFAULT, FULL)}


@dataclass(frozen=True)
class Results:
    """The trials of a study with what they found, to be asked by their settings."""

    trials: tuple[tuple[Settings, Measured], ...]

    def where(self, **settings: Any) -> list[tuple[Settings, Measured]]:
        """The trials that have these settings, in the order in which they were planned."""
        return [
            (own, found) for own, found in self.trials if all(own.get(key) == value for key, value in settings.items())
        ]

    def values(self, key: str, **settings: Any) -> list[float]:
        """One number of each trial with these settings: a value a seed."""
        return [float(found[key]) for _, found in self.where(**settings)]

    def mean(self, key: str, **settings: Any) -> float:
        """Its mean over the seeds."""
        return statistics.fmean(self.values(key, **settings))

    def spoken(self, key: str, digits: int = 1, **settings: Any) -> str:
        """Mean ± deviation over seeds, as a table has it; a dash where there is no such trial."""
        values = self.values(key, **settings)
        if not values:
            return "–"
        spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.{digits}f}{spread}"

    def options(self, key: str, **settings: Any) -> list[Any]:
        """The values that a setting took, each once, in the order in which they were planned."""
        return list(dict.fromkeys(own[key] for own, _ in self.where(**settings) if key in own))


@dataclass(frozen=True)
class Table:
    """Rows of text under headings."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class StudyResult:
    """What a study found: tables, and the conditions of its claim."""

    tables: tuple[Table, ...]
    conditions: tuple[Condition, ...]
    notes: tuple[Words, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """By the rule of verdict.py."""
        return verdict(self.conditions)


@dataclass(frozen=True)
class Study:
    """A claim of the literature, and how it is put to the test.

    `plan` says which trials an effort asks for, `trial` runs one of them, `judge` makes tables and conditions of all, `draw`
    a figure. `alone`: trials are timed, so they run one after the other with the whole machine to themselves.
    """

    name: str
    claim: Words
    said_by: str
    minutes: int  # about, at the default effort, on two cores
    plan: Callable[[Effort], list[Settings]]
    trial: Callable[..., Measured]
    judge: Callable[[Results], StudyResult]
    draw: Callable[[Results], Any]
    alone: bool = False
    version: int = 1  # raised when a trial is changed so that what was kept is no longer what it would find


def grid(effort: Effort, /, *, seeds: bool = True, **choices: Sequence[Any]) -> list[Settings]:
    """Every combination of the choices, each with every seed.

    >>> len(grid(DEFAULT, size=[1, 2], kind=["a", "b"]))
    12
    """
    found: list[Mapping[str, Any]] = [{}]
    for key, values in choices.items():
        found = [{**one, key: value} for one in found for value in values]
    numbers = range(effort.seeds) if seeds else [0]
    return [{**one, "seed": seed} for one in found for seed in numbers]
