"""metrics.jsonl, and the same numbers for TensorBoard and wandb where a recipe asks for them."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassformer.errors import UserError, install_hint
from glassformer.files.durable import append
from glassformer.files.owned import open_own
from glassformer.language import _
from glassformer.screen import warn
from glassformer.training.progress import StepReport


@contextmanager
def needed_for(setting: str, extra: str) -> Iterator[None]:
    """Inside, the import of a package that only this setting asks for."""
    try:
        yield
    except ImportError:
        raise UserError(
            "{path} needs {module}; install it with: {command}", setting, extra, install_hint(extra)
        ) from None


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
        with contextlib.suppress(OSError):
            os.fsync(self.descriptor)
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        """Close the file, if it is open."""
        if self.descriptor is not None:
            with contextlib.suppress(OSError):
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
            with needed_for("train.tensorboard", "tensorboard"):
                from torch.utils.tensorboard import SummaryWriter
            self.tensorboard = SummaryWriter(str(tensorboard))
        if wandb_name is not None:
            with needed_for("train.wandb", "wandb"):
                import wandb
            self.wandb = wandb.init(project="glassformer", name=wandb_name, dir=str(path.parent), resume="allow")

    def write(self, values: dict[str, Any]) -> None:
        """A line of numbers, here and wherever else they are logged."""
        line = {**values, "clock": round(time.perf_counter() - self.began, 3)}
        self.metrics.append(json.dumps(line) + "\n")
        numbers = {k: v for k, v in values.items() if isinstance(v, int | float) and k != "step"}
        with contextlib.suppress(Exception):  # whatever they run into, a log is no reason to stop
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
        with contextlib.suppress(Exception):
            if self.tensorboard is not None:
                self.tensorboard.close()
            if self.wandb is not None:
                self.wandb.finish()

    def on_message(self, text: str) -> None:
        """What was said on the screen."""
        self.said.append(text + "\n")

    def on_log(self, report: StepReport) -> None:
        """The numbers of a step."""
        numbers = {"step": report.step, "loss": report.loss, "lr": report.rate, "grad_norm": report.norm}
        layers = {f"grad_norm/{layer}": norm for layer, norm in report.layers.items()}
        self.write({**numbers, "tokens": report.tokens, "epoch": report.epoch, **layers})
