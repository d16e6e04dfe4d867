"""From a recipe to a run: the wiring of data, model, trainer, validation and files. `train` starts one, `resume` goes on
with one.

What the trainer does not know is decided here: where batches come from, what "better" means, when to save and what a run
folder holds at the end. The same settings and seed give the same run, and a run that was stopped anywhere and resumed is
the run that was never stopped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from glassformer import checkpoint
from glassformer.api import Model
from glassformer.checkpoint import Checkpoints, read_checkpoint, write_checkpoint
from glassformer.config import VERSION, Recipe, TrainConfig, UserError
from glassformer.data.batches import Batch, Batches, make_batches
from glassformer.data.prepare import Texts, complete_model, open_files, prepare
from glassformer.data.sources import open_split
from glassformer.evaluate import Scores, batch_loss, is_better, label_scores, teacher_forced, written_scores
from glassformer.models import build_model
from glassformer.nn.rows import Rows
from glassformer.run_folder import RunFolder
from glassformer.train.optim import make_optimizers
from glassformer.train.schedules import schedule
from glassformer.train.screen import Screen
from glassformer.train.trainer import NotFinite, StepReport, Trainer

STOPPED = 75
"""The exit code of a run that was asked to stop, saved, and can go on with --resume."""


class Stopped(Exception):
    """The run was asked to stop and has saved."""


def pick_device(config: TrainConfig) -> torch.device:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("train.device=cuda was asked for, and torch sees no CUDA device here; use train.device=cpu")
    return torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")


def set_up(config: TrainConfig, device: torch.device) -> None:
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(config.seed)


def metric_of(recipe: Recipe) -> str:
    """What "best" means where the recipe leaves it open."""
    if recipe.train.metric != "auto":
        return recipe.train.metric
    if recipe.data.task == "pairs" and recipe.model.family == "transformer":
        return "bleu"
    return {"classify": "accuracy", "tag": "accuracy"}.get(recipe.data.task, "loss")


class Log:
    """metrics.jsonl: a line for each log interval and each validation. Times are apart, under "clock"."""

    def __init__(self, path: Path, tensorboard: Path | None = None, wandb_name: str | None = None) -> None:
        self.path = path
        self.file = path.open("a", encoding="utf-8")
        self.began = time.perf_counter()
        self.tensorboard: Any = None
        self.wandb: Any = None
        if tensorboard is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.tensorboard = SummaryWriter(str(tensorboard))
        if wandb_name is not None:
            import wandb

            self.wandb = wandb.init(project="glassformer", name=wandb_name, dir=str(path.parent), resume="allow")

    def write(self, values: dict[str, Any]) -> None:
        line = {**values, "clock": round(time.perf_counter() - self.began, 3)}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        numbers = {k: v for k, v in values.items() if isinstance(v, int | float) and k != "step"}
        if self.tensorboard is not None:
            for name, value in numbers.items():
                self.tensorboard.add_scalar(name, value, values["step"])
        if self.wandb is not None:
            self.wandb.log(numbers, step=values["step"])

    def size(self) -> int:
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.path.stat().st_size

    def close(self) -> None:
        self.file.close()
        if self.tensorboard is not None:
            self.tensorboard.close()
        if self.wandb is not None:
            self.wandb.finish()

    def on_log(self, report: StepReport) -> None:
        self.write(
            {
                "step": report.step,
                "loss": report.loss,
                "lr": report.rate,
                "grad_norm": report.norm,
                "tokens": report.tokens,
                "epoch": report.epoch,
            }
        )

    def on_message(self, text: str) -> None:
        pass


def compiled_loss(model: Any, smoothing: float) -> Callable[[Batch], Tensor]:
    """The loss as one compiled function of plain tensors; a fixed shape compiles once."""

    def of_tensors(layouts: tuple[str, str], *tensors: Tensor) -> Tensor:
        *rows, labels = tensors
        inputs = [Rows(*rows[i : i + 3], layout=layouts[i // 3]) for i in range(0, len(rows), 3)]  # type: ignore[arg-type]
        return model.loss(*inputs, labels, smoothing=smoothing)  # type: ignore[no-any-return]

    fast = torch.compile(of_tensors, dynamic=False)

    def loss(batch: Batch) -> Tensor:
        sides = [r for r in (batch.source, batch.rows) if r is not None]
        tensors = [t for r in sides for t in (r.tokens, r.segments, r.positions)]
        return fast(tuple(r.layout for r in sides), *tensors, batch.labels)  # type: ignore[no-any-return]

    return loss


@dataclass
class Session:
    """One stretch of training: from a start or a resume to an end or a stop."""

    run: RunFolder
    recipe: Recipe
    trainer: Trainer
    model: Any
    texts: Texts
    val_batches: Batches
    log: Log
    screen: Screen
    stop_asked: bool = False

    @property
    def config(self) -> TrainConfig:
        return self.recipe.train

    # ---- validation

    @contextmanager
    def served_weights(self) -> Any:
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
        self.screen.pause()
        was_training = self.model.training
        self.model.eval()
        with self.served_weights():
            budget = max(256, 2**25 // max(1, self.model.config.vocab_size))
            scores = teacher_forced(self.model, self.val_batches.in_order(budget, limit=20_000), self.trainer.device)
            scores = scores | task_scores(self.model, self.texts, self.recipe, "val", self.config.validate_examples)
        self.model.train(was_training)
        self.screen.pause()
        return scores

    def note(self, scores: Scores) -> None:
        """Log a validation, show a few samples, and keep count of the best."""
        progress = self.trainer.progress
        metric = metric_of(self.recipe)
        value = scores.values[metric]
        self.log.write({"step": progress.step, **{f"val_{k}": v for k, v in scores.values.items()}})
        better = is_better(metric, value, progress.best_score)
        if better:
            progress.best_score, progress.best_step, progress.waiting = value, progress.step, 0
        else:
            progress.waiting += 1
        shown = "  ".join(f"{k} {v:.4g}" for k, v in scores.values.items())
        self.screen.score = f"val {metric} {value:.4g}"
        self.screen.on_message(f"step {progress.step}: validation  {shown}{'  (best so far)' if better else ''}")
        for source, wanted, written in scores.samples[:3]:
            mark = "=" if wanted.strip() == written.strip() else "≠"
            self.screen.on_message(f"    {shorten(source)} → {shorten(written)}  {mark}  {shorten(wanted)}")
        if scores.samples:
            with (self.run.path / "samples.jsonl").open("a", encoding="utf-8") as file:
                for source, wanted, written in scores.samples:
                    line = {"step": progress.step, "source": source, "wanted": wanted, "written": written}
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")

    # ---- saving

    def save(self) -> None:
        progress = self.trainer.progress
        state = self.trainer.state()
        state["metrics_bytes"] = self.log.size()
        samples = self.run.path / "samples.jsonl"
        state["samples_bytes"] = samples.stat().st_size if samples.exists() else 0
        write_checkpoint(self.run.checkpoints.path(progress.step), self.trainer.tensors(), state)
        keep = {progress.best_step} if progress.best_step is not None else set()
        self.run.checkpoints.prune(self.config.keep_last, keep)

    def snapshot(self) -> None:
        """Weights alone, for averaging; older than the last few are dropped."""
        step = self.trainer.progress.step
        write_checkpoint(self.run.snapshots.path(step), {"model": self.trainer.served_tensors()}, {"step": step})
        self.run.snapshots.prune(self.config.average_last, set())

    def finish(self) -> None:
        """The weights one will use: the mean of the last snapshots, or the best checkpoint's."""
        progress, config = self.trainer.progress, self.config
        if config.average_last:
            steps = [s for s in self.run.snapshots.steps() if s <= progress.step][-config.average_last :]
            weights = average([read_checkpoint(self.run.snapshots.path(s))[0]["model"] for s in steps])
            came_from: dict[str, Any] = {"averaged": steps}
        else:
            step = progress.best_step if progress.best_step is not None else progress.step
            tensors, _ = read_checkpoint(self.run.checkpoints.path(step))
            averaged = {n.removeprefix("ema/"): t for n, t in tensors["training"].items() if n.startswith("ema/")}
            weights, came_from = averaged or tensors["model"], {"step": step}
        write_checkpoint(self.run.final, {"model": weights}, {"step": progress.step, "weights": came_from})

    # ---- the loop

    def train(self) -> None:
        progress, config = self.trainer.progress, self.config
        snapshot_every = config.snapshot_every or config.save_every
        self.model.train()
        with self.asked_to_stop(), self.screen:
            while progress.step < config.steps and not progress.finished:
                self.trainer.step()
                step = progress.step
                last = step == config.steps
                saved = False
                if step % config.validate_every == 0 or last:
                    self.trainer.settle()
                    self.note(self.validate())
                    if config.patience is not None and progress.waiting >= config.patience:
                        progress.finished = last = True
                        self.screen.on_message(
                            f"step {step}: no better for {progress.waiting} validations; stopping early"
                        )
                    if progress.best_step == step:
                        self.save()
                        saved = True
                if config.average_last and (step % snapshot_every == 0 or last):
                    self.snapshot()
                if (step % config.save_every == 0 or last or self.stop_asked) and not saved:
                    self.save()
                if self.stop_asked and not last:
                    raise Stopped
        self.finish()

    @contextmanager
    def asked_to_stop(self) -> Any:
        """The first SIGTERM or Ctrl-C ends the run after this step and a save; a second one ends it at once."""

        def handler(number: int, frame: FrameType | None) -> None:
            if self.stop_asked:
                os._exit(128 + number)
            self.stop_asked = True
            print("stopping after this step; once more to stop at once", file=sys.stderr, flush=True)

        old = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, previous in old.items():
                signal.signal(number, previous)


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


