"""A claim of the literature: a TOML file beside this one, with its arms and conditions (their Chinese is in the catalogue of the
screen), and a function that runs one trial.

    name, claim, said_by, minutes    what is claimed, by whom, and how long it takes at the default budget on two cores
    [[grid]]                         the trials: every combination of some settings, each with every seed
    [[judge]]                        conditions (verdict.py), for each of some cases; `says`: which of several claims they test
    [[table]]                        rows of mean ± deviation
    [[panel]]                        a figure's panels
    [names.KEY]                      what a setting's value is called in texts

Texts are templates: `{depth}` is the value that the case at hand has, or a number of the module's `facts`. What cannot be said
so (a fitted power law, a picture) is a function of the claim's module, named in the file. A trial is a plain function from
settings to numbers, so that it can be run in another process, kept, and read back. Nothing here trains or measures.
"""

from __future__ import annotations

import importlib
import itertools
import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.config import not_among
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.language import _

NAMES = (
    *("embedding-scale", "tying", "scaling", "additive", "heads", "positions", "activation", "norms", "drift"),
    *("residuals", "smoothing", "leak", "parallel", "cache", "fused", "rnn", "decoder-only", "scale"),
    *("embeddings", "window", "linear", "hybrid", "batching"),
)
"""Every claim there is, in the order in which a reader of the paper meets it."""

Settings = dict[str, Any]
"""What tells one trial from another: names to numbers, words and lists."""

Measured = dict[str, Any]
"""What a trial found: names to numbers and lists of numbers."""


@dataclass(frozen=True)
class Budget:
    """How much the test of a claim may cost.

    >>> QUICK.steps(1000), DEFAULT.steps(1000)
    (100, 1000)
    """

    name: str
    seeds: int
    share: float  # of the steps of the default
    minutes: float = 1.0  # for each of the default's

    def steps(self, count: int) -> int:
        """So many steps of training at the default budget are how many at this one."""
        return max(2, round(count * self.share))


QUICK = Budget("quick", 2, 0.1, 0.1)
DEFAULT = Budget("default", 5, 1.0)
FULL = Budget("full", 10, 2.0, 4.0)
BUDGETS = {budget.name: budget for budget in (QUICK, DEFAULT, FULL)}


