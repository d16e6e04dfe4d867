"""The rows of an ablation: mean and spread over seeds, and whether a difference to the base is more than luck.

Two kinds of luck are in a difference: which seeds were trained, and which examples are in the test set. The variance of the mean
difference is the sum of both: that of the differences of pairs that share a seed, over their number, and that of a paired
bootstrap over the examples, whose numbers are averaged over the seeds (see look/compare). The interval is Student's with
the degrees of freedom of such a sum (Welch 1947), but no more than two a seed after the first: the variance of few seeds is
itself luck, and where it comes out too small Welch would be too sure. (Resampling three seeds instead would give intervals
far too narrow: a bootstrap of three values knows no t.) With one seed the luck of training cannot be told, and nothing is
called better or worse.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glassformer.evaluation.bootstrap import Combine, Interval, Paired, Statistics, paired_bootstrap
from glassformer.evaluation.metrics import BETTER_WHEN_LOWER
from glassformer.evaluation.student import half_width, two_sided_p
from glassformer.lab.ablate.scores import COMBINE, TrialScores
from glassformer.lab.ablate.variants import Variant


def over_seeds(tables: Sequence[Statistics]) -> Statistics:
    """The numbers of each example, averaged over trainings."""
    return np.mean(np.stack(tables), axis=0)


def seeds_and_examples(first: Sequence[Statistics], second: Sequence[Statistics], combine: Combine) -> Paired:
    """Two arms by their trainings (paired by seed) on the same examples: the mean difference, its interval and its p."""
    found = paired_bootstrap(over_seeds(first), over_seeds(second), combine)
    scores = [[float(combine(table.sum(0, keepdims=True))[0]) for table in arm] for arm in (first, second)]
    changes = [b - a for a, b in zip(*scores, strict=True)]
    if len(changes) < 2:
        return found
    change = statistics.fmean(changes)
    of_seeds = statistics.variance(changes) / len(changes)
    of_examples = found.variance
    error = math.sqrt(of_seeds + of_examples)
    if error == 0:
        return replace(found, difference=Interval(change, change, change), p=0.0 if change else 1.0)
    welch = error**4 / (of_seeds**2 / (len(changes) - 1) + of_examples**2 / max(1, len(first[0]) - 1))
    free = min(welch, 2 * (len(changes) - 1))
    half = half_width(free) * error
    return replace(
        found, difference=Interval(change, change - half, change + half), p=two_sided_p(change / error, free)
    )


def paired(base: Sequence[TrialScores], other: Sequence[TrialScores], name: str) -> Paired | None:
    """The base against a variant on one score; None where their examples (or for a loss: their tokens) are not the same."""
    of_tokens = name in ("loss", "token_accuracy")
    keys = {(one.split, one.examples, one.tokens if of_tokens else "") for one in (*base, *other)}
    if len(keys) > 1 or any(name not in one.statistics for one in (*base, *other)):
        return None
    return seeds_and_examples([one.table(name) for one in base], [one.table(name) for one in other], COMBINE[name])


@dataclass(frozen=True)
class VariantRow:
    """One variant: its trials' scores by seed, its comparison with the base, and why some trials did not end."""

    variant: Variant
    trials: dict[int, TrialScores]
    tests: dict[str, Paired] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    compared: int = 0  # seeds that it shares with the base

    def scores(self, name: str) -> list[float]:
        """The score of this name of every trial that has it, one a seed."""
        return [one.score(name) for one in self.trials.values() if name in one.statistics]

    def mean(self, name: str) -> float | None:
        """The mean of a score over the seeds; None where no trial has it."""
        found = self.scores(name)
        return statistics.fmean(found) if found else None

    def spread(self, name: str) -> float | None:
        """The standard deviation over seeds; None for one seed."""
        found = self.scores(name)
        return statistics.stdev(found) if len(found) > 1 else None

    @property
    def first(self) -> TrialScores | None:
        """Any of them: for what does not depend on the seed."""
        return next(iter(self.trials.values()), None)

    @property
    def seconds(self) -> float | None:
        """How long a training took, on average over the seeds."""
        return statistics.fmean(one.seconds for one in self.trials.values()) if self.trials else None

    def verdict(self, name: str) -> str:
        """better, worse or unclear against the base, by the interval of the difference over two seeds or more; empty for the
        base."""
        if name not in self.tests:
            return ""
        change = self.tests[name].difference
        if self.compared < 2 or change.low <= 0 <= change.high:
            return "unclear"
        return "better" if (change.value > 0) != (name in BETTER_WHEN_LOWER) else "worse"

    def to_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """As JSON has it."""
        facts = self.first
        return {
            "name": self.variant.name,
            "group": self.variant.group,
            "settings": list(self.variant.settings),
            "parameters": facts.parameters if facts else None,
            "forward_flops": facts.forward_flops if facts else None,
            "steps": facts.steps if facts else None,
            "target_tokens": facts.target_tokens if facts else None,
            "seconds": self.seconds,
            "seeds": list(self.trials),
            "failed": {str(seed): why for seed, why in self.failed.items()},
            "scores": {
                name: {"each": self.scores(name), "mean": self.mean(name), "spread": self.spread(name)}
                for name in names
                if self.scores(name)
            },
            "tests": {name: test.to_dict() | {"verdict": self.verdict(name)} for name, test in self.tests.items()},
        }


def make_rows(
    variants: Sequence[Variant],
    scored: Mapping[str, Mapping[int, TrialScores]],
    failed: Mapping[str, Mapping[int, str]],
) -> list[VariantRow]:
    """A row for each variant, the base first; only seeds that both have are compared."""
    base = dict(scored.get(variants[0].name, {}))
    rows = []
    for variant in variants:
        own = dict(scored.get(variant.name, {}))
        common = sorted(base.keys() & own.keys())
        tests = {}
        if variant is not variants[0] and common:
            pairs = ([base[seed] for seed in common], [own[seed] for seed in common])
            found = {name: paired(*pairs, name) for name in pairs[0][0].statistics}
            tests = {name: test for name, test in found.items() if test is not None}
        rows.append(VariantRow(variant, own, tests, dict(failed.get(variant.name, {})), len(common)))
    return rows
