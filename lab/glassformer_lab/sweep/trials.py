"""Trials: one training for each variant and seed, each a `glassformer train` in a process of its own, several at a time; and what
they will take, said before it is taken.

A trial is a run like any other, in a folder of its own. One that has ended is not trained again; one that was broken off goes
on where it stopped. Whoever is asked to stop asks its trials to, waits until they have saved, and can be called again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from glassformer.config import Recipe
from glassformer.config.changes import as_prepared, changes
from glassformer.errors import UserError
from glassformer.machine import cores
from glassformer.models.costs import costs
from glassformer.runs import STOPPED, Stopped, pick_device
from glassformer.runs.folder import RunFolder
from glassformer.runs.plan import SAFE, make_plan
from glassformer.runs.runner import fan_out
from glassformer.runs.stop import StopRequest
from glassformer.screen import roughly
from glassformer_lab.sweep.variants import Variant, merged

MEASURED = 2.0  # seconds of training, by which the others are estimated


@dataclass(frozen=True)
class Trial:
    """One training: whose, with which seed, where, and everything that is said behind `glassformer train RECIPE`."""

    variant: Variant
    seed: int
    folder: Path
    settings: tuple[str, ...]
    recipe: Recipe

    @property
    def name(self) -> str:
        """The variant and the seed, as tables and messages show them."""
        return f"{self.variant.name}, seed {self.seed}"

    def finished(self) -> bool:
        """Whether it has been trained to its end; refused, where what was trained there is something else."""
        if not RunFolder.is_run(self.folder):
            return False
        run = RunFolder.open(self.folder)
        if not run.prepared:
            return False
        if found := changes(run.recipe, as_prepared(self.recipe, run.recipe)):
            raise UserError(
                "{folder} was trained with other settings ({found}); choose another --out",
                self.folder,
                "; ".join(map(str, found[:3])),
            )
        return run.finished() is not None


def make_trials(
    recipes: dict[str, Recipe],
    variants: dict[str, Variant],
    overrides: Sequence[str],
    seeds: int,
    out: Path,
    threads: int,
) -> list[Trial]:
    """Seed by seed, so that after the first round there is one trial of everything. One that was begun keeps its threads: with
    others the last digits of its sums would differ."""
    trials = []
    for number in range(seeds):
        for name, recipe in recipes.items():
            variant, seed = variants[name], recipe.train.seed + number
            folder = out / "trials" / f"{variant.folder}-seed-{seed}"
            kept = threads
            with contextlib.suppress(UserError, OSError):
                kept = (RunFolder.open(folder).recipe.train.threads if RunFolder.is_run(folder) else None) or threads
            last = [f"train.seed={seed}", f"train.threads={kept}"]
            settings = tuple(merged(merged(overrides, variant.settings), last))
            seeded = replace(recipe, train=replace(recipe.train, seed=seed, threads=kept))
            trials.append(Trial(variant, seed, folder, settings, seeded))
    return trials


# ---- what they will take


@dataclass(frozen=True)
class Cost:
    """What is left to do, and how it is done."""

    trials: int  # to be trained
    done: int  # trained already
    jobs: int  # at a time
    threads: int  # of each
    seconds: float | None  # in all, at that many at a time; None where nothing is left
    device: str

    def sentence(self) -> str:
        """The estimate printed before training starts."""
        done = f" ({self.done} more are trained already)" if self.done else ""
        if self.seconds is None:
            return f"all {self.done} trials are trained already; they are scored and drawn"
        at_once = f"{self.jobs} at a time with {self.threads} thread{'s' * (self.threads > 1)} each"
        return (
            f"{self.trials} trials{done} on {self.device}, {at_once}: about {roughly(self.seconds)} by a short trial of the "
            "recipe as it is (the others in proportion to their arithmetic)"
        )


def at_a_time(jobs: int | None, recipe: Recipe, trials: int) -> tuple[int, int]:
    """How many trials run side by side, and the threads of each: on CUDA one after the other, else a core each while there
    are enough trials."""
    threads = recipe.train.threads
    if pick_device(recipe.train).type == "cuda":
        chosen = jobs or 1
    else:
        chosen = jobs or max(1, min(trials, cores() // (threads or 1)))
    return chosen, threads or max(1, cores() // chosen)


def arithmetic(recipe: Recipe, vocabulary: int) -> float:
    """FLOPs of a whole training, up to a factor that all variants share."""
    model = replace(recipe.model, vocab_size=recipe.model.vocab_size or vocabulary)
    if model.head in ("classify", "tag"):
        model = replace(model, n_label=model.n_label or 2)  # as few as there can be
    return costs(model).forward_flops * float(recipe.train.steps) * recipe.data.batch_tokens


def estimate(base: Recipe, left: Sequence[Trial], done: int, jobs: int, threads: int) -> Cost:
    """Trains the base for a moment in a folder that is thrown away, and reckons up the rest. Fewer trials run side by side
    where the memory is not enough for all."""
    if not left:
        return Cost(0, done, jobs, threads, None, pick_device(base.train).type)
    before = torch.get_num_threads()
    try:
        plan = make_plan(replace(base, train=replace(base.train, threads=threads)), seconds=MEASURED)
    finally:
        torch.set_num_threads(before)
    if not plan.fits or plan.tokens_per_second is None:
        raise UserError("the recipe does not fit on {device}: {advice}", plan.device, plan.advice)
    if plan.available is not None and plan.memory:
        jobs = max(1, min(jobs, int(SAFE * plan.available / plan.memory)))
    alone = base.train.steps * plan.step_tokens / plan.tokens_per_second
    vocabulary = base.data.vocab_size
    whole = sum(arithmetic(trial.recipe, vocabulary) for trial in left) / arithmetic(base, vocabulary)
    return Cost(len(left), done, jobs, threads, alone * whole / min(jobs, len(left)), plan.device)


# ---- training them


def die_with_parent() -> Callable[[], None] | None:
    """On Linux: a process that ends when the one that started it is gone, however that went."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.CDLL(None)
    except OSError:
        return None
    ask_on_parents_death = 1  # PR_SET_PDEATHSIG
    return lambda: libc.prctl(ask_on_parents_death, signal.SIGTERM)


