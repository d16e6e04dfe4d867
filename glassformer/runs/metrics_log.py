"""What a run writes down while it trains: metrics.jsonl, and the same numbers for TensorBoard and wandb where a recipe asks for
them; in the end the seconds of each phase, and the curves.

The phases of a training, from its first file to its final weights, follow one another:

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
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from glassformer import plots
from glassformer.data.records import import_extra
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import append
from glassformer.files.owned import open_own, refuse_link
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.screen import warn
from glassformer.training.progress import StepReport


class LogFile:
    """A file that grows by whole lines. It is opened once, so it is followed wherever its folder is moved to; and it is never
    a reason to stop: what cannot be written is lost, and that is said once."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.descriptor: int | None = None
        self.told = False
        if path is None:  # nothing is written
            return
        try:
            self.descriptor = open_own(path, os.O_RDWR | os.O_APPEND)
        except (OSError, UserError) as error:
            self.lost(error)

    def lost(self, error: Exception) -> None:
        """Say once that the file cannot be written."""
        if not self.told:
            self.told, why = True, getattr(error, "strerror", None) or error
            warn(_("{path} cannot be written ({value}); training goes on without it", self.path, why))

    def append(self, text: str) -> None:
        """These lines, or none of them."""
        if self.descriptor is None:
            return
        try:
            append(self.descriptor, text.encode("utf-8", "replace"))
        except OSError as error:
            self.lost(error)

    def size(self) -> int:
        """How many bytes are there, on the disk for good."""
        if self.descriptor is None:
            return 0
        with suppress(OSError):
            os.fsync(self.descriptor)
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        """Close the file, if it is open."""
        if self.descriptor is not None:
            with suppress(OSError):
                os.close(self.descriptor)
            self.descriptor = None


def truncate_log(path: Path, size: int) -> None:
    """Lines written after the checkpoint will be written again."""
    try:
        if path.exists() or path.is_symlink():
            descriptor = open_own(path, os.O_RDWR)
            try:
                os.ftruncate(descriptor, min(size, os.fstat(descriptor).st_size))
            finally:
                os.close(descriptor)
    except (OSError, UserError) as error:
        why = getattr(error, "strerror", None) or error
        warn(_("{path} could not be cut back ({value}); training goes on without it", path, why))


class MetricsLog:
    """metrics.jsonl: a line for each log interval and each validation, and a last one with the seconds of each phase. Times are
    apart, under "clock" and "seconds". What is said on the screen goes to train.log beside it, and what was written at
    validations to samples.jsonl. Without a path, as on all processes of a training but the first, nothing is written."""

    def __init__(self, path: Path | None, tensorboard: Path | None = None, wandb_name: str | None = None) -> None:
        self.metrics = LogFile(path)
        self.said = LogFile(path and path.with_name("train.log"))
        self.samples = LogFile(path and path.with_name("samples.jsonl"))
        self.began = time.perf_counter()
        self.tensorboard: Any = None
        self.wandb: Any = None
        if path is None:
            return
        if tensorboard is not None:
            import_extra("tensorboard", "tensorboard", "train.tensorboard")
            from torch.utils.tensorboard import SummaryWriter

            self.tensorboard = SummaryWriter(str(tensorboard))
        if wandb_name is not None:
            library = import_extra("wandb", "wandb", "train.wandb")
            self.wandb = library.init(project="glassformer", name=wandb_name, dir=str(path.parent), resume="allow")

    def write(self, values: dict[str, Any]) -> None:
        """A line of numbers, here and wherever else they are logged."""
        line = {**values, "clock": round(time.perf_counter() - self.began, 3)}
        self.metrics.append(json.dumps(line) + "\n")
        numbers = {k: v for k, v in values.items() if isinstance(v, int | float) and k != "step"}
        with suppress(Exception):  # whatever they run into, a log is no reason to stop
            if self.tensorboard is not None:
                for name, value in numbers.items():
                    self.tensorboard.add_scalar(name, value, values["step"])
            if self.wandb is not None:
                self.wandb.log(numbers, step=values["step"])

    def write_samples(self, lines: Iterable[dict[str, Any]]) -> None:
        """Lines about what the model answers now."""
        self.samples.append("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    def close(self) -> None:
        """Close every file and logger."""
        for file in (self.metrics, self.said, self.samples):
            file.close()
        with suppress(Exception):
            if self.tensorboard is not None:
                self.tensorboard.close()
            if self.wandb is not None:
                self.wandb.finish()

    def on_message(self, text: str) -> None:
        """A message of the screen, for train.log."""
        self.said.append(text + "\n")

    def on_log(self, report: StepReport) -> None:
        """The numbers of a step."""
        numbers = {"step": report.step, "loss": report.loss, "lr": report.rate, "grad_norm": report.norm}
        layers = {f"grad_norm/{layer}": norm for layer, norm in report.layers.items()}
        self.write({**numbers, "tokens": report.tokens, "epoch": report.epoch, **layers})


PHASES = ("prepare", "compile", "steps", "validate", "save")


class PhaseClock:
    """The seconds of each phase; one follows the other, so that they add up to the whole."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self.device, self.clock = device, clock
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.phase, self.since = "compile", clock()

    def begin(self, phase: str) -> None:
        """Starts a phase; work that a GPU still does counts for the one before."""
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


def draw_curves(run: RunFolder) -> list[Path]:
    """curves.png and curves.svg in the run. A picture is never a reason to fail: where it cannot be drawn, that is said."""
    try:
        records = run.metrics()
        names = [n for n in ("exact_match", "bleu", "accuracy") if any(f"val_{n}" in r for r in records)]
        for name in ("curves.png", "curves.svg"):
            refuse_link(run.path / name)
            (run.path / name).unlink(missing_ok=True)
        changed = run.facts.get("build")
        title = run.recipe.name if changed is None else f"{run.recipe.name}, {changed}"
        fig = plots.curves(records, names[0] if names else None, title=title)
        return plots.save(fig, run.path / "curves")
    except Exception as error:
        warn(_("the curves of {path} could not be drawn: {error}", run.path, error))
        return []
