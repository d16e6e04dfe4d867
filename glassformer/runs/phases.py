"""Where the time of a training goes, by phase, from its first file to its final weights:

    prepare     splits, tokenizers, token files
    compile     building the model, and everything up to the end of the first step: torch.compile's work, where it is asked for
    steps       all other steps
    validate    scores and samples on the way
    save        checkpoints, snapshots and the final weights, until they are on the disk

The last line of a finished run's metrics.jsonl holds them as `seconds`. A checkpoint holds those until then, so a run that was
gone on with has those of all its stretches, less what a stretch did after its last checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import UserError
from glassformer.files import structured

PHASES = ("prepare", "compile", "steps", "validate", "save")


class PhaseClock:
    """The seconds of each phase; one follows the other, so that they add up to the whole."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self.device, self.clock = device, clock
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.phase, self.since = "compile", clock()

    def begin(self, phase: str) -> None:
        """What follows is of this phase; what a GPU still computes is of the one before."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = self.clock()
        self.seconds[self.phase] += now - self.since
        self.phase, self.since = phase, now

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Inside it is this phase, afterwards the one before again."""
        before = self.phase
        self.begin(phase)
        yield
        self.begin(before)

    def record(self) -> dict[str, float]:
        """The seconds of each phase until now, as they are written down."""
        self.begin(self.phase)
        return {phase: round(seconds, 3) for phase, seconds in self.seconds.items()}


def last_line(metrics_file: Path) -> dict[str, Any]:
    """The last line of a metrics.jsonl; empty where it cannot be read."""
    with suppress(OSError, UserError, ValueError, RecursionError):
        line = json.loads(structured.read_regular(metrics_file, 1 << 30).rstrip().rpartition(b"\n")[2])
        return line if isinstance(line, dict) else {}
    return {}


def has_record(metrics_file: Path) -> bool:
    """Whether a finished run was finished with its last line."""
    return "seconds" in last_line(metrics_file)


def phase_seconds(metrics_file: Path) -> dict[str, float]:
    """The seconds by phase as a finished run has them in its metrics.jsonl; zeros where they are not there."""
    with suppress(KeyError, TypeError, ValueError):
        found = last_line(metrics_file)["seconds"]
        return {phase: float(found[phase]) for phase in PHASES}
    return dict.fromkeys(PHASES, 0.0)
