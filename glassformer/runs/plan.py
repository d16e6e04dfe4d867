"""What training a recipe will take here: counted where counting is exact, measured where it is not.

Weights, gradients and the optimizer's state are counted, before anything is built. Activations are measured on a small
step and scaled, since they grow in proportion to the tokens of a micro-batch; only a recipe that should fit is then
tried in full size. Speed is measured by training for a few seconds on the recipe's own data, in a folder that is thrown
away; all else is what `train` says before its first step (overview.py). Of a large corpus only the beginning is read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from glassformer.config import VERSION, Recipe
from glassformer.data.prepare import complete_model, prepare
from glassformer.data.report import DataReport
from glassformer.language import _, localized
from glassformer.machine import available_memory
from glassformer.models import build_model
from glassformer.models.costs import shapes_alone
from glassformer.runs import make_session, pick_device
from glassformer.runs.folder import RunFolder
from glassformer.runs.overview import bytes_a_parameter, cpu_in_words, data_notes, rows_of, warnings
from glassformer.screen import at_work, duration
from glassformer.text.tokenizers import Tokenizers
from glassformer.training import memory

CHARACTERS = 20_000_000  # of each split, at most
TRIAL_TOKENS = 1024  # of the small step
SAFE = 0.9  # of what is available


@dataclass(frozen=True)
class StepTrial:
    """The measurements of a few steps, and what `train` would say before them: rows of its overview, and sentences."""

    activations: float  # bytes a step takes beyond the fixed ones
    step_tokens: float
    step_seconds: float
    overview: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingPlan:
    """The estimate of a training: parameters, memory, speed as measured here, time."""

    device: str
    steps: int
    parameters: int
    memory: int  # bytes, at this batch
    available: int | None
    advice: str = ""  # what would make it fit; empty where it does
    trial: StepTrial | None = None  # None: it does not fit, so nothing was measured
    cut_short: bool = False  # there is more data than was looked at

    @property
    def fits(self) -> bool:
        """Whether the memory is enough."""
        return not self.advice

    @property
    def step_seconds(self) -> float | None:
        """The seconds that a step takes here."""
        return None if self.trial is None else self.trial.step_seconds

    def rows(self) -> list[tuple[str, str]]:
        """The plan as rows of a table: label and text."""
        trial = self.trial
        rows = [(_("parameters"), f"{self.parameters:,}")] if trial is None else list(trial.overview.items())
        needed, fits = self.memory / 2**30, _("fits") if self.fits else _("does not fit")
        if self.available is None:
            rows += [(_("memory"), _("{needed:.2f} GB; it {fits}", needed, fits))]
        else:
            room = self.available / 2**30
            rows += [(_("memory"), _("{needed:.2f} GB of {available:.1f} GB; it {fits}", needed, room, fits))]
        if trial is None:
            return rows
        speed = trial.step_tokens / trial.step_seconds
        took = _(
            "{duration} for {steps:,} steps (validation apart)", duration(self.steps * trial.step_seconds), self.steps
        )
        rows += [(_("speed"), _("{speed:,.0f} target tokens/s, measured", speed)), (_("time"), took)]
        if self.cut_short:
            rows += [(_("notes"), _("only the beginning of the data was read: there are more examples than these"))]
        rows += [(_("notes"), note) for note in trial.notes]
        return rows + [(_("warning"), text) for text in trial.warnings]


def fixed_memory(recipe: Recipe) -> tuple[int, int]:
    """The number of parameters, and the bytes that do not depend on the batch."""
    with shapes_alone():
        parameters = build_model(recipe.model).num_params()
    return parameters, parameters * bytes_a_parameter(recipe)


def grown(device: torch.device, work: Callable[[], None]) -> float:
    """The peak of memory in use during `work`, in bytes above that before it."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated() - before)
    resident = memory.resident()
    with memory.highest_resident() as peak:
        work()
    return float(max(0, peak[0] - resident)) if peak and resident is not None else 0.0


