"""How far a training is, and what is told of it on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from glassformer.data.stream import Position


@dataclass
class TrainerState:
    """Everything that moves, apart from tensors."""

    step: int = 0
    tokens: int = 0  # target tokens learned from
    epoch: int = 0
    index: int = 0
    best_step: int | None = None
    best_score: float | None = None
    best_loss: float | None = None  # at the best step: it decides where scores do not
    waiting: int = 0  # validations since the best
    bad_steps: int = 0  # non-finite steps in a row
    loss_sum: float = 0.0  # since the last line in the log
    loss_tokens: int = 0
    usual_loss: float | None = None  # moving mean and spread, for telling a spike
    usual_spread: float = 0.0
    validated: int = 0  # the step of the last validation

    @property
    def position(self) -> Position:
        """Where the next batch is read."""
        return Position(self.epoch, self.index)


@dataclass(frozen=True)
class StepReport:
    """What the log and the screen are told of a step (or of the steps since the last report)."""

    step: int
    loss: float
    rate: float
    norm: float
    tokens: int
    epoch: int
    layers: dict[str, float] = field(default_factory=dict)  # the gradient norm of each, where train.log_layers asks


@runtime_checkable
class TrainerCallback(Protocol):
    """Whoever is called on the way: the screen, the log file, a function of the user's."""

    def on_log(self, report: StepReport) -> None:
        """A report at the logging interval."""

    def on_message(self, text: str) -> None:
        """Something a person should read."""


Callbacks = Sequence[TrainerCallback]
