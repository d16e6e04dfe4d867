"""Runs while they are trained, by whatever process: the lines that their logs have gained and the steps whose weights are
kept; and trainings that are begun from the page. Only `glassformer open` has these routes, on its owner's machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated, Any

from msgspec import Meta, Struct

from glassformer.api.loading import load
from glassformer.config import Recipe, read_recipe, recipe_names
from glassformer.config.fields import check_name
from glassformer.data.origins import located
from glassformer.data.splits import SPLITS
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.runs.folder import RunFolder
from glassformer.serve.models import Models
from glassformer.serve.requests import APIError, bad_field, bad_request, post
from glassformer.serve.served_run import COPIES, ServedRun
from glassformer.tasks import TextModel

LIGHT = 64 << 20  # bytes of kept weights that are read without being asked for
MOST_READ = 4 << 20  # bytes of a log in one answer
FIGURES = ("step", "loss", "lr", "tokens", "clock")  # and what begins with val_


@lru_cache(maxsize=4)
def model_at(path: Path, run_id: str | None, step: int, device: str) -> TextModel:
    """A run's model with the weights of a step, held while others are looked at. `run_id`: a run that takes the place of
    another is not answered by it."""
    return load(path, device=device, step=step)


def named_by(recipe: Recipe) -> list[Path]:
    """Every file and folder that a training of a recipe would read, as it is named."""
    data = recipe.data
    files = (file for split in SPLITS for file in data.files(split))
    names = [data.path, data.tokenizer_file, *(name for file in files for name in (file.path, file.target))]
    return [located(data, name) for name in names if name is not None]


def at_step(models: Models, model: TextModel, run: ServedRun, step: int | None) -> TextModel:
    """The model with the weights of a step, or as it is served."""
    return model if step is None else model_at(run.path, run.folder.id, step, models.device)


def kept_steps(folder: RunFolder) -> list[int]:
    """The steps whose weights a run has kept."""
    return sorted({step for kept in (folder.history, folder.snapshots, folder.checkpoints) for step in kept.steps()})


def new_lines(path: Path, begin: int) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of a log from a byte on, and where they end; from its beginning where it has become shorter. A line that
    cannot be read is left out."""
    try:
        size = path.stat().st_size
        if size == begin:
            return [], begin
        begin = 0 if begin > size else begin
        text = structured.read_regular(path, 1 << 30)[begin : begin + MOST_READ]
    except (OSError, UserError):
        return [], 0
    values = []
    whole = text[: text.rfind(b"\n") + 1]
    for line in whole.splitlines():
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict) and isinstance(value.get("step"), int):
                values.append(value)
    return values, begin + len(whole)


class LogOffsets(Struct):
    """How much of a run's logs a page has: of which run, and how many bytes of each."""

    id: str | None = None
    metrics: Annotated[int, Meta(ge=0)] = 0
    samples: Annotated[int, Meta(ge=0)] = 0


class WatchFields(Struct):
    """What a page has of each run, by name."""

    seen: dict[str, LogOffsets] = {}


class TrainFields(Struct, kw_only=True):
    """A training to begin: a built-in recipe, changes such as train.steps=200, and the name of the new run."""

    recipe: str
    changes: Annotated[list[str], Meta(max_length=64)] = []
    name: str


