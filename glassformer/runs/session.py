"""One stretch of training: steps, validations, checkpoints and the final weights, in an order that a crash cannot spoil."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.config import Recipe, TrainConfig
from glassformer.data.batches import Batches, BlockBatches
from glassformer.data.store import run_examples
from glassformer.evaluation.generated import SAMPLED, metric_of, task_scores, text_sample
from glassformer.evaluation.metrics import Scores, is_better, measure_name, measures_text
from glassformer.evaluation.teacher_forced import teacher_forced, validated_examples
from glassformer.files import durable, structured
from glassformer.files.owned import HeldFolder
from glassformer.language import _, localized
from glassformer.models.weights import (
    average,
    ema_or_model_weights,
    inference_weights,
    load_model_tensors,
    model_tensors,
)
from glassformer.nn.lora import adapter_tensors
from glassformer.runs import checkpoint
from glassformer.runs.checkpoint import SMALL_MODEL, is_historic, read_checkpoint, write_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.runs.metrics_log import MetricsLog, PhaseClock
from glassformer.runs.staging import drop_replaced, replaced
from glassformer.runs.stop import BackgroundWriter, Stopped, StopRequest, copied
from glassformer.screen import at_work, roughly
from glassformer.text.tokenizers import Tokenizers
from glassformer.training.progress import Screen, TrainerState
from glassformer.training.trainer import NotFinite, Trainer


def shorten(text: str, width: int = 60) -> str:
    """A text in one line of at most `width` characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


@dataclass(kw_only=True)
class SavedState(TrainerState):
    """The entries of a checkpoint's state.json that training needs to go on; see `TrainerState` for the trainer's own."""

    metrics_bytes: int
    samples_bytes: int
    recipe: dict[str, Any]
    epoch_batches: int | None = None
    threads: int = 1
    seconds: dict[str, float] = field(default_factory=dict)


LATER = {"best_loss", "usual_loss", "usual_spread"}
"""Entries that the states of earlier versions lack."""


def check_state(state: dict[str, Any], folder: Path) -> None:
    """Damaged in a sentence where a state has another shape."""
    saved = structured.convert(state, SavedState, str(folder / checkpoint.STATE))
    if missing := sorted(vars(TrainerState()).keys() - LATER - state.keys()):
        raise checkpoint.Damaged(_("{folder} cannot be used: its state has no {name}", folder, missing[0]))
    counts = {n: v for n, v in vars(saved).items() if isinstance(v, int)}
    if strange := [name for name, count in counts.items() if not 0 <= count < 1 << 53]:
        raise checkpoint.Damaged(_("{folder} cannot be used: {name} in its state is no count", folder, strange[0]))


