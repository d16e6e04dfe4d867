"""The rows of an ablation: mean and spread over seeds, and whether a difference to the base is more than luck
(evaluation/significance.py). With one seed the luck of training cannot be told, and nothing is called better or worse."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassformer.evaluation.examples import COMBINE
from glassformer.evaluation.metrics import BETTER_WHEN_LOWER
from glassformer.evaluation.significance import Paired, seeds_and_examples
from glassformer_lab.sweep.scores import TrialScores
from glassformer_lab.sweep.variants import Variant
from glassformer_lab.verdict import against_base


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
        return against_base(change.low, change.high, self.compared, less_is_better=name in BETTER_WHEN_LOWER)

    def to_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """As JSON has it."""
        facts = self.first
        return {
            "name": self.variant.name,
            "group": self.variant.group,
            "settings": list(self.variant.settings),
            **{key: getattr(facts, key, None) for key in ("parameters", "forward_flops", "steps", "target_tokens")},
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
