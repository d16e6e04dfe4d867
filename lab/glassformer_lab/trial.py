"""A training as a trial of an experiment: a run like any other, which goes on where it was broken off."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer import runs
from glassformer.config import Recipe
from glassformer.models.costs import costs
from glassformer.runs.folder import RunFolder
from glassformer.runs.metrics_log import phase_seconds
from glassformer.training.progress import TrainerCallback

ASKED = threading.Event()
"""Set in a process that was asked to stop: the trials that wait for it are not begun any more."""


def begin_afresh() -> None:
    """Compiled functions of one run are of no use to the next, and after a few torch would stop compiling."""
    # Where it was not loaded nothing was compiled yet, and loading it takes seconds.
    if torch.cuda.is_available() and "torch._dynamo" in sys.modules:
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


def train_or_resume(
    recipe: Recipe,
    folder: Path,
    *,
    callbacks: Sequence[TrainerCallback] = (),
    overwrite: bool = False,
    build: Callable[[Any], Any] | None = None,
) -> RunFolder:
    """The run of a folder, trained to its end. A worker process is asked to stop by the process that started it alone: a
    terminal's Ctrl-C would be the second signal, which ends a run before it has saved."""
    if ASKED.is_set():
        raise runs.Stopped
    if multiprocessing.parent_process() is not None and hasattr(os, "setpgrp"):
        os.setpgrp()
    begin_afresh()
    try:
        if RunFolder.is_run(folder) and not overwrite:
            return runs.resume(folder, recipe, callbacks=callbacks, build=build) or RunFolder.open(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return runs.train(recipe, folder, overwrite=overwrite, callbacks=callbacks, build=build)
    except runs.Stopped:
        ASKED.set()
        raise


def training_facts(run: RunFolder) -> dict[str, Any]:
    """What a training took: seconds of its steps, steps, target tokens; and how many parameters it had."""
    return {
        "training_seconds": phase_seconds(run.metrics_file)["steps"],
        "steps": run.finished() or 0,
        "tokens": int(run.checkpoints.state(run.checkpoints.steps()[-1])["tokens"]),
        "parameters": costs(run.recipe.model).parameters,
    }
