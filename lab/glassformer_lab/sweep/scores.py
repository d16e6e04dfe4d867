"""What a trial scores on the examples it has not learned from, example by example, so that trials can be compared in pairs; and
the rows of a sweep: mean and spread over seeds, and whether a difference to the base is more than luck
(evaluation/significance.py). With one seed the luck of training cannot be told, and nothing is called better or worse.

Texts are written greedily and losses are teacher-forced, as in `glassformer compare`.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.api import load
from glassformer.data.report import DataReport
from glassformer.evaluation.examples import COMBINE, example_statistics, held_out
from glassformer.evaluation.generated import metric_of
from glassformer.evaluation.metrics import BETTER_WHEN_LOWER
from glassformer.evaluation.significance import Paired, Statistics, seeds_and_examples
from glassformer.models.costs import costs
from glassformer.runs.folder import RunFolder
from glassformer_lab.sweep.variants import Variant
from glassformer_lab.trial import training_facts
from glassformer_lab.verdict import against_base


@dataclass(frozen=True)
class TrialScores:
    """One trial: for each score the numbers of every example, and what the training took."""

    split: str
    examples: str  # a fingerprint: equal where the examples are
    cut: str  # the same for how they are cut into tokens: losses a token are comparable only then
    metric: str  # the score the recipe goes by
    statistics: dict[str, list[list[float]]]
    parameters: int
    forward_flops: int
    steps: int
    tokens: int  # target tokens learned from
    training_seconds: float  # of the steps alone

    def table(self, name: str) -> Statistics:
        """The numbers of every example for a score."""
        return np.array(self.statistics[name], dtype=np.float64)

    def score(self, name: str) -> float:
        """The score of this name over all examples, from the summed numbers of each."""
        return float(COMBINE[name](self.table(name).sum(0, keepdims=True))[0])


def fingerprint(value: Any) -> str:
    """A short hash of a value's JSON: equal values have equal ones."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def score_trial(folder: Path, limit: int, device: str = "auto") -> TrialScores:
    """Scores the final weights of a run on its test split (on val, where it has none)."""
    run = RunFolder.open(folder)
    report = DataReport.read(folder / "data")
    split = "test" if report is None or report.examples.get("test") else "val"
    model = load(folder, device=device)
    run.check_data(split)
    held = held_out(model, split, limit, folder / "data")
    statistics = {name: table.tolist() for name, table in example_statistics(model, held).items()}
    tokenizers = [side.library.to_str() for side in (model.tokenizers.source, model.tokenizers.target)]
    shown = held.examples or [batch.rows.tokens.tolist() for batch in held.batches]
    metric = metric_of(run.recipe)
    return TrialScores(
        split=split,
        examples=fingerprint(shown),
        cut=fingerprint([tokenizers, run.recipe.data.prompt_answer]),
        metric=metric if metric in statistics else next(iter(statistics)),
        statistics=statistics,
        forward_flops=costs(run.recipe.model).forward_flops,
        **training_facts(run),
    )


def paired(base: Sequence[TrialScores], other: Sequence[TrialScores], name: str) -> Paired | None:
    """The base against a variant on one score; None where their examples (or for a loss: their tokens) are not the same."""
    of_tokens = name in ("loss", "token_accuracy")
    keys = {(one.split, one.examples, one.cut if of_tokens else "") for one in (*base, *other)}
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
        return statistics.fmean(one.training_seconds for one in self.trials.values()) if self.trials else None

    def verdict(self, name: str) -> str:
        """better, worse or unclear against the base, by the interval of the difference over two seeds or more; empty for the
        base."""
        if name not in self.tests:
            return ""
        change = self.tests[name].difference
        return against_base(change.low, change.high, self.compared, less_is_better=name in BETTER_WHEN_LOWER)

    def to_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """The row as a JSON-serialisable dict."""
        facts = self.first
        return {
            "name": self.variant.name,
            "group": self.variant.group,
            "settings": list(self.variant.settings),
            **{key: getattr(facts, key, None) for key in ("parameters", "forward_flops", "steps", "tokens")},
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
