"""A run and its score, and the report on some of them. Passing is a matter of the score. The time a goal names belongs to a
certain machine, so it is told beside it."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from glassformer_lab.reproduce.table import Reproduction
from glassformer_lab.reproduce.times import Times


@dataclass(frozen=True)
class Outcome:
    """One training with its score and its times."""

    recipe: str
    seed: int
    folder: str
    score: float
    signature: str
    others: dict[str, float]
    times: Times
    steps: int
    tokens: int  # target tokens learned from
    parameters: int

    @property
    def tokens_per_second(self) -> float:
        """Target tokens learned from in a second of training."""
        return self.tokens / self.times.training if self.times.training > 0 else 0.0


@dataclass(frozen=True)
class ReproductionReport:
    """All trainings of a reproduction, and whether they reach its goal."""

    what: Reproduction
    outcomes: list[Outcome]
    beside: list[Outcome]
    goal: float
    passed: bool
    too_large: str  # empty, or why the model is not allowed
    device: str
    expected_s: float | None  # seconds of training a run, told after its first steps
    facts: dict[str, Any]

    @property
    def scores(self) -> list[float]:
        """Each training's score."""
        return [one.score for one in self.outcomes]

    @property
    def median(self) -> float:
        """The score that is compared with the goal."""
        return statistics.median(self.scores)

    @property
    def in_time(self) -> bool | None:
        """Whether training took no longer than the goal says; None where this is another machine, or it says nothing."""
        if self.what.within is None or self.what.where not in self.device:
            return None
        return statistics.median(one.times.training for one in self.outcomes) <= self.what.within

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        what = {key: value for key, value in asdict(self.what).items() if value is not None}
        spread = {
            "mean": statistics.fmean(self.scores),
            "median": self.median,
            "lowest": min(self.scores),
            "highest": max(self.scores),
            "deviation": statistics.stdev(self.scores) if len(self.scores) > 1 else None,
        }
        return {
            **what,
            "goal": self.goal,
            "passed": self.passed,
            "too_large": self.too_large or None,
            "in_time": self.in_time,
            **spread,
            "runs": [as_facts(one) for one in self.outcomes],
            "runs_beside": [as_facts(one) for one in self.beside],
            "expected_training_s": self.expected_s,
            "device": self.device,
            **self.facts,
        }


def as_facts(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON has it."""
    return asdict(outcome) | {"tokens_per_second": outcome.tokens_per_second}