def try_out(run: RunFolder, recipe: Recipe, texts: Tokenizers, seconds: float) -> StepTrial:
    """A few real steps, their speed and their memory."""
    session = make_session(run, recipe, texts)
    trainer, progress = session.trainer, session.trainer.progress
    trainer.callbacks = []
    session.model.train()
    try:
        trainer.step()  # makes the optimizer's state, and compiles where that is done
        began, tokens, steps = time.perf_counter(), progress.tokens, progress.step
        activations = grown(trainer.device, trainer.step)
        if trainer.device.type == "cuda":  # whose second step may still be captured
            began, tokens, steps = time.perf_counter(), progress.tokens, progress.step
        while time.perf_counter() - began < seconds or progress.step == steps:
            trainer.step()
        if trainer.device.type == "cuda":
            torch.cuda.synchronize()
        spent, done = time.perf_counter() - began, progress.step - steps
        return StepTrial(
            activations,
            (progress.tokens - tokens) / done,
            spent / done,
            rows_of(session),
            tuple(data_notes(session)),
            tuple(warnings(session)),
        )
    finally:
        trainer.close()
        session.log.close()


def needed_by_small_steps(run: RunFolder, recipe: Recipe, texts: Tokenizers, fixed: int) -> float:
    """The bytes that a step of the recipe should take, by steps of few tokens."""
    micro_tokens = recipe.data.batch_tokens / recipe.train.accumulate
    tokens = min(TRIAL_TOKENS, int(micro_tokens)) * recipe.train.accumulate
    quiet = replace(recipe.train, tensorboard=False, wandb=False)
    small = replace(recipe, data=replace(recipe.data, batch_tokens=tokens), train=quiet)
    with at_work(_("trying two steps of {tokens:,} tokens", tokens)):
        trial = try_out(run, small, texts, 0.0)
    return fixed + trial.activations * max(1.0, recipe.data.batch_tokens / max(1.0, trial.step_tokens))


def make_plan(recipe: Recipe, seconds: float = 5.0, characters: int = CHARACTERS) -> TrainingPlan:
    """Prepares some of the data, tries a few steps, and reckons up the whole training."""
    device = pick_device(recipe.train)
    with TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "plan", recipe, VERSION)
        # The same pair cut in another way is no other example, and one way is enough to measure by.
        once = replace(recipe, data=replace(recipe.data, segmentations=1))
        texts = prepare(once, run.path, characters)
        recipe = complete_model(once, texts)
        parameters, fixed = fixed_memory(recipe)
        room = available_memory(device)
        limit = math.inf if room is None else SAFE * room
        name = torch.cuda.get_device_name() if device.type == "cuda" else localized(cpu_in_words())
        report = DataReport.read(run.path / "data")
        cut_short = report is not None and report.cut_short
        plan = TrainingPlan(name, recipe.train.steps, parameters, fixed, room, cut_short=cut_short)
        if fixed >= limit:
            advice = _("the weights, their gradients and the optimizer's state alone need more; make the model smaller")
            return replace(plan, advice=advice)
        try:
            needed = float(fixed)
            # On a GPU memory that runs out is told, and does no harm; so it takes one try, and is compiled once.
            if device.type != "cuda" and (needed := needed_by_small_steps(run, recipe, texts, fixed)) >= limit:
                share = max(2**-10, (limit - fixed) / (needed - fixed))
                advice = memory.less_memory(recipe, 2.0 ** math.floor(math.log2(share)))
                return replace(plan, memory=int(needed), advice=advice)
            with at_work(_("measuring steps of {tokens:,} tokens, for some seconds", recipe.data.batch_tokens)):
                trial = try_out(run, recipe, texts, seconds)
        except (MemoryError, RuntimeError) as error:
            if not memory.is_out_of_memory(error):
                raise
            return replace(plan, memory=int(max(fixed, limit)), advice=memory.less_memory(recipe))
    return replace(plan, memory=int(max(needed, fixed + trial.activations)), trial=trial)
