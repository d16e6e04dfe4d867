"""A run without its least important heads (the weights are taken out, not set to zero), and what that saves."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from glassformer import probe
from glassformer.config import VERSION
from glassformer.evaluation.examples import HeldOut, writes, written
from glassformer.evaluation.teacher_forced import teacher_forced
from glassformer.files.owned import new_folder
from glassformer.language import _
from glassformer.models.weights import model_tensors
from glassformer.probe import Component
from glassformer.runs.checkpoint import read_state, write_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel

COPIED = ("tokenizer*.json", "labels.json", "metrics.jsonl", "data/val.examples.gz", "data/test.examples.gz")
"""The files of a run that a pruned one has, too."""


@dataclass(frozen=True)
class Footprint:
    """A model on the scales: how many numbers, how many bytes on disk, how long for the same work."""

    parameters: int
    bytes: int
    reading: float  # seconds to read all examples
    writing: float | None = None  # seconds to write all answers

    def to_dict(self) -> dict[str, Any]:
        """The figures that were measured, by their names."""
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
    readings = [partial(teacher_forced, model.model, held.batches, model.device) for model in models]
    seconds: list[list[float]] = [best_of(times, *readings)]
    if writes(models[0]):
        seconds.append(best_of(times, *(partial(written, model, held.examples) for model in models)))
    return [
        Footprint(model.model.num_params(), (folder.weights_folder() / "model.safetensors").stat().st_size, *of_model)
        for folder, model, *of_model in zip(folders, models, *seconds, strict=True)
    ]


def write_pruned(run: RunFolder, model: TextModel, heads: Sequence[Component], out: Path) -> RunFolder:
    """A run of its own with the heads taken out: every verb accepts it. It has its tokenizers and its final weights, and
    what it was made from; it holds what to measure it on, and no training data: it cannot be trained further."""
    smaller = probe.pruned(model.model, heads)
    recipe = replace(model.recipe, model=smaller.config)
    for split in ("val", "test"):
        run.check_data(split)
    with new_folder(out, _("a run")) as draft:
        folder = RunFolder.create(draft, recipe, VERSION)
        (folder.path / "data").mkdir()
        for name in COPIED:
            for path in run.path.glob(name):
                shutil.copyfile(path, folder.path / path.relative_to(run.path))
        step = int(read_state(run.weights_folder()).get("step", 0))  # at which the served weights were saved
        origin = {"pruned": [str(part) for part in heads], "from": run.path.name}
        state = {"step": step, "weights": origin, "run": folder.id}
        write_checkpoint(folder.final, {"model": model_tensors(smaller)}, state)
        folder.write_recipe(recipe, VERSION, folder.prepared_files())
    return RunFolder(out)
