"""A run without its least important heads (the weights are taken out, not set to zero), and what that saves."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer import probe
from glassformer.config import VERSION, Recipe
from glassformer.evaluation.held_out import HeldOut, writes, written
from glassformer.evaluation.teacher_forced import teacher_forced
from glassformer.files.owned import new_folder
from glassformer.language import _
from glassformer.models.weights import model_tensors
from glassformer.probe import Component
from glassformer.runs.checkpoint import read_state, write_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel


@dataclass(frozen=True)
class Footprint:
    """A model on the scales: how many numbers, how many bytes on disk, how long for the same work."""

    parameters: int
    bytes: int
    reading: float  # seconds to read all examples
    writing: float | None  # seconds to write all answers

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: value for name, value in vars(self).items() if value is not None}


def best_of(times: int, *works: Callable[[], Any]) -> list[float]:
    """The least processor time of each, taken in turns so that what disturbs one disturbs all."""
    least = [float("inf")] * len(works)
    for _unused in range(times):
        for i, work in enumerate(works):
            begin = time.process_time()
            work()
            least[i] = min(least[i], time.process_time() - begin)
    return least


def measure_footprints(
    folders: Sequence[RunFolder], models: Sequence[TextModel], held: HeldOut, *, times: int = 5
) -> list[Footprint]:
    """Size and speed of several models in turns, so that a busy machine is busy for all of them."""

    def reading(model: TextModel) -> Callable[[], Any]:
        return lambda: teacher_forced(model.model, held.batches, model.device)

    def writing(model: TextModel) -> Callable[[], Any]:
        return lambda: written(model, held.examples)

    read = best_of(times, *(reading(model) for model in models))
    wrote: list[float | None] = [None] * len(models)
    if writes(models[0]):
        wrote = list(best_of(times, *(writing(model) for model in models)))
    return [
        Footprint(model.model.num_params(), (folder.weights_folder() / "model.safetensors").stat().st_size, r, w)
        for folder, model, r, w in zip(folders, models, read, wrote, strict=True)
    ]


def write_pruned(run: RunFolder, model: TextModel, heads: Sequence[Component], out: Path) -> RunFolder:
    """A run of its own with the heads taken out: every verb accepts it. It has its tokenizers and its final weights, and
    what it was made from; it holds what to measure it on, and no training data: it cannot be trained further."""
    smaller = probe.pruned(model.model, heads)
    recipe = replace(model.recipe, model=smaller.config)
    with new_folder(out, _("a run")) as draft:
        fill_pruned(run, RunFolder.create(draft, recipe, VERSION), recipe, model_tensors(smaller), heads)
    return RunFolder(out)


def fill_pruned(
    run: RunFolder, folder: RunFolder, recipe: Recipe, weights: dict[str, Tensor], heads: Sequence[Component]
) -> None:
    """What a pruned run has: tokenizers, what to measure it on, and weights."""
    for split in ("val", "test"):
        run.check_data(split)
    (folder.path / "data").mkdir()
    wanted = ("tokenizer*.json", "labels.json", "metrics.jsonl", "data/val.examples.gz", "data/test.examples.gz")
    for path in (path for name in wanted for path in run.path.glob(name)):
        shutil.copyfile(path, folder.path / path.relative_to(run.path))
    origin = {"pruned": [str(part) for part in heads], "from": run.path.name}
    state = {"step": step_of(run), "weights": origin, "run": folder.id}
    write_checkpoint(folder.final, {"model": weights}, state)
    folder.write_recipe(recipe, VERSION, folder.prepared_files())


def step_of(run: RunFolder) -> int:
    """The step at which the served weights of a run were saved."""
    return int(read_state(run.weights_folder()).get("step", 0))