@dataclass
class Processes:
    """The trainings that are at work, each called in a thread and carried out in a process of its own."""

    recipe: str
    asked: bool = False  # to stop
    at_work: list[subprocess.Popen[Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def train(self, trial: Trial) -> str | None:
        """Trains in a process which the terminal's Ctrl-C does not reach: it is asked to stop once, by us. The last line it said,
        where it did not get to its end; None where it was stopped."""
        trial.folder.parent.mkdir(parents=True, exist_ok=True)
        words = ["train", self.recipe, *trial.settings, "--out", str(trial.folder), "--resume", "--quiet"]
        with tempfile.TemporaryFile() as errors:
            with self.lock:
                if self.asked:
                    return None
                process = subprocess.Popen(
                    [sys.executable, "-m", "glassformer", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                    preexec_fn=die_with_parent(),
                    env=os.environ | {"OMP_NUM_THREADS": str(trial.recipe.train.threads or 1)},
                )
                self.at_work.append(process)
            code = process.wait()
            if code == STOPPED or (self.asked and code != 0):
                return None
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
        if code == 0:
            return ""
        return lines[-1].removeprefix("glassformer: ") if lines else f"it ended with code {code}"

    def stop(self) -> None:
        """Asks each once: a second signal would end it before it has saved."""
        with self.lock:
            for process in [] if self.asked else self.at_work:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            self.asked = True


def train_trials(
    recipe: str, trials: Sequence[Trial], jobs: int, stop: StopRequest, tell: Callable[[int, str], None]
) -> dict[str, str]:
    """Trains what is not trained yet, `jobs` at a time. By the trial's name, why it did not get to its end. `tell` hears how
    many have ended, and of which. Raises Stopped once all have saved, where a stop was asked for."""
    processes = Processes(recipe)
    calls = {trial.name: partial(processes.train, trial) for trial in trials}
    failed: dict[str, str] = {}
    with ThreadPoolExecutor(jobs) as pool:
        try:
            ended = fan_out(pool, calls, meanwhile=lambda: processes.stop() if stop.asked else None)
            for number, (name, why) in enumerate(ended, 1):
                if why is None:  # somebody may have asked the trial itself
                    processes.stop()
                elif why:
                    failed[name] = why
                tell(number, name + (" failed" if name in failed else ""))
            stopped = processes.asked
        finally:
            processes.stop()
    if stopped or stop.asked:
        raise Stopped
    return failed