@dataclass
class TrainingProcess:
    """A training that the page began; what it says is kept until it has ended."""

    process: subprocess.Popen[bytes]
    messages: IO[bytes]

    def failure(self) -> str | None:
        """The last line it said, where it ended badly; 75 is a stop that was asked for."""
        if self.process.poll() in (None, 0, 75):
            return None
        self.messages.seek(0)
        lines = self.messages.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.process.returncode}"

    def stop(self) -> None:
        """Ask it to save and end, if it has not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


class Training:
    """The runs of some folders, as they are now, whoever trains them. `folders`: runs, or folders with runs in them."""

    def __init__(self, folders: Sequence[Path], models: Models, report: Callable[[str], None] = lambda _: None) -> None:
        self.folders, self.models, self.report = [path.resolve() for path in folders], models, report
        self.readable = [Path.cwd().resolve(), *self.folders]  # where trainings that are begun here may take files from
        self.begun: dict[str, TrainingProcess] = {}
        self.refused: set[str] = set()

    def runs(self) -> Iterator[RunFolder]:
        """Every run there is now; of two with one name the first."""
        runs: dict[str, Path] = {}
        for folder in self.folders:
            inside = sorted(folder.iterdir()) if folder.is_dir() and not RunFolder.is_run(folder) else [folder]
            for path in filter(RunFolder.is_run, inside):
                runs.setdefault(path.name, path)
        return map(RunFolder, runs.values())

    def admit(self) -> None:
        """Runs that have their first weights now can be asked."""
        for folder in self.runs():
            name = folder.path.name
            if name in self.models.runs:
                continue
            try:
                if folder.prepared and folder.has_weights:
                    self.models.runs[name] = ServedRun(folder.path)
            except (UserError, OSError) as error:  # it may be just writing them: it is tried again
                if name not in self.refused:
                    self.refused.add(name)
                    self.report(str(error))

    def facts(self, folder: RunFolder, seen: LogOffsets) -> dict[str, Any]:
        """What is new of a run, and where it stands."""
        if seen.id != folder.id:
            seen = LogOffsets()
        lines, metrics = new_lines(folder.metrics_file, seen.metrics)
        samples, at = new_lines(folder.samples_file, seen.samples)
        numbers = [{k: v for k, v in line.items() if k in FIGURES or k.startswith("val_")} for line in lines]
        kept, served = kept_steps(folder), self.models.runs.get(folder.path.name)
        return {
            "name": folder.path.name,
            "steps": folder.recipe.train.steps,
            "ended": folder.finished() is not None,
            "served": served is not None,
            "kept": kept,
            "light": served is not None and served.bytes // COPIES * len(kept) <= LIGHT,
            "metrics": [line for line in numbers if len(line) > 1],
            "samples": samples,
            "seen": {"id": folder.id, "metrics": metrics, "samples": at},
        }

    def state(self, fields: WatchFields) -> dict[str, Any]:
        """Every run's news. One that is just being made or removed is left out, and is there the next time."""
        news = []
        for folder in self.runs():
            with suppress(UserError, OSError):
                news.append(self.facts(folder, fields.seen.get(folder.path.name, LogOffsets())))
        failed = {name: why for name, begun in self.begun.items() if (why := begun.failure()) is not None}
        running = [name for name, begun in self.begun.items() if begun.process.poll() is None]
        return {"runs": news, "recipes": recipe_names() if self.folders else [], "failed": failed, "begun": running}

    @post("/open/runs")
    async def watch(self, fields: WatchFields) -> Any:
        """What the runs' logs have gained since the page last asked."""
        self.admit()
        return await asyncio.to_thread(self.state, fields)

    @post("/open/train")
    async def begin(self, fields: TrainFields) -> Any:
        """Start `glassformer train` in a process of its own, into a new folder beside the runs."""
        if not self.folders:
            raise APIError(403, "trainings are begun from the page of `glassformer open` alone")
        if fields.recipe not in recipe_names():
            raise bad_request(f"there is no recipe {fields.recipe[:80]!r}", "recipe")
        check_name(fields.name, "a run's name")
        if fields.name.startswith((".", "-")):
            raise bad_field("name", "it begins with a letter or a digit")
        self.check_files(read_recipe(fields.recipe, fields.changes))  # refuses what is no change, an option too
        first = self.folders[0]
        folder = (first.parent if RunFolder.is_run(first) else first) / fields.name
        if os.path.lexists(folder):
            raise bad_request(f"there is something called {fields.name} already; choose another name", "name")
        if folder.parent not in self.folders:
            self.folders.append(folder)
        messages = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        command = [sys.executable, "-m", "glassformer", "train", fields.recipe, *fields.changes, "--out", str(folder)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=messages, start_new_session=True
        )
        self.begun[fields.name] = TrainingProcess(process, messages)
        return {"name": fields.name}

    def check_files(self, recipe: Recipe) -> None:
        """Refuse files from elsewhere than the folder where the server was started and what it was started with: whoever may
        use the page may not therefore read all that its owner can."""
        try:
            paths = [Path(os.path.realpath(path)) for path in named_by(recipe)]
        except (ValueError, RuntimeError):  # a zero byte; a home that nobody has
            paths = [Path()]
        if not all(any(path.is_relative_to(folder) for folder in self.readable) for path in paths):
            raise APIError(
                403,
                "a training begun from the page takes its files from the folder where `glassformer open` was started, or from "
                "one that it was started with; start it there, or use `glassformer train`",
                param="changes",
            )

    @post("/open/train/{name}/stop")
    async def stop(self, name: str) -> Any:
        """Ask a training that was begun here to save and end."""
        if name not in self.begun:
            raise APIError(404, "no training of that name was begun from this page")
        self.begun[name].stop()
        return {}

    def close(self) -> None:
        """Trainings that were begun here save and end with the server; `glassformer train RUN --resume` goes on with them."""
        for begun in self.begun.values():
            begun.stop()
        for begun in self.begun.values():
            begun.process.wait()