@dataclass(frozen=True)
class Results:
    """The trials of a claim with what they found, to be asked by their settings."""

    trials: tuple[tuple[Settings, Measured], ...]

    def where(self, **settings: Any) -> list[tuple[Settings, Measured]]:
        """The trials that have these settings, in the order in which they were planned."""
        return [
            (own, found) for own, found in self.trials if all(own.get(key) == value for key, value in settings.items())
        ]

    def values(self, key: str, **settings: Any) -> list[float]:
        """One number of each trial with these settings that has it: a value a seed."""
        return [float(found[key]) for _, found in self.where(**settings) if key in found]

    def mean(self, key: str, **settings: Any) -> float:
        """Its mean over the seeds."""
        return statistics.fmean(self.values(key, **settings))

    def shared_seeds(self, over: str, **settings: Any) -> list[Any]:
        """The seeds with which every value of one setting was tried."""
        tried = [self.options("seed", **{**settings, over: value}) for value in self.options(over, **settings)]
        return [seed for seed in tried[0] if all(seed in others for others in tried)] if tried else []

    def best(self, over: str, by: str = "val", **settings: Any) -> Any:
        """The value of one setting whose trials have the lowest mean loss on validation examples, over the seeds that every value
        was tried with; of none that diverged, unless all did."""
        seeds = self.shared_seeds(over, **settings)

        def loss(value: Any) -> float:
            mean = statistics.fmean(self.values(by, **{**settings, over: value, "seed": seed})[0] for seed in seeds)
            return mean if math.isfinite(mean) else math.inf

        return min(self.options(over, **settings), key=loss)

    def mean_std(self, key: str, digits: int = 1, **settings: Any) -> str:
        """Mean ± deviation over seeds, as a table has it; a dash where there is no such trial."""
        values = self.values(key, **settings)
        if not values or not all(map(math.isfinite, values)):
            return _("diverged") if values else "–"
        spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.{digits}f}{spread}"

    def curves(self, key: str, **settings: Any) -> tuple[list[int], list[list[float]]]:
        """A list of numbers of each trial with these settings, as a line of a figure has them."""
        found = [measured[key] for _, measured in self.where(**settings)]
        return list(range(min(map(len, found)))), found

    def line(self, key: str, over: str, **settings: Any) -> tuple[list[Any], list[list[float]]]:
        """A number over the values of one setting: where the points are, and for each seed that all of them have their values."""
        points = self.options(over, **settings)
        seeds = self.shared_seeds(over, **settings)
        return points, [[self.values(key, **{**settings, over: x, "seed": s})[0] for x in points] for s in seeds]

    def options(self, key: str, **settings: Any) -> list[Any]:
        """The values that a setting took, each once, in the order in which they were planned."""
        return list(dict.fromkeys(own[key] for own, _ in self.where(**settings) if key in own))

    def cases(self, each: Sequence[str], **settings: Any) -> list[Settings]:
        """Every combination of values of some settings that was tried, the first of them varying slowest. A name may be followed
        by which values: `first`, `last`, `sorted`, `but VALUE`, or one value (the last where it was not tried).

        >>> Results((({"a": 1}, {}), ({"a": 2}, {}))).cases(["a last"])
        [{'a': 2}]
        """
        chosen = {}
        for key, _space, which in (one.partition(" ") for one in each):
            values = self.options(key, **settings)
            if which == "sorted":
                values = sorted(values)
            elif which.startswith("but "):
                values = [value for value in values if str(value) != which[4:]]
            elif which == "first":
                values = values[:1]
            elif which:
                values = [value for value in values if str(value) == which] or values[-1:]
            chosen[key] = values
        combined = [dict(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values())]
        return [case for case in combined if self.where(**{**settings, **case})]


@dataclass(frozen=True)
class ConditionSpec:
    """One thing that would have to be so. `ours` and `theirs` say which trials are compared, by settings and the number `key`
    (with `ratio` ours over theirs against one); a number or the name of a fact in their place is the same for every seed (a fact
    that is a list has one for each). The rule `exactly` asks whether the fact `so` is true, or without one whether
    every value is above the margin (below it, where `less_is_better`)."""

    rule: str
    text: str
    key: str = ""
    ours: dict[str, Any] | str = field(default_factory=dict)
    theirs: dict[str, Any] | float | str = 0.0
    ratio: bool = False
    margin: float = 0.0  # of `within`: the slack
    unit: str = ""
    learned: float | str | None = None  # what one arm must reach, else it is void; a word: that number of the trials
    learned_by: str = ""  # another number that must reach it
    tune: str = ""  # a setting that each arm has at the value best for it on validation examples
    less_is_better: bool = False
    so: str = ""
    detail: str = ""


@dataclass(frozen=True)
class JudgeSpec:
    """Conditions for each of some cases; those with the same words in `says` have a verdict of their own."""

    condition: list[ConditionSpec]
    says: str = ""
    each: list[str] = field(default_factory=list)
    where: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RowSpec:
    """Rows of a table, one for each of some cases. A cell is a template, or a number of the trials: `{key, digits, ...}` is mean
    ± deviation, with `mean` (a format), `times` (a factor) and `over` (another number to divide by) the mean alone."""

    cells: list[str | dict[str, Any]]
    each: list[str] = field(default_factory=list)
    where: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableSpec:
    """A title, headings and rows; `source` is a function of the module that gives the rows."""

    title: str
    columns: list[str]
    rows: list[RowSpec] = field(default_factory=list)
    source: str = ""


