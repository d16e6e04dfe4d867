"""What training a recipe will take here: counted where counting is exact, measured where it is not.

Weights, gradients and the optimizer's state are counted, before anything is built. Activations are measured on a small
step and scaled, since they grow in proportion to the tokens of a micro-batch; only a recipe that should fit is then
tried in full size. Speed is measured by training for a few seconds on the recipe's own data, in a folder that is thrown
away. Of a large corpus only the beginning is read, and the number of examples is then a lower bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from glassformer.config import VERSION, Recipe
from glassformer.data.batches import Batches, SentenceBatches
from glassformer.data.prepare import complete_model, prepare
from glassformer.data.report import DataReport
from glassformer.language import _
from glassformer.machine import available_memory
from glassformer.models import build_model
from glassformer.models.costs import shapes_alone
from glassformer.runs import make_session, pick_device
from glassformer.runs.folder import RunFolder
from glassformer.runs.overview import (
    bytes_a_parameter,
    cpu_in_words,
    schedule_warnings,
    size_of,
    steps_an_epoch,
    tokens_an_epoch,
    too_long,
)
from glassformer.screen import at_work, duration
from glassformer.text.tokenizers import Tokenizers
from glassformer.training import memory

CHARACTERS = 20_000_000  # of each split, at most
TRIAL_TOKENS = 1024  # of the small step
SAFE = 0.9  # of what is available
LONG = 5.0  # seconds; the speed of steps that take longer is told by the small ones


@dataclass(frozen=True)
class TrainingPlan:
    """The estimate of a training: parameters, memory, speed as measured here, time."""

    device: str
    parameters: int
    non_embedding: int
    memory: int  # bytes, at this batch
    available: int | None
    tokens_per_second: float | None  # None: it does not fit, so nothing was measured
    steps: int
    step_tokens: float
    examples: int | None
    unit: str
    epoch_steps: float | None
    cut_short: bool  # there is more data than was looked at
    advice: str  # empty where it fits
    speed_of: str = ""  # on what the speed was measured
    notes: tuple[str, ...] = ()  # on the data: what is left out, or was hardly meant, a sentence each
    warnings: tuple[str, ...] = ()  # where it will probably not work, likewise

    @property
    def fits(self) -> bool:
        """Whether the memory is enough."""
        return not self.advice

    def memory_in_words(self) -> str:
        """The memory needed and available, and whether it fits."""
        needed, fits = self.memory / 2**30, _("fits") if self.fits else _("does not fit")
        if self.available is None:
            return _("{needed:.2f} GB; it {fits}", needed, fits)
        return _("{needed:.2f} GB of {available:.1f} GB; it {fits}", needed, self.available / 2**30, fits)

    def data_in_words(self) -> str:
        """How much there is to learn from, and how many steps an epoch has."""
        more = _("at least ") if self.cut_short else ""
        if self.unit == "blocks":
            data = _("{at_least}{count:,} blocks", more, self.examples)
        else:
            data = _("{at_least}{count:,} examples", more, self.examples)
        if (steps := self.epoch_steps) is None:
            return data
        plural = "" if round(steps) == 1 else "s"
        return _("{data}; an epoch is {at_least}{steps:,.0f} step{plural}", data, more, steps, plural)

    def rows(self) -> list[tuple[str, str]]:
        """The plan as rows of a table: label and text."""
        inner = _("{parameters:,} ({non_embedding:,} without embeddings)", self.parameters, self.non_embedding)
        rows = [(_("parameters"), inner)]
        if self.examples is not None:
            rows += [(_("data"), self.data_in_words())]
        rows += [(_("notes") if number == 0 else "", note) for number, note in enumerate(self.notes)]
        rows += [
            (_("batch"), _("about {step_tokens:,.0f} target tokens a step", self.step_tokens)),
            (_("memory"), self.memory_in_words()),
        ]
        if self.tokens_per_second is not None:
            seconds = self.steps * self.step_tokens / max(1.0, self.tokens_per_second)
            speed = _("{tokens_per_second:,.0f} target tokens/s{measured}", self.tokens_per_second, self.speed_of)
            time_it_takes = _("{duration} for {steps:,} steps (validation apart)", duration(seconds), self.steps)
            rows += [(_("speed"), speed), (_("time"), time_it_takes)]
        rows += [(_("warning") if number == 0 else "", text) for number, text in enumerate(self.warnings)]
        return rows


def fixed_memory(recipe: Recipe) -> tuple[int, int, int]:
    """Parameters, those without embeddings, and the bytes that do not depend on the batch."""
    with shapes_alone():
        model = build_model(recipe.model)
    parameters = model.num_params()
    return parameters, model.num_params(non_embedding=True), parameters * bytes_a_parameter(recipe)


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


@dataclass(frozen=True)
class StepTrial:
    """The measurements of a few steps."""

    activations: float  # bytes a step takes beyond the fixed ones
    step_tokens: float
    step_seconds: float
    examples: int
    unit: str
    epoch_steps: float
    notes: tuple[str, ...] = ()  # on the data, a sentence each

    def at_this_speed(self, batches: Batches, epoch_steps: float) -> StepTrial:
        """A step of these batches, larger ones, by what a token took in this trial."""
        tokens = tokens_an_epoch(batches) / batches.epoch_length()
        more = tokens / self.step_tokens
        return replace(
            self,
            activations=more * self.activations,
            step_tokens=tokens,
            step_seconds=more * self.step_seconds,
            epoch_steps=epoch_steps,
        )


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
        measured = activations, (progress.tokens - tokens) / done, spent / done
        notes = tuple(too_long(trainer.batches, "train", recipe))
        unit = "examples" if isinstance(trainer.batches, SentenceBatches) else "blocks"
        return StepTrial(*measured, size_of(trainer.batches), unit, steps_an_epoch(session), notes)
    finally:
        trainer.close()
        session.log.close()


def expected_seconds(trial: StepTrial, micro_tokens: float, recipe: Recipe) -> float:
    """The seconds of a step of the recipe, if its tokens take as long as those of a smaller one."""
    return trial.step_seconds * micro_tokens * recipe.train.accumulate / max(1.0, trial.step_tokens)


def make_plan(recipe: Recipe, seconds: float = 5.0, characters: int = CHARACTERS) -> TrainingPlan:
    """Prepares some of the data, tries a few steps, and reckons up the whole training."""
    device = pick_device(recipe.train)
    with TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "plan", recipe, VERSION)
        # The same pair cut in another way is no other example, and one way is enough to measure by.
        once = replace(recipe, data=replace(recipe.data, segmentations=1))
        texts = prepare(once, run.path, characters)
        recipe = complete_model(once, texts)
        report = DataReport.read(run.path / "data")
        more = report is not None and report.cut_short
        parameters, non_embedding, fixed = fixed_memory(recipe)
        room = available_memory(device)
        limit = math.inf if room is None else SAFE * room
        micro_tokens = recipe.data.batch_tokens / recipe.train.accumulate
        needed, advice, speed_of = float(fixed), "", _(", measured")
        trial = measured = None
        if needed >= limit:
            advice = _("the weights, their gradients and the optimizer's state alone need more; make the model smaller")
        try:
            # On a GPU memory that runs out is told, and does no harm; so it takes one try, and is compiled once.
            if not advice and device.type != "cuda":
                tokens = min(TRIAL_TOKENS, int(micro_tokens)) * recipe.train.accumulate
                quiet = replace(recipe.train, tensorboard=False, wandb=False)
                small = replace(recipe, data=replace(recipe.data, batch_tokens=tokens), train=quiet)
                with at_work(_("trying two steps of {tokens:,} tokens", tokens)):
                    trial = try_out(run, small, texts, 0.0)
                small_tokens = max(1.0, trial.step_tokens / recipe.train.accumulate)
                if not more:  # a micro-batch never holds more than all there is
                    micro_tokens = min(micro_tokens, trial.epoch_steps * trial.step_tokens / recipe.train.accumulate)
                needed = fixed + trial.activations * max(1.0, micro_tokens / small_tokens)
                if needed >= limit:
                    share = max(2**-10, (limit - fixed) / (needed - fixed))
                    advice = memory.less_memory(recipe, 2.0 ** math.floor(math.log2(share)))
            if not advice and trial is not None and expected_seconds(trial, micro_tokens, recipe) > max(LONG, seconds):
                session = make_session(run, recipe, texts)
                session.trainer.close()
                session.log.close()
                measured = trial.at_this_speed(session.trainer.batches, steps_an_epoch(session))
                speed_of = _(", measured on steps of {tokens:,.0f}", trial.step_tokens)
            elif not advice:
                with at_work(_("measuring steps of {tokens:,} tokens, for some seconds", recipe.data.batch_tokens)):
                    measured = try_out(run, recipe, texts, seconds)
                needed = max(needed, fixed + measured.activations)
        except (MemoryError, RuntimeError) as error:
            if not memory.is_out_of_memory(error):
                raise
            needed, advice = max(needed, limit), memory.less_memory(recipe)
    seen = measured or trial
    warnings = schedule_warnings(recipe, measured.epoch_steps, measured.examples) if measured and not more else ()
    return TrainingPlan(
        device=torch.cuda.get_device_name() if device.type == "cuda" else cpu_in_words(),
        parameters=parameters,
        non_embedding=non_embedding,
        memory=int(needed),
        available=room,
        tokens_per_second=measured.step_tokens / measured.step_seconds if measured is not None else None,
        steps=recipe.train.steps,
        step_tokens=measured.step_tokens if measured is not None else float(recipe.data.batch_tokens),
        examples=seen.examples if seen is not None else None,
        unit=seen.unit if seen is not None else "",
        epoch_steps=measured.epoch_steps if measured is not None else None,
        cut_short=more,
        advice=advice,
        speed_of=speed_of,
        notes=(*(() if report is None else report.notes()), *(() if seen is None else seen.notes)),
        warnings=tuple(warnings),
    )