def task_scores(model: Any, texts: Texts, recipe: Recipe, split: str, limit: int | None) -> Scores:
    """What the model does by itself on a split: translations scored as text, labels as labels."""
    examples = []
    if recipe.data.task != "text":
        for example in open_split(recipe.data, split):  # type: ignore[arg-type]
            examples.append(example)
            if limit is not None and len(examples) >= limit:
                break
    return example_scores(model, texts, recipe, examples)


def example_scores(model: Any, texts: Texts, recipe: Recipe, examples: list[Any]) -> Scores:
    talk = Model(model, texts, recipe)
    match recipe.data.task, recipe.model.family:
        case "pairs", "transformer":
            return written_scores(talk.translate, examples, recipe.train.bleu_tokenize)
        case "classify", "bert":
            found = [labels[0].label for labels in talk.classify([text for text, _ in examples])]
            return label_scores(found, [label for _, label in examples])
        case "tag", "bert":
            tagged = talk.tag([words for words, _ in examples])
            return label_scores([t.label for line in tagged for t in line], [t for _, tags in examples for t in tags])
    return Scores({})


def make_session(run: RunFolder, recipe: Recipe, texts: Texts) -> Session:
    config = recipe.train
    device = pick_device(config)
    set_up(config, device)
    model = build_model(recipe.model).to(device)
    if config.checkpoint_activations:
        model.checkpoint_activations()
    layout = recipe.data.layout if recipe.data.layout != "auto" else ("packed" if device.type == "cuda" else "padded")

    def batches(split: str, how: str) -> Batches:
        return make_batches(
            recipe.data,
            recipe.model.family,
            recipe.model.head,
            open_files(recipe.data, split, run.path / "data"),
            recipe.model.block_size,
            config.seed,
            layout=how,  # type: ignore[arg-type]
            rank=0,
            world=1,
            accumulate=config.accumulate,
        )

    compiling = config.compile if config.compile is not None else device.type == "cuda"
    if compiling:
        loss = compiled_loss(model, config.label_smoothing)
    else:

        def loss(batch: Batch) -> Tensor:
            return batch_loss(model, batch, config.label_smoothing)

    half = config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")
    log = Log(
        run.metrics_file,
        run.path / "tensorboard" if config.tensorboard else None,
        recipe.name if config.wandb else None,
    )
    screen = Screen(config.steps)
    trainer = Trainer(
        model,
        loss,
        batches("train", layout),
        make_optimizers(model, config),
        schedule(config, recipe.model.n_embd),
        config,
        watchers=[log, screen],
        device=device,
        autocast=torch.bfloat16 if half else None,
    )
    return Session(run, recipe, trainer, model, texts, batches("val", "padded"), log, screen)


