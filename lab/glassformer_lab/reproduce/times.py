"""Where the time of a reproduction went: the phases of its training (runs/metrics_log.py), and its scoring."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.runs.folder import RunFolder
from glassformer.runs.metrics_log import phase_seconds


@dataclass(frozen=True)
class Times:
    """Where the time of a reproduction went, in seconds."""

    preparation: float  # tokenizer and token files
    compilation: float  # and whatever else comes before the second step
    training: float  # all other steps
    validation: float
    saving: float
    scoring: float = 0.0


def times_of(run: RunFolder, scoring: float) -> Times:
    """Of a run that was trained to its end and then scored in so many seconds."""
    seconds = phase_seconds(run.metrics_file)
    return Times(
        seconds["prepare"], seconds["compile"], seconds["steps"], seconds["validate"], seconds["save"], scoring
    )
