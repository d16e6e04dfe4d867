"""What an ablation will take, said before it takes it: trials, time measured by a short trial, disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.machine import cores
from glassformer.models.costs import costs
from glassformer.runs import pick_device
from glassformer.runs.plan import SAFE, make_plan
from glassformer.screen import roughly
from glassformer_lab.sweep.trials import Trial

MEASURED = 2.0  # seconds of training


@dataclass(frozen=True)
class Cost:
    """What is left to do, and how it is done."""

    trials: int  # to be trained
    done: int  # trained already
    jobs: int  # at a time
    threads: int  # of each
    seconds: float | None  # in all, at that many at a time; None where nothing is left
    disk: int  # bytes
    device: str

    def sentence(self) -> str:
        """As it is said first."""
        done = f" ({self.done} more are trained already)" if self.done else ""
        if self.seconds is None:
            return f"all {self.done} trials are trained already; they are scored and drawn"
        at_once = f"{self.jobs} at a time with {self.threads} thread{'s' * (self.threads > 1)} each"
        return (
            f"{self.trials} trials{done} on {self.device}, {at_once}: about {roughly(self.seconds)} by a short trial of the "
            f"recipe as it is (the others in proportion to their arithmetic), and {self.disk / 2**20:,.0f} MB of disk"
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


def start_up() -> float:
    """Seconds until a fresh process could train: importing takes longer than a short training."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import glassformer.runs.metrics_log, matplotlib.figure"], check=False)
    return time.perf_counter() - began


def arithmetic(recipe: Recipe, vocabulary: int) -> float:
    """FLOPs of a whole training, up to a factor that all variants share."""
    model = replace(recipe.model, vocab_size=recipe.model.vocab_size or vocabulary)
    if model.head in ("classify", "tag"):
        model = replace(model, n_label=model.n_label or 2)  # as few as there can be
    return costs(model).forward_flops * float(recipe.train.steps) * recipe.data.batch_tokens


A_TOKEN = 8  # bytes of prepared data: both sides as numbers, and their text compressed
ASIDE = 1 << 20  # bytes of logs and pictures


def disk_of(recipe: Recipe, parameters: float, tokens: float) -> float:
    """Checkpoints hold weights and two moments; the best is kept beside the last few; the final weights come on top. So do
    the prepared data, of so many target tokens."""
    copies = 3 * (recipe.train.keep_last + 1) + 1 + recipe.train.average_last
    return 4 * parameters * copies + A_TOKEN * tokens + ASIDE


def estimate(
    recipes: Mapping[str, Recipe], left: Sequence[Trial], done: int, jobs: int, threads: int, out: Path
) -> Cost:
    """Trains the base for a moment in a folder that is thrown away, and reckons up the rest. Fewer trials run side by side
    where the memory is not enough for all."""
    base = next(iter(recipes.values()))
    if not left:
        return Cost(0, done, jobs, threads, None, 0, pick_device(base.train).type)
    before = torch.get_num_threads()
    began = time.perf_counter()
    try:
        plan = make_plan(replace(base, train=replace(base.train, threads=threads)), seconds=MEASURED)
    finally:
        torch.set_num_threads(before)
    aside = max(0.0, time.perf_counter() - began - MEASURED) + start_up()  # preparing, starting, validating
    if not plan.fits or plan.tokens_per_second is None:
        raise UserError("the recipe does not fit on {device}: {advice}", plan.device, plan.advice)
    if plan.available is not None and plan.memory:
        jobs = max(1, min(jobs, int(SAFE * plan.available / plan.memory)))
    alone = base.train.steps * plan.step_tokens / plan.tokens_per_second
    unit = arithmetic(base, base.data.vocab_size)
    seconds = sum(alone * arithmetic(t.recipe, base.data.vocab_size) / unit + aside for t in left) / min(
        jobs, len(left)
    )
    sizes = {
        name: plan.parameters * arithmetic(own, base.data.vocab_size) / unit * base.train.steps / own.train.steps
        for name, own in recipes.items()
    }
    tokens = (plan.epoch_steps or 0.0) * plan.step_tokens
    disk = int(sum(disk_of(t.recipe, sizes[t.variant.name], tokens) for t in left))
    place = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    if (free := shutil.disk_usage(place).free) < disk:
        raise UserError(
            "the trials need about {disk:,.0f} MB of disk, and {place} has {free:,.0f} MB free; choose "
            "another --out, or fewer seeds",
            disk / 2**20,
            place,
            free / 2**20,
        )
    return Cost(len(left), done, jobs, threads, seconds, disk, plan.device)
