"""Where the time of a run went, by the run's own log.

A step's usual time is the mean over log intervals in which nothing but training happened (those that took twice as long as
the median one had something else in them); all steps at that time are training. The first interval beyond so many usual
steps is compilation and start-up, a validation's line in the log beyond the steps before it is validation, and the rest is
saving: checkpoints, written and synced to the disk. Scoring is timed by itself.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.training.trainer import StepReport


class FirstLook:
    """Tells when the run's log had its first line, which ties the log's clock to ours."""

    def __init__(self) -> None:
        self.at: float | None = None

    def on_log(self, report: StepReport) -> None:
        """Remembers when the first report came."""
        if self.at is None:
            self.at = time.perf_counter()

    def on_message(self, text: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Times:
    """Where the time of a reproduction went, in seconds."""

    preparation: float  # tokenizer and token files
    compilation: float  # and whatever else comes before steps take their usual time
    training: float  # all steps at their usual time
    validation: float
    saving: float  # and whatever else held the steps up
    scoring: float = 0.0


def usual_step(lines: Sequence[dict[str, Any]]) -> float | None:
    """Seconds, by the mean of the intervals in which nothing but training happened."""
    found = []
    for before, after in itertools.pairwise(lines):
        if "loss" in before and "loss" in after and after["step"] > before["step"]:
            found.append((after["clock"] - before["clock"]) / (after["step"] - before["step"]))
    if not found:
        return None
    median = statistics.median(found)
    return statistics.fmean(t for t in found if t <= 2 * median)


def times_of(lines: Sequence[dict[str, Any]], before_log: float, whole: float) -> Times:
    """From the lines of metrics.jsonl, the seconds before its clock began, and those of everything."""
    step = usual_step(lines)
    if step is None:
        return Times(before_log, 0.0, whole - before_log, 0.0, 0.0)
    first = next(line for line in lines if "loss" in line)
    compilation = max(0.0, first["clock"] - first["step"] * step)
    validation, last = 0.0, {"step": 0, "clock": compilation}
    for line in lines:
        if "loss" not in line:
            validation += max(0.0, line["clock"] - last["clock"] - (line["step"] - last["step"]) * step)
        last = line
    left = max(0.0, whole - before_log - compilation - validation)
    training = min(left, step * max(line["step"] for line in lines))
    return Times(before_log, compilation, training, validation, saving=left - training)
