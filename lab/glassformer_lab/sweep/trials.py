"""Trials: one training for each variant and seed, each a `glassformer train` in a process of its own, several at a time.

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
from pathlib import Path
from typing import Any

from glassformer.config import Recipe
from glassformer.config.changes import as_prepared, changes
from glassformer.errors import UserError
from glassformer.runs import STOPPED, Stopped
from glassformer.runs.folder import RunFolder
from glassformer.runs.runner import fan_out
from glassformer.runs.stop import StopRequest
from glassformer_lab.sweep.variants import Variant, merged


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

    def command(self, recipe: str) -> list[str]:
        """The `glassformer train` command of this trial, as a list of arguments."""
        asked = ["train", recipe, *self.settings, "--out", str(self.folder), "--resume", "--quiet"]
        return [sys.executable, "-m", "glassformer", *asked]

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


def threads_of(folder: Path, threads: int) -> int:
    """Those a trial began with: with others the last digits of its sums would differ."""
    if RunFolder.is_run(folder):
        with contextlib.suppress(UserError, OSError):
            return RunFolder.open(folder).recipe.train.threads or threads
    return threads


def make_trials(
    recipes: dict[str, Recipe],
    variants: dict[str, Variant],
    overrides: Sequence[str],
    seeds: int,
    out: Path,
    threads: int,
) -> list[Trial]:
    """Seed by seed, so that after the first round there is one trial of everything."""
    made = []
    for number in range(seeds):
        for name, recipe in recipes.items():
            variant, seed = variants[name], recipe.train.seed + number
            folder = out / "trials" / f"{variant.folder}-seed-{seed}"
            own = threads_of(folder, threads)
            last = [f"train.seed={seed}", f"train.threads={own}"]
            settings = tuple(merged(merged(overrides, variant.settings), last))
            trained = replace(recipe, train=replace(recipe.train, seed=seed, threads=own))
            made.append(Trial(variant, seed, folder, settings, trained))
    return made


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
class TrialTraining:
    """The training of a trial, to be called in a thread."""

    trial: Trial
    recipe: str
    asked: bool = False
    process: subprocess.Popen[Any] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> str | None:
        """Trains in a process of its own, which the terminal's Ctrl-C does not reach: it is asked to stop once, by us. The last
        line it said, where it did not get to its end; None where it was stopped."""
        self.trial.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile() as said:
            with self.lock:
                if self.asked:
                    return None
                self.process = subprocess.Popen(
                    self.trial.command(self.recipe),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                    preexec_fn=die_with_parent(),
                    env=os.environ | {"OMP_NUM_THREADS": str(self.trial.recipe.train.threads or 1)},
                )
            code = self.process.wait()
            if code == STOPPED or (self.asked and code != 0):
                return None
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").strip().splitlines()
        if code == 0:
            return ""
        return lines[-1].removeprefix("glassformer: ") if lines else f"it ended with code {code}"

    def ask_to_stop(self) -> None:
        """Once: a second signal would end it before it has saved."""
        with self.lock:
            if not self.asked and self.process is not None and self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            self.asked = True


def train_trials(
    recipe: str, trials: Sequence[Trial], jobs: int, stop: StopRequest, tell: Callable[[int, str], None]
) -> dict[str, str]:
    """Trains what is not trained yet, `jobs` at a time. By the trial's name, why it did not get to its end. `tell` hears how
    many have ended, and of which. Raises Stopped once all have saved, where a stop was asked for."""
    trainings = {trial.name: TrialTraining(trial, recipe) for trial in trials}
    failed: dict[str, str] = {}
    stopped = False

    def ask_all() -> None:
        for training in trainings.values():
            training.ask_to_stop()

    with ThreadPoolExecutor(jobs) as pool:
        try:
            ended = fan_out(pool, trainings, meanwhile=lambda: ask_all() if stop.asked else None)
            for number, (name, why) in enumerate(ended, 1):
                if why is None:
                    stopped = True  # somebody may have asked the trial itself
                    ask_all()
                elif why:
                    failed[name] = why
                tell(number, name + (" failed" if name in failed else ""))
        finally:
            ask_all()
    if stopped or stop.asked:
        raise Stopped
    return failed
