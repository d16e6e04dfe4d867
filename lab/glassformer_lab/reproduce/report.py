"""A run and its score, and the report on some of them. Passing is a matter of the score. The time a goal names belongs to a
certain machine, so it is only told beside what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glassformer_lab.reproduce.table import Reproduction


@dataclass(frozen=True)
class Outcome:
    """One training with its score and its times."""

    recipe: str
    seed: int
    folder: str
    score: float
    signature: str
    others: dict[str, float]
    training_seconds: float  # of the steps alone
    steps: int
    tokens: int  # target tokens learned from
    parameters: int

    @property
    def tokens_per_second(self) -> float:
        """Target tokens learned from in a second of training."""
        return self.tokens / self.training_seconds if self.training_seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The outcome as a JSON-serialisable dict."""
        return asdict(self) | {"tokens_per_second": self.tokens_per_second}


def middle(outcomes: Sequence[Outcome], value: Callable[[Outcome], float]) -> float:
    """The median of a value over the trainings."""
    return statistics.median(map(value, outcomes))


def spread(scores: Sequence[float]) -> str:
    """How far the seeds lie apart, as the end of a sentence."""
    if len(scores) == 1:
        return " (one seed)"
    each = ", ".join(f"{score:.4f}" for score in scores)
    return f", deviation {statistics.stdev(scores):.4f} ({each})"


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
    facts: dict[str, Any]

    @property
    def scores(self) -> list[float]:
        """Each training's score."""
        return [outcome.score for outcome in self.outcomes]

    @property
    def median(self) -> float:
        """The score that is compared with the goal."""
        return statistics.median(self.scores)

    @property
    def goal_text(self) -> str:
        """The goal in words, with its number where it follows from others."""
        return self.what.goal_text + ("" if self.what.goal is not None else f" = {self.goal:.4f}")

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON-serialisable dict."""
        return {
            **{key: value for key, value in asdict(self.what).items() if value is not None},
            "goal": self.goal,
            "passed": self.passed,
            "too_large": self.too_large or None,
            "mean": statistics.fmean(self.scores),
            "median": self.median,
            "deviation": statistics.stdev(self.scores) if len(self.scores) > 1 else None,
            "runs": [outcome.to_dict() for outcome in self.outcomes],
            "runs_beside": [outcome.to_dict() for outcome in self.beside],
            "device": self.device,
            **self.facts,
        }

    def rows(self) -> list[tuple[str, str]]:
        """The report, a title and a sentence each."""
        what, first = self.what, self.outcomes[0]
        seconds = middle(self.outcomes, lambda outcome: outcome.training_seconds)
        published = "none" if what.published is None else f"{what.published:g}"
        rows = [
            ("published", f"{published} ({what.source})"),
            ("goal", self.goal_text),
            ("ours", f"median {self.median:.4f}, mean {statistics.fmean(self.scores):.4f}{spread(self.scores)}"),
            ("measure", f"{what.metric}: {first.signature}"),
        ]
        for key in first.others:
            rows.append((key, f"{middle(self.outcomes, lambda outcome, key=key: outcome.others[key]):.4f}"))  # type: ignore[misc]
        if self.beside:
            others = [outcome.score for outcome in self.beside]
            rows.append((str(what.beside), f"median {statistics.median(others):.4f}{spread(others)}"))
        goal = f"; goal {what.time}" if what.time else ""
        speed = middle(self.outcomes, lambda outcome: outcome.tokens_per_second)
        return [
            *rows,
            ("parameters", f"{first.parameters:,}"),
            ("training", f"{seconds:.2f} s, {first.steps:,} steps{goal}"),
            ("speed", f"{speed:,.0f} target tokens/s"),
            ("device", f"{self.device}, torch {self.facts['torch']}"),
            ("runs", ", ".join(outcome.folder for outcome in [*self.outcomes, *self.beside])),
        ]
