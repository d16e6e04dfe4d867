"""metrics.jsonl, and the same numbers for TensorBoard and wandb where a recipe asks for them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassformer.errors import UserError
from glassformer.files import durable
from glassformer.train.trainer import StepReport


@contextmanager
def needed_for(setting: str, extra: str) -> Iterator[None]:
    """Inside, the import of a package that only this setting asks for."""
    try:
        yield
    except ImportError:
        raise UserError(f"{setting} needs {extra}; install it with: pip install 'glassformer[{extra}]'") from None


def size_on_disk(path: Path) -> int:
    if not path.exists():
        return 0
    durable.fsync(path)
    return path.stat().st_size


def truncate_log(path: Path, size: int) -> None:
    """Lines written after the checkpoint will be written again."""
    if path.exists():
        os.truncate(path, min(size, path.stat().st_size))


class MetricsLog:
    """metrics.jsonl: a line for each log interval and each validation. Times are apart, under "clock"."""

    def __init__(self, path: Path, tensorboard: Path | None = None, wandb_name: str | None = None) -> None:
        self.path = path
        self.file = path.open("a", encoding="utf-8")
        self.began = time.perf_counter()
        self.tensorboard: Any = None
        self.wandb: Any = None
        if tensorboard is not None:
            with needed_for("train.tensorboard", "tensorboard"):
                from torch.utils.tensorboard import SummaryWriter
            self.tensorboard = SummaryWriter(str(tensorboard))
        if wandb_name is not None:
            with needed_for("train.wandb", "wandb"):
                import wandb
            self.wandb = wandb.init(project="glassformer", name=wandb_name, dir=str(path.parent), resume="allow")

    def write(self, values: dict[str, Any]) -> None:
        line = {**values, "clock": round(time.perf_counter() - self.began, 3)}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        numbers = {k: v for k, v in values.items() if isinstance(v, int | float) and k != "step"}
        if self.tensorboard is not None:
            for name, value in numbers.items():
                self.tensorboard.add_scalar(name, value, values["step"])
        if self.wandb is not None:
            self.wandb.log(numbers, step=values["step"])

    def size(self) -> int:
        self.file.flush()
        return size_on_disk(self.path)

    def close(self) -> None:
        self.file.close()
        if self.tensorboard is not None:
            self.tensorboard.close()
        if self.wandb is not None:
            self.wandb.finish()

    def on_log(self, report: StepReport) -> None:
        self.write(
            {
                "step": report.step,
                "loss": report.loss,
                "lr": report.rate,
                "grad_norm": report.norm,
                "tokens": report.tokens,
                "epoch": report.epoch,
            }
        )

    def on_message(self, text: str) -> None:
        pass