@dataclass
class Session:
    """One stretch of training: from a start or a resume to an end or a stop."""

    run: RunFolder
    recipe: Recipe
    trainer: Trainer
    model: Any
    tokenizers: Tokenizers
    val_batches: Batches
    log: MetricsLog
    screen: Screen
    stop: StopRequest = field(default_factory=StopRequest)
    saved: int | None = None  # the step of the last checkpoint, if nothing has moved since
    compiles: bool = False  # are the steps compiled?

    def __post_init__(self) -> None:
        self.clock = PhaseClock(self.trainer.device)
        self.writer = BackgroundWriter()
        self.processes = self.trainer.processes
        self.trainer.stop_asked = lambda: self.stop.asked
        self.held = HeldFolder(self.run.path)
        self.replaces_a_run = bool(replaced(self.run.path))

    @property
    def config(self) -> TrainConfig:
        """The settings of training."""
        return self.recipe.train

    def message(self, text: str) -> None:
        """On the screen, and in the run's own log."""
        text = localized(text)
        self.screen.on_message(text)
        self.log.on_message(text)

    def find_moved_folder(self) -> None:
        """The run's folder may have been moved while it trains, and another may stand in its place: write into one's own."""
        path = self.held.find(self.run.path)
        if path != self.run.path:
            self.message(_("{old_path} is in {new_path} now; training goes on there", self.run.path, path))
            self.run = RunFolder(path)

    # ---- validation

    @contextmanager
    def with_weights(self, weights: dict[str, Tensor] | None) -> Any:
        """Validate with these weights, or as the model is. Of a sharded model it is a copy that is on the device as long."""
        if weights is None:
            yield
            return
        if self.model is not self.trainer.model:
            load_model_tensors(self.model, weights)
            self.model.to(self.trainer.device)
            try:
                yield
            finally:
                self.model.cpu()
            return
        training_weights = {n: t.clone() for n, t in model_tensors(self.model).items()}
        load_model_tensors(self.model, weights)
        try:
            yield
        finally:
            load_model_tensors(self.model, training_weights)

    def validate(self, weights: dict[str, Tensor] | None) -> Scores:
        """Leaves no trace in the run, not even in the random state: it can be dropped half way and made again later."""
        durable.fault_point("validating")
        self.screen.pause()
        was_training = self.model.training
        devices = [self.trainer.device] if self.trainer.device.type == "cuda" else []
        self.model.eval()
        try:
            with torch.random.fork_rng(devices), self.with_weights(weights), self.stop.may_drop():
                budget = max(256, 2**25 // max(1, self.model.config.vocab_size))
                examples = self.val_batches.in_order(budget, limit=validated_examples(self.val_batches, self.recipe))
                scores = teacher_forced(self.model, examples, self.trainer.device)
                if isinstance(self.val_batches, BlockBatches):
                    begins = self.val_batches.text.tokens[:SAMPLED].tolist()
                    return scores | text_sample(self.model, self.tokenizers, self.recipe, begins)
                stored = run_examples(self.recipe.data, "val", self.run.path / "data")
                return scores | task_scores(
                    self.model, self.tokenizers, self.recipe, stored, self.config.validate_examples
                )
        finally:
            self.model.train(was_training)
            self.screen.pause()

    def validate_unless_stopped(self) -> Scores | None:
        """Rank 0 measures, and every rank has its values; None where it was asked to stop meanwhile."""
        scores = None
        weights = self.trainer.served_tensors() if self.trainer.ema or self.config.shard else None
        if self.processes.rank == 0:
            with suppress(Stopped), self.clock.during("validate"), at_work(_("validating"), line=False):
                scores = self.validate(weights)
        values = self.processes.broadcast(None if scores is None else scores.values)
        return scores if values is None or scores is not None else Scores(values)

    def record_validation(self, scores: Scores) -> None:
        """Log a validation, show a few samples, and keep count of the best."""
        progress = self.trainer.progress
        metric = metric_of(self.recipe)
        value = scores.values[metric]
        self.log.write({"step": progress.step, **{f"val_{k}": v for k, v in scores.values.items()}})
        loss = scores.values["loss"]
        better = math.isfinite(value) and is_better(metric, value, progress.best_score, loss, progress.best_loss)
        first = progress.validated == 0
        progress.validated = progress.step
        self.saved = None
        if better:
            progress.best_score, progress.best_loss, progress.best_step = value, loss, progress.step
            progress.waiting = 0
        else:
            progress.waiting += 1
        shown = measures_text(scores.values, say=localized)
        self.screen.score = f"val {measures_text({metric: value}, say=localized)}"
        told = _("step {step}: validation  {shown}", progress.step, shown)
        self.message(_("{told}  (best so far)", told) if better else told)
        for name, signature in scores.signatures.items() if first else ():
            meaning = _("sacrebleu's {signature}", signature) if "|version:" in signature else signature
            self.message(f"    {localized(measure_name(name))}: {localized(meaning)}")
        for source, reference, written in scores.samples[:3]:
            if self.recipe.data.task == "text":
                self.message(f"    {shorten(source)} → {shorten(written, 120)}")
                continue
            mark = "=" if reference.strip() == written.strip() else "≠"
            self.message(f"    {shorten(source)} → {shorten(written)}  {mark}  {shorten(reference)}")
        if scores.samples:
            self.log.write_samples(
                {"step": progress.step, "source": source, "wanted": reference, "written": written}
                for source, reference, written in scores.samples
            )

    # ---- saving

    def save(self) -> None:
        """A checkpoint of now, written by rank 0; refused where a number is not finite."""
        progress = self.trainer.progress
        state, tensors = self.trainer.state(), self.trainer.tensors()
        if self.processes.rank != 0:
            self.saved = progress.step
            return
        if (name := self.trainer.find_nonfinite(tensors)) is not None:
            raise NotFinite(
                "at step {step} {name} is not finite, so nothing is saved; the last checkpoint is good. Go on from it with a "
                "lower train.learning_rate, a longer train.warmup or a lower train.clip",
                progress.step,
                name,
            )
        self.find_moved_folder()
        state |= {"run": self.run.id, "threads": torch.get_num_threads(), "seconds": self.clock.record()}
        state |= {"metrics_bytes": self.log.metrics.size(), "samples_bytes": self.log.samples.size()}
        state["recipe"] = self.recipe.to_dict()
        copies = {group: copied(members) for group, members in tensors.items()}
        run, replaces, self.replaces_a_run = self.run, self.replaces_a_run, False

        def write() -> None:
            write_checkpoint(run.checkpoints.path(state["step"]), copies, state)
            if replaces:
                drop_replaced(run.path)
            # Should the newest turn out damaged, the one before it must find what it calls the best.
            newest = run.checkpoints.steps()[-self.config.keep_last :]
            named = (run.checkpoints.state(step).get("best_step") for step in newest)
            run.checkpoints.prune(self.config.keep_last, {best for best in named if best is not None})

        self.writer.submit(write)
        self.saved = progress.step

    def keep_weights(self, folder: str, most: int | None = None) -> None:
        """The weights alone, in a folder of their own, unless they are there; no more than the last `most`."""
        weights, step = self.trainer.served_tensors(), self.trainer.progress.step
        if self.processes.rank != 0:
            return
        self.find_moved_folder()
        kept, copies = self.run.saved_in(folder), copied(weights)

        def write() -> None:
            if not kept.path(step).exists() or kept.problem(step) is not None:
                write_checkpoint(kept.path(step), {"model": copies}, {"step": step, "run": self.run.id})
            if most is not None:
                kept.prune(most)

        self.writer.submit(write)

    def keep_history(self) -> None:
        """The weights at logarithmic steps (0, 10, 30, 100, 300 …), where the model is small or the recipe says so."""
        step, history = self.trainer.progress.step, self.config.history
        if history is False or not is_historic(step):
            return
        if history is None and sum(p.numel() * p.element_size() for p in self.model.parameters()) > SMALL_MODEL:
            return
        with self.clock.during("save"):
            self.keep_weights("history")

    def finish(self) -> None:
        """The weights one will use: the mean of the last snapshots, or the best checkpoint's."""
        durable.fault_point("finishing")
        self.find_moved_folder()
        progress, config = self.trainer.progress, self.config
        if config.average_last:
            steps = [s for s in self.run.snapshots.steps() if s <= progress.step][-config.average_last :]
            whole = [s for s in steps if self.run.snapshots.problem(s) is None]
            for lost in sorted(set(steps) - set(whole)):
                self.message(_("{path} is damaged and left out of the average", self.run.snapshots.path(lost)))
            weights = average([inference_weights(read_checkpoint(self.run.snapshots.path(s))[0]) for s in whole])
            came_from: dict[str, Any] = {"averaged": whole}
            adapter = {}
        else:
            step = progress.best_step if progress.best_step is not None else progress.step
            tensors, _unused = read_checkpoint(self.run.checkpoints.path(step))
            weights, came_from = inference_weights(tensors), {"step": step}
            adapter = adapter_tensors(ema_or_model_weights(tensors))
        state = {"step": progress.step, "weights": came_from, "run": self.run.id, "recipe": self.recipe.to_dict()}
        write_checkpoint(self.run.final, {"model": weights} | ({"adapter": adapter} if adapter else {}), state)

    # ---- the loop

    @property
    def over(self) -> bool:
        """Has training taken all its steps, or run out of patience?"""
        progress, config = self.trainer.progress, self.config
        out_of_patience = config.patience is not None and progress.waiting >= config.patience
        return progress.step >= config.steps or out_of_patience

    @contextmanager
    def all_at_the_end(self) -> Iterator[None]:
        """A stop ends no rank before rank 0 has written what it saves."""
        try:
            yield
        except Stopped:
            self.processes.wait()
            raise

    def train(self) -> None:
        """Step after step until it is over, with validations and checkpoints on the way."""
        self.trainer.model.train()
        with self.all_at_the_end(), closing(self.trainer), self.screen, self.writer:
            self.after_step()  # a run that stopped before a validation owes it
            if not self.over:
                self.first_step()
            while not self.over:
                self.step()
                self.after_step()
            self.screen.at(self.trainer.progress.step)
            with self.clock.during("save"):
                self.writer.wait()
        if self.processes.rank == 0:
            with self.clock.during("save"):
                self.finish()
        self.processes.wait()
        self.log.write({"step": self.trainer.progress.step, "seconds": self.clock.record()})

    def step(self) -> None:
        """One step; where a stop is asked for while its epoch is still being drawn, none, but what is due."""
        try:
            self.trainer.step()
        except Stopped:
            self.after_step()
            raise
        if self.trainer.device.type != "cuda":  # where the host is ahead of the steps
            self.screen.on_step(self.trainer.progress.step)

    def first_step(self) -> None:
        """The step that everything is made for, compiled code above all."""
        began = time.perf_counter()
        if self.compiles:
            self.screen.on_message(
                _("compiling the step, which takes a minute or two where nothing is kept from an earlier run here")
            )
        with at_work(_("compiling"), line=False) if self.compiles else nullcontext():
            self.step()
        self.clock.begin("steps")
        if self.compiles:
            seconds = roughly(time.perf_counter() - began)
            self.screen.on_message(_("compiled, with the first step, in {seconds}", seconds))
        self.after_step()

    def after_step(self) -> None:
        """Whatever is due at this step. The order matters: a checkpoint says that all that comes before it was done."""
        progress, config = self.trainer.progress, self.config
        step = progress.step
        self.writer.check()
        self.keep_history()
        if step == 0:
            return
        if (step % config.validate_every == 0 or step >= config.steps) and progress.validated < step:
            self.trainer.flush_reports()
            scores = self.validate_unless_stopped()
            if scores is None:
                if self.saved != step:
                    self.save()
                raise Stopped
            self.record_validation(scores)
            if self.over and step < config.steps:
                self.message(
                    _("step {step}: no better for {waiting} validations; stopping early", step, progress.waiting)
                )
        every = config.snapshot_every or config.save_every
        # Of a run that may end early nobody knows which snapshots are the last.
        averaged = config.patience is not None or step > config.steps - every * config.average_last
        if config.average_last and averaged and (step % every == 0 or self.over):
            with self.clock.during("save"):
                self.keep_weights("snapshots", config.average_last)
        due = step % config.save_every == 0 or self.over or progress.best_step == step or self.stopping
        if due and self.saved != step:
            with self.clock.during("save"):
                self.save()
        if self.stopping and not self.over:
            raise Stopped

    @property
    def stopping(self) -> bool:
        """Whether to save and stop now; of several processes all say the same."""
        return self.trainer.stopping if self.processes.size > 1 else self.stop.asked