@dataclass(frozen=True)
class PanelSpec:
    """Panels of a figure, one for each of some cases (`each`). Lines or bars, one for each of the cases of `lines` or `bars`: a
    number `key` over the setting `x` (lines) or in each of the cases of `groups` (bars), or a list of numbers `curve`. `source`
    is a function of the module that gives the lines instead."""

    title: str
    up: str
    across: str = ""
    each: list[str] = field(default_factory=list)
    where: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    bars: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    name: str = ""  # of a line or bar
    group: str = ""  # the name of a group
    x: str = ""
    key: str = ""
    keys: dict[str, str] = field(default_factory=dict)  # several numbers with their names, a line or bar each
    curve: str = ""
    source: str = ""
    log: str = ""
    level: tuple[float | str, str] | None = None
    bottom: float | None = None


@dataclass(frozen=True)
class Claim:
    """A claim as its file says it. Trials with the settings of `timed` (all, if it is empty) are timed, so they run one after
    the other with the whole machine to themselves. `version` is raised when a trial is changed so that what was kept is no
    longer what it would find."""

    name: str
    claim: str
    said_by: str
    minutes: int
    grid: list[dict[str, Any]]
    judge: list[JudgeSpec]
    table: list[TableSpec]
    panel: list[PanelSpec] = field(default_factory=list)
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    module: str = ""
    trial: str = "trial"
    across: int = 3  # panels
    timed: dict[str, Any] | None = None
    version: int = 1

    def function(self, name: str) -> Any:
        """A function of the claim's module."""
        return getattr(importlib.import_module(self.module), name)

    @property
    def run_trial(self) -> Any:
        """The function that runs one trial: from a budget and settings to what is measured."""
        return self.function(self.trial)

    def plan(self, budget: Budget) -> list[Settings]:
        """The trials that a budget asks for: every combination of the settings of each grid, each with every seed. Values may be
        given for each budget, `{quick = …, default = …, full = …}`."""
        planned: list[Settings] = []
        for grid in self.grid:
            choices = {
                key: values.get(budget.name, values.get("default", [])) if isinstance(values, Mapping) else values
                for key, values in {**grid, "seed": grid.get("seed", range(budget.seeds))}.items()
            }
            choices["seed"] = choices.pop("seed")  # varies fastest
            planned += [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
        return planned

    def is_timed(self, settings: Settings) -> bool:
        """Whether that trial is timed."""
        return self.timed is not None and self.timed.items() <= settings.items()

    def called(self, case: Settings, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What templates are filled with: facts, the values of a case by their names, and as they are (`{plain_depth}`)."""
        found: dict[str, Any] = dict(facts)
        for key, value in case.items():
            word = str(value).lower() if isinstance(value, bool) else str(value)
            name = self.names.get(key, {}).get(word)
            found |= {f"plain_{key}": value, key: value if name is None else _(name)}
        return found


def parse_claim(text: str, module: str) -> Claim:
    """A claim from the text of its file; `module` has its functions unless the file names another one beside it."""
    values = tomllib.loads(text)
    home, dot, own = module.rpartition(".")
    values["module"] = f"{home}{dot}{values.get('module', own)}"
    return structured.convert(values, Claim, f"the claim {values.get('name')}")  # type: ignore[no-any-return]


def read_claim(name: str) -> Claim:
    """The claim of that name, from the file beside this one."""
    path = Path(__file__).with_name(f"{name}.toml")
    home = __name__.rpartition(".")[0]
    return parse_claim(path.read_text(encoding="utf-8"), f"{home}.{name.replace('-', '_')}")


def claim_named(name: str) -> Claim:
    """The claim of that name; a sentence with the nearest where there is none."""
    if name not in NAMES:
        raise UserError("there is no study {name!r}{suggestion}; there are {names}", *not_among(name, NAMES))
    return read_claim(name)


def all_claims() -> list[Claim]:
    """Every claim."""
    return [read_claim(name) for name in NAMES]
