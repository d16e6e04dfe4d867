"""What a person sees while a model trains: one tidy display that moves on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from glassformer.train.memory import resident
from glassformer.train.trainer import StepReport


def memory_in_use() -> str:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GB"
    used = resident()
    return "" if used is None else f"{used / 2**30:.1f} GB"


def duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Screen:
    """Listens to the trainer; `steps` is where the run ends."""

    def __init__(self, steps: int, first: int = 0) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self.steps, self.first = steps, first
        self.score = ""
        self.live: Any = None
        self.bar: Any = None
        self.facts = "starting …"
        self.began = time.perf_counter()
        self.last: tuple[float, int] | None = None  # when the last line was, and the tokens until then
        self.speed = 0.0
        self.last_line = 0.0

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            from rich.live import Live
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("[bold]{task.completed:,.0f}[/]/{task.total:,.0f}"),
                BarColumn(bar_width=30),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.task = self.bar.add_task("train", total=self.steps, completed=self.first)
            self.live = Live(get_renderable=self.picture, console=self.console, refresh_per_second=4)
            self.live.start()
        return self

    def picture(self) -> Any:
        """The bar, and under it the facts: together they are wider than a terminal of 80 columns."""
        from rich.console import Group
        from rich.text import Text

        return Group(self.bar, Text(self.facts, no_wrap=True, overflow="ellipsis"))

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def on_log(self, report: StepReport) -> None:
        now = time.perf_counter()
        if self.last is not None:
            then, tokens = self.last
            fresh = (report.tokens - tokens) / max(1e-9, now - then)
            self.speed = fresh if not self.speed else 0.8 * self.speed + 0.2 * fresh
        self.last = (now, report.tokens)
        facts = f"loss {report.loss:.4f}  lr {report.rate:.2e}  |g| {report.norm:.2f}"
        facts += f"  {self.speed:,.0f} tok/s" if self.speed else ""
        memory = memory_in_use()
        facts += f"  {memory}" if memory else ""
        facts += f"  {self.score}" if self.score else ""
        if self.live is not None:
            self.facts = facts
            self.bar.update(self.task, completed=report.step)
        elif now - self.last_line > 10 or report.step == self.steps:
            self.last_line = now
            done = max(1, report.step - self.first)
            eta = (now - self.began) / done * (self.steps - report.step)
            print(f"step {report.step}/{self.steps}  {facts}  ETA {duration(eta)}", file=sys.stderr, flush=True)

    def at(self, step: int) -> None:
        """The log may have been silent on the last few steps."""
        if self.live is not None:
            self.bar.update(self.task, completed=step)

    def on_message(self, text: str) -> None:
        if self.live is not None:
            self.live.console.print(text, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def pause(self) -> None:
        """Time that is not training (a validation) must not count as slow training."""
        self.last = None
