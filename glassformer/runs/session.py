"""One stretch of training: steps, validations, checkpoints and the final weights, in an order that a crash cannot spoil."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from glassformer import checkpoint
from glassformer.checkpoint import read_checkpoint, write_checkpoint
from glassformer.config import Recipe, TrainConfig
from glassformer.data.batches import Batches
from glassformer.data.store import run_examples
from glassformer.evaluate import Scores, is_better, teacher_forced
from glassformer.files import durable
from glassformer.run_folder import RunFolder, served_weights
from glassformer.runs.metrics_log import MetricsLog, size_on_disk
from glassformer.runs.stop import Stopped, StopRequest
from glassformer.runs.validation import metric_of, task_scores
from glassformer.text.tokenizers import Tokenizers
from glassformer.train.screen import Screen
from glassformer.train.trainer import NotFinite, Trainer


def shorten(text: str, width: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def average(sets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in float64 and in order."""
    return {
        name: torch.stack([s[name].double() for s in sets]).mean(0).to(first.dtype)
        if first.is_floating_point()
        else first
        for name, first in sets[-1].items()
    }


SMALL_MODEL = 16_000_000  # bytes of weights; of a larger model the beginnings are kept only where the recipe asks


def is_historic(step: int) -> bool:
    """0, and from 10 on the ones and threes of each power of ten: 10, 30, 100, 300 …"""
    return step == 0 or (step >= 10 and step in (10 ** (len(str(step)) - 1), 3 * 10 ** (len(str(step)) - 1)))


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

    @property
    def config(self) -> TrainConfig:
        return self.recipe.train

    # ---- validation

    @contextmanager
    def with_served_weights(self) -> Any:
        """Validate with the weights that would be used: the moving average, where there is one."""
        if self.trainer.ema is None:
            yield
            return
        own = {n: t.clone() for n, t in checkpoint.model_tensors(self.model).items()}
        checkpoint.load_model_tensors(self.model, self.trainer.ema)
        try:
            yield
        finally:
            checkpoint.load_model_tensors(self.model, own)

    def validate(self) -> Scores:
        """Leaves no trace in the run, not even in the random state: it can be dropped half way and made again later."""
        durable.fault_point("validating")
        self.screen.pause()
        was_training = self.model.training
        devices = [self.trainer.device] if self.trainer.device.type == "cuda" else []
        self.model.eval()
        try:
            with torch.random.fork_rng(devices), self.with_served_weights(), self.stop.may_drop():
                budget = max(256, 2**25 // max(1, self.model.config.vocab_size))
                examples = self.val_batches.in_order(budget, limit=20_000)
                scores = teacher_forced(self.model, examples, self.trainer.device)
                stored = run_examples(self.recipe.data, "val", self.run.path / "data")
                return scores | task_scores(
                    self.model, self.tokenizers, self.recipe, stored, self.config.validate_examples
                )
        finally:
            self.model.train(was_training)
            self.screen.pause()

    def note(self, scores: Scores) -> None:
        """Log a validation, show a few samples, and keep count of the best."""
        progress = self.trainer.progress
        metric = metric_of(self.recipe)
        value = scores.values[metric]
        self.log.write({"step": progress.step, **{f"val_{k}": v for k, v in scores.values.items()}})
        better = math.isfinite(value) and is_better(metric, value, progress.best_score)
        first = progress.validated == 0
        progress.validated = progress.step
        self.saved = None
        if better:
            progress.best_score, progress.best_step, progress.waiting = value, progress.step, 0
        else:
            progress.waiting += 1
        shown = "  ".join(f"{k} {v:.4g}" for k, v in scores.values.items())
        self.screen.score = f"val {metric} {value:.4g}"
        self.screen.on_message(f"step {progress.step}: validation  {shown}{'  (best so far)' if better else ''}")
        for name, signature in scores.signatures.items() if first else ():
            self.screen.on_message(f"    {name} is sacrebleu's {signature}")
        for source, wanted, written in scores.samples[:3]:
            mark = "=" if wanted.strip() == written.strip() else "≠"
            self.screen.on_message(f"    {shorten(source)} → {shorten(written)}  {mark}  {shorten(wanted)}")
        if scores.samples:
            with self.run.samples_file.open("a", encoding="utf-8") as file:
                for source, wanted, written in scores.samples:
                    line = {"step": progress.step, "source": source, "wanted": wanted, "written": written}
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")

    # ---- saving

    def save(self) -> None:
        progress = self.trainer.progress
        state = self.trainer.state()
        if (name := self.trainer.not_finite()) is not None:
            raise NotFinite(
                f"at step {progress.step} {name} is not finite, so nothing is saved; the last checkpoint is good. Go on from "
                "it with a lower train.learning_rate, a longer train.warmup or a lower train.clip"
            )
        state["metrics_bytes"] = self.log.size()
        state["samples_bytes"] = size_on_disk(self.run.samples_file)
        state["recipe"] = self.recipe.to_dict()
        checkpoints = self.run.checkpoints
        write_checkpoint(checkpoints.path(progress.step), self.trainer.tensors(), state)
        self.saved = progress.step
        # Should the newest turn out damaged, the one before it must find what it calls the best.
        named = (checkpoints.state(step).get("best_step") for step in checkpoints.steps()[-self.config.keep_last :])
        checkpoints.prune(self.config.keep_last, {best for best in named if best is not None})

    def snapshot(self) -> None:
        """Weights alone, for averaging; older than the last few are dropped."""
        step = self.trainer.progress.step
        path = self.run.snapshots.path(step)
        if not path.exists() or checkpoint.problem(path) is not None:
            write_checkpoint(path, {"model": self.trainer.served_tensors()}, {"step": step})
        self.run.snapshots.prune(self.config.average_last)

    def keep_history(self) -> None:
        """The weights at logarithmic steps (0, 10, 30, 100, 300 …), where the model is small or the recipe says so."""
        step, wanted = self.trainer.progress.step, self.config.history
        if wanted is False or not is_historic(step):
            return
        if wanted is None and sum(p.numel() * p.element_size() for p in self.model.parameters()) > SMALL_MODEL:
            return
        path = self.run.history.path(step)
        if not path.exists() or checkpoint.problem(path) is not None:
            write_checkpoint(path, {"model": self.trainer.served_tensors()}, {"step": step})

    def finish(self) -> None:
        """The weights one will use: the mean of the last snapshots, or the best checkpoint's."""
        durable.fault_point("finishing")
        progress, config = self.trainer.progress, self.config
        if config.average_last:
            steps = [s for s in self.run.snapshots.steps() if s <= progress.step][-config.average_last :]
            whole = [s for s in steps if checkpoint.problem(self.run.snapshots.path(s)) is None]
            for lost in sorted(set(steps) - set(whole)):
                self.screen.on_message(f"{self.run.snapshots.path(lost)} is damaged and left out of the average")
            weights = average([read_checkpoint(self.run.snapshots.path(s))[0]["model"] for s in whole])
            came_from: dict[str, Any] = {"averaged": whole}
        else:
            step = progress.best_step if progress.best_step is not None else progress.step
            tensors, _ = read_checkpoint(self.run.checkpoints.path(step))
            weights, came_from = served_weights(tensors), {"step": step}
        write_checkpoint(self.run.final, {"model": weights}, {"step": progress.step, "weights": came_from})

    # ---- the loop

    @property
    def over(self) -> bool:
        progress, config = self.trainer.progress, self.config
        out_of_patience = config.patience is not None and progress.waiting >= config.patience
        return progress.step >= config.steps or out_of_patience

    def train(self) -> None:
        self.model.train()
        with self.screen:
            self.after_step()  # a run that stopped before a validation owes it
            while not self.over:
                self.trainer.step()
                self.after_step()
            self.screen.at(self.trainer.progress.step)
        self.finish()

    def after_step(self) -> None:
        """Whatever is due at this step. The order matters: a checkpoint says that all that comes before it was done."""
        progress, config = self.trainer.progress, self.config
        step = progress.step
        self.keep_history()
        if step == 0:
            return
        if (step % config.validate_every == 0 or step >= config.steps) and progress.validated < step:
            self.trainer.settle()
            try:
                scores = self.validate()
            except Stopped:
                if self.saved != step:
                    self.save()
                raise
            self.note(scores)
            if self.over and step < config.steps:
                self.screen.on_message(f"step {step}: no better for {progress.waiting} validations; stopping early")
        if config.average_last and (step % (config.snapshot_every or config.save_every) == 0 or self.over):
            self.snapshot()
        due = step % config.save_every == 0 or self.over or progress.best_step == step or self.stop.asked
        if due and self.saved != step:
            self.save()
        if self.stop.asked and not self.over:
            raise Stopped
