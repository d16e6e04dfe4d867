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
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.lab.ablate.variants import Variant, merged
from glassformer.runs import STOPPED, Stopped
from glassformer.runs.folder import RunFolder
from glassformer.runs.stop import StopRequest
from glassformer.training.changes import as_prepared, changes

PATIENCE = 0.05  # seconds between two looks at the processes


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
                f"{self.folder} was trained with other settings ({'; '.join(map(str, found[:3]))}); choose another --out"
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
class Running:
    """A trial under way."""

    trial: Trial
    process: subprocess.Popen[Any]
    said: IO[bytes]
    asked: bool = False

    def ask_to_stop(self) -> None:
        """Once: a second signal would end it before it has saved."""
        if not self.asked and self.process.poll() is None:
            self.asked = True
            self.process.send_signal(signal.SIGTERM)

    def last_words(self) -> str:
        """The last line it said: where it failed, the sentence that says why."""
        self.said.seek(0)
        lines = self.said.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].removeprefix("glassformer: ") if lines else f"it ended with code {self.process.returncode}"


def start(trial: Trial, recipe: str) -> Running:
    """The trial as a process of its own, which the terminal's Ctrl-C does not reach: it is asked to stop once, by us."""
    trial.folder.parent.mkdir(parents=True, exist_ok=True)
    said = tempfile.TemporaryFile()  # noqa: SIM115 — closed when the trial has ended
    environment = os.environ | {"OMP_NUM_THREADS": str(trial.recipe.train.threads or 1)}
    process = subprocess.Popen(
        trial.command(recipe),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=said,
        start_new_session=True,
        preexec_fn=die_with_parent(),
        env=environment,
    )
    return Running(trial, process, said)


def run_trials(
    recipe: str,
    trials: Sequence[Trial],
    jobs: int,
    stop: StopRequest,
    tell: Callable[[int, str], None],
) -> dict[str, str]:
    """Trains what is not trained yet, `jobs` at a time. By the trial's name, why it did not get to its end. `tell` hears how
    many have ended, and of which. Raises Stopped once all have saved, where a stop was asked for."""
    waiting = list(trials)
    under_way: list[Running] = []
    failed: dict[str, str] = {}
    ended, stopped = 0, False
    try:
        while waiting or under_way:
            if stop.asked:
                waiting, stopped = [], True
                for one in under_way:
                    one.ask_to_stop()
            while waiting and len(under_way) < jobs:
                under_way.append(start(waiting.pop(0), recipe))
            for one in [one for one in under_way if one.process.poll() is not None]:
                under_way.remove(one)
                ended += 1
                code = one.process.returncode
                if code == STOPPED or (stop.asked and code != 0):
                    stopped = True  # somebody asked the trial itself
                    waiting = []
                    for other in under_way:
                        other.ask_to_stop()
                elif code != 0:
                    failed[one.trial.name] = one.last_words()
                one.said.close()
                tell(ended, one.trial.name + (" failed" if one.trial.name in failed else ""))
            time.sleep(PATIENCE)
    finally:
        for one in under_way:
            one.ask_to_stop()
        for one in under_way:
            one.process.wait()
            one.said.close()
    if stopped:
        raise Stopped
    return failed
