"""How far a training is, and what is told of it on the way: to callbacks, and on the one display."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch

from glassformer.data.stream import Position
from glassformer.language import _, localized
from glassformer.screen import Progress, say
from glassformer.training.memory import resident


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
        """The place in the data where the next batch is read."""
        return Position(self.epoch, self.index)


@dataclass(frozen=True)
class StepReport:
    """The numbers of a step (or of the steps since the last report) for the log and the screen."""

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


def memory_in_use() -> str:
    """The memory that the process holds on its device, in words."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GB"
    return f"{resident() / 2**30:.1f} GB"


class Screen:
    """Listens to the trainer; `steps` is where the run ends, `first` where it begins or goes on."""

    def __init__(self, steps: int, first: int = 0) -> None:
        self.steps, self.first = steps, first
        self.score = ""
        self.display: Progress | None = None
        self.last: tuple[float, int] | None = None  # when the last report was, and the tokens until then
        self.speed = 0.0
        self.last_line = 0.0

    def __enter__(self) -> Screen:
        self.display = Progress(self.place(self.first), self.steps, first=self.first, after=0, keep=True)
        self.display.__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        if self.display is not None:
            self.display.__exit__(*ended)

    def place(self, step: int) -> str:
        """How far the training is."""
        return localized(_("step {step:,}/{steps:,}", step, self.steps))

    def on_log(self, report: StepReport) -> None:
        """A report of the trainer: speed is a running mean over reports, pauses left out."""
        now = time.perf_counter()
        if self.last is not None:
            then, tokens = self.last
            fresh = (report.tokens - tokens) / max(1e-9, now - then)
            self.speed = fresh if not self.speed else 0.8 * self.speed + 0.2 * fresh
        self.last = (now, report.tokens)
        facts = f"{localized(_('loss'))} {report.loss:.4f}  lr {report.rate:.2e}  |g| {report.norm:.2f}"
        facts += f"  {self.speed:,.0f} tok/s" if self.speed else ""
        facts += f"  {memory_in_use()}"
        facts += f"  {self.score}" if self.score else ""
        if self.display is not None:
            first = not self.last_line
            self.last_line = now
            self.display.update(report.step, facts, self.place(report.step), line=first or report.step == self.steps)

    def on_step(self, step: int) -> None:
        """Before the first report, how far it is: steps may be so slow that the time left is known long before."""
        if not self.last_line:
            self.at(step)

    def at(self, step: int) -> None:
        """The log may have been silent on the last few steps."""
        if self.display is not None:
            self.display.update(step, self.display.facts, self.place(step))

    def on_message(self, text: str) -> None:
        """A line that stays: a validation, a warning."""
        if self.display is not None:
            self.display.message(text)
        else:
            say(text)

    def pause(self) -> None:
        """Time that is not training (a validation) must not count as slow training."""
        self.last = None