def train(recipe: Recipe, out: Path, *, overwrite: bool = False) -> RunFolder:
    """Trains from nothing into a new folder."""
    if overwrite and RunFolder.is_run(out):
        shutil.rmtree(out)
    run = RunFolder.create(out, recipe, VERSION)
    try:
        texts = prepare(recipe, run.path)
        recipe = complete_model(recipe, texts)
    except BaseException:
        # Nothing was learned yet; a folder that looks like a run would only be in the way.
        (run.path / "run.json").unlink(missing_ok=True)
        raise
    run.write_recipe(recipe, VERSION)
    return go(make_session(RunFolder(out), recipe, texts))


def resume(out: Path) -> RunFolder:
    """Goes on from the newest whole checkpoint, exactly as if the run had never stopped."""
    run = RunFolder.open(out)
    run.checkpoints.recover()
    run.snapshots.recover()
    session = make_session(run, run.recipe, run.texts)
    step = run.checkpoints.latest_good(session.screen.on_message)
    if step is not None:
        tensors, state = read_checkpoint(run.checkpoints.path(step))
        session.log.close()
        cut_back(run.metrics_file, state["metrics_bytes"])
        cut_back(run.path / "samples.jsonl", state["samples_bytes"])
        session.log = Log(run.metrics_file)
        session.trainer.watchers[0] = session.log
        session.trainer.restore(tensors, state)
        session.screen.first = step
    return go(session)


def cut_back(path: Path, size: int) -> None:
    """Lines written after the checkpoint will be written again."""
    if path.exists():
        os.truncate(path, min(size, path.stat().st_size))


def go(session: Session) -> RunFolder:
    try:
        session.train()
    except NotFinite:
        raise
    finally:
        session.log.close()
    return session.run


__all__ = ["STOPPED", "Checkpoints", "Session", "Stopped", "resume", "train"]
