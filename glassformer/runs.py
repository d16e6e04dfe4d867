"""From a recipe to a run: the wiring of data, model, trainer, validation and files. `train` starts one, `resume` goes on
with one.

What the trainer does not know is decided here: where batches come from, what "better" means, when to save and what a run
folder holds at the end. The same settings and seed give the same run, and a run that was stopped anywhere and resumed is
the run that was never stopped.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from glassformer import checkpoint
from glassformer.api import Model
from glassformer.checkpoint import Checkpoints, read_checkpoint, write_checkpoint
from glassformer.config import VERSION, DecodeConfig, Recipe, TrainConfig
from glassformer.data.batches import Batch, Batches, make_batches
from glassformer.data.prepare import complete_model, open_files, prepare
from glassformer.data.sources import open_split
from glassformer.errors import ConfigError, UserError
from glassformer.evaluate import (
    Scores,
    batch_loss,
    is_better,
    label_scores,
    model_inputs,
    teacher_forced,
    written_scores,
)
from glassformer.files import durable
from glassformer.models import build_model
from glassformer.nn.fp8 import DEFAULT_PARTS, cannot, use_float8
from glassformer.nn.loss import BY_KERNEL, PLAIN, Way, computing
from glassformer.nn.rows import Rows
from glassformer.run_folder import RunFolder, served_weights
from glassformer.text.tokenizers import Tokenizers
from glassformer.train.changes import as_prepared, changes, check_changes
from glassformer.train.memory import is_out_of_memory, less_memory
from glassformer.train.optim import make_optimizers
from glassformer.train.r_drop import r_drop_loss
from glassformer.train.schedules import schedule
from glassformer.train.screen import Screen
from glassformer.train.trainer import NotFinite, StepReport, Trainer, Watcher

STOPPED = 75
"""The exit code of a run that was asked to stop, saved, and can go on with --resume."""


class Stopped(BaseException):
    """The run was asked to stop, and what there was to save is saved. Like KeyboardInterrupt no error, so nothing that
    handles errors along the way swallows it."""


class StopRequest:
    """SIGTERM or Ctrl-C. The first one asks: a step and a save are finished, anything else (preparing data, building the
    model, a validation) is dropped where it stands and done again by whoever resumes. A second one ends the process at
    once, and a crash anywhere harms nothing."""

    def __init__(self) -> None:
        self.asked = False
        self.droppable = False

    def handler(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            os._exit(128 + number)
        self.asked = True
        # Not by print: the signal may have come in the middle of one.
        os.write(2, b"stopping after this step; once more to stop at once\n")
        if self.droppable:
            self.droppable = False
            raise Stopped

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are not ours to handle here
            return
        old = {number: signal.signal(number, self.handler) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, previous in old.items():
                signal.signal(number, previous)

    @contextmanager
    def may_drop(self) -> Iterator[None]:
        """What is done inside ends where it stands when a stop is asked for. The handler's exception may come up inside a
        library that turns it into another one, or loses it; a stop that was asked for is one all the same."""
        if self.asked:
            raise Stopped
        self.droppable = True
        try:
            yield
        except Exception:
            if not self.asked:
                raise
        finally:
            self.droppable = False
        if self.asked:
            raise Stopped


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


TEACHER_FORCED = ("loss",)
"""What a validation measures without decoding."""


def measured(recipe: Recipe) -> list[str]:
    """What a validation measures that could be called the best."""
    match recipe.data.task, recipe.model.family:
        case "pairs", "transformer":
            return ["loss", "exact_match", "bleu", "chrf"]
        case (("classify" | "tag"), "bert"):
            return ["loss", "accuracy", "f1"]
    return ["loss"]


def metric_of(recipe: Recipe) -> str:
    """What "best" means where the recipe leaves it open."""
    if recipe.train.metric != "auto":
        if recipe.train.metric not in measured(recipe):
            raise ConfigError(
                f"train.metric={recipe.train.metric} is not measured for {recipe.model.family} on {recipe.data.task}; "
                f"choose from: {', '.join(measured(recipe))}"
            )
        return recipe.train.metric
    if recipe.train.validate_examples == 0:
        return "loss"
    if recipe.data.task == "pairs" and recipe.model.family == "transformer":
        return "bleu"
    return {"classify": "accuracy", "tag": "accuracy"}.get(recipe.data.task, "loss")


@contextmanager
def needed_for(setting: str, extra: str) -> Iterator[None]:
    """Inside, the import of a package that only this setting asks for."""
    try:
        yield
    except ImportError:
        raise UserError(f"{setting} needs {extra}; install it with: pip install 'glassformer[{extra}]'") from None


class Log:
    """metrics.jsonl: a line for each log interval and each validation. Times are apart, under "clock"."""

    def __init__(self, path: Path, tensorboard: Path | None = None, wandb_name: str | None = None) -> None:
        self.path = path
        self.file = path.open("a", encoding="utf-8")
        self.began = time.perf_counter()
        self.tensorboard: Any = None
        self.wandb: Any = None
        if tensorboard is not None:
            with needed_for("train.tensorboard", "tensorboard"):
                from torch.utils.tensorboard import SummaryWriter
            self.tensorboard = SummaryWriter(str(tensorboard))
        if wandb_name is not None:
            with needed_for("train.wandb", "wandb"):
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
        return size_on_disk(self.path)

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


def in_float8(model: Any, device: torch.device, parts: Sequence[str] = DEFAULT_PARTS) -> Way:
    """train.precision=fp8: the model's layers are told, and the way for its output layer comes back."""
    if (why := cannot(model, device)) is not None:
        raise ConfigError(f"train.precision=fp8 cannot be had here: {why}; set train.precision=auto")
    use_float8(model, parts)
    return Way(kernel=True, float8="output" in parts, float8_weights="output-weights" in parts)


def compiled_loss(model: Any, smoothing: float, way: Way, r_drop: float = 0.0) -> Callable[[Batch], Tensor]:
    """The loss as one compiled function of plain tensors; a fixed shape compiles once."""

    def of_tensors(layouts: tuple[str, ...], *tensors: Tensor) -> Tensor:
        *rows, labels = tensors
        inputs = [Rows(*rows[i : i + 3], layout=layouts[i // 3]) for i in range(0, len(rows), 3)]  # type: ignore[arg-type, misc]
        if r_drop:
            return r_drop_loss(model, inputs, labels, smoothing=smoothing, strength=r_drop)
        return model.loss(*inputs, labels, smoothing=smoothing)  # type: ignore[no-any-return]

    fast = torch.compile(of_tensors, dynamic=False)

    def loss(batch: Batch) -> Tensor:
        sides = [r for r in (batch.source, batch.rows) if r is not None]
        tensors = [t for r in sides for t in (r.tokens, r.segments, r.positions)]
        with computing(way):
            return fast(tuple(r.layout for r in sides), *tensors, batch.labels)  # type: ignore[no-any-return]

    return loss


@dataclass
class Session:
    """One stretch of training: from a start or a resume to an end or a stop."""

    run: RunFolder
    recipe: Recipe
    trainer: Trainer
    model: Any
    tokenizers: Tokenizers
    val_batches: Batches
    log: Log
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
                return scores | task_scores(
                    self.model, self.tokenizers, self.recipe, "val", self.config.validate_examples
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


def size_on_disk(path: Path) -> int:
    if not path.exists():
        return 0
    durable.fsync(path)
    return path.stat().st_size


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


def task_scores(model: Any, tokenizers: Tokenizers, recipe: Recipe, split: str, limit: int | None) -> Scores:
    """What the model does by itself on a split: translations scored as text, labels as labels."""
    examples: list[Any] = []
    if limit == 0:
        return Scores({})
    if recipe.data.task != "text":
        for example in open_split(recipe.data, split):  # type: ignore[arg-type]
            examples.append(example)
            if limit is not None and len(examples) >= limit:
                break
    return example_scores(model, tokenizers, replace(recipe, decode=greedy(recipe.decode)), examples)


def greedy(config: DecodeConfig) -> DecodeConfig:
    """How a validation writes: quickly, and by the model itself, since an engine would have to be made from the weights of
    each validation anew. (`evaluate` writes as the recipe says.)"""
    return DecodeConfig(beam=1, batch_size=128, max_ratio=config.max_ratio, max_extra=config.max_extra, engine="plain")


def example_scores(model: Any, tokenizers: Tokenizers, recipe: Recipe, examples: list[Any]) -> Scores:
    talk = Model(model, tokenizers, recipe)
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


def make_session(run: RunFolder, recipe: Recipe, tokenizers: Tokenizers, stop: StopRequest | None = None) -> Session:
    config = recipe.train
    if metric_of(recipe) not in TEACHER_FORCED and config.validate_examples == 0:
        raise ConfigError(
            f"train.metric={config.metric} is measured on decoded examples, and train.validate_examples=0 decodes none; "
            "set train.metric=loss"
        )
    device = pick_device(config)
    set_up(config, device)
    model = build_model(recipe.model).to(device)
    if config.checkpoint_activations:
        model.checkpoint_activations()
    layout = recipe.data.layout if recipe.data.layout != "auto" else ("packed" if device.type == "cuda" else "padded")

    workers = recipe.data.workers if recipe.data.workers is not None else (2 if device.type == "cuda" else 0)

    # A learned position has an end, and on a device only the width of a row says that no sentence goes beyond it.
    learned = recipe.model.positions == "learned"
    row_width = min(recipe.data.row_width, recipe.model.block_size) if learned else recipe.data.row_width

    def batches(split: str, how: str) -> Batches:
        return make_batches(
            replace(recipe.data, workers=workers, row_width=row_width),
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
    by_kernel = compiling and device.type == "cuda"
    way = in_float8(model, device) if config.precision == "fp8" else BY_KERNEL if by_kernel else PLAIN
    if compiling:
        loss = compiled_loss(model, config.label_smoothing, way, config.r_drop)
    else:

        def loss(batch: Batch) -> Tensor:
            smoothing, strength = config.label_smoothing, config.r_drop
            with computing(way):
                if strength:
                    return r_drop_loss(model, model_inputs(batch), batch.labels, smoothing=smoothing, strength=strength)
                return batch_loss(model, batch, smoothing)

    half = config.precision in ("bf16", "fp8") or (config.precision == "auto" and device.type == "cuda")
    log = Log(
        run.metrics_file,
        run.path / "tensorboard" if config.tensorboard else None,
        recipe.name if config.wandb else None,
    )
    screen = Screen(config.steps)
    train_batches = batches("train", layout)
    may_capture = device.type == "cuda" and compiling and train_batches.shape is not None
    if config.capture and not may_capture:
        raise ConfigError(
            "train.capture=true captures a compiled step on CUDA whose batches all have one shape; leave train.capture out, "
            "or set train.device=cuda, train.compile=true and data.layout=packed"
        )
    trainer = Trainer(
        model,
        loss,
        train_batches,
        make_optimizers(model, config),
        schedule(config, recipe.model.n_embd),
        config,
        watchers=[log, screen],
        device=device,
        autocast=torch.bfloat16 if half else None,
        capture=may_capture and config.capture is not False,
    )
    return Session(
        run, recipe, trainer, model, tokenizers, batches("val", "padded"), log, screen, stop if stop else StopRequest()
    )


@contextmanager
def in_a_sentence(path: Path, recipe: Recipe) -> Iterator[None]:
    """What a person can put right is told in a sentence. Nothing is saved on the way out: the last checkpoint stands."""
    try:
        yield
    except (UserError, BrokenPipeError):
        raise
    except OSError as error:
        if error.errno != errno.ENOMEM:
            where = error.filename or path
            raise UserError(
                f"{where}: {error.strerror or error}; what was saved before is untouched. Put that right, then go on with: "
                f"glassformer train {path} --resume"
            ) from error
        raise out_of_memory(path, recipe) from error
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(path, recipe) from error


def out_of_memory(path: Path, recipe: Recipe) -> UserError:
    return UserError(
        f"out of memory; what was saved before is intact. To go on with less, {less_memory(recipe)}, as in: "
        f"glassformer train {path} train.accumulate={2 * recipe.train.accumulate} --resume --accept-changes"
    )


def prepared(run: RunFolder, recipe: Recipe) -> RunFolder:
    """Tokenizers and token files, and at the very end the line in run.json that says they are there: a run that was stopped
    before it is prepared again from the start."""
    durable.fault_point("preparing")
    for left in [*(run.path / "data").glob("*"), *run.path.glob("tokenizer*.json*"), *run.path.glob("labels.json")]:
        left.unlink()
    texts = prepare(recipe, run.path)
    durable.fault_point("before-prepared")
    run.write_recipe(complete_model(recipe, texts), VERSION, run.prepared_files())
    return RunFolder(run.path)


def train(recipe: Recipe, out: Path, *, overwrite: bool = False, watchers: Sequence[Watcher] = ()) -> RunFolder:
    """Trains from nothing into a new folder."""
    if overwrite and RunFolder.is_run(out):
        with RunFolder(out).alone():
            shutil.rmtree(out)
    ours = not out.is_dir() or not any(out.iterdir())
    run = RunFolder.create(out, recipe, VERSION)
    stop = StopRequest()
    with in_a_sentence(out, recipe), stop.listening(), run.alone():
        with stop.may_drop():
            try:
                run = prepared(run, recipe)
                session = make_session(run, run.recipe, run.tokenizers, stop)
            except UserError:
                # Settings or data that cannot be: a folder that looks like a run would only be in the way.
                if not stop.asked:
                    (run.path / "run.json").unlink(missing_ok=True)
                    if ours:
                        shutil.rmtree(run.path, ignore_errors=True)
                raise
        return go(session, watchers)


def resume(
    out: Path, wanted: Recipe | None = None, *, accept_changes: bool = False, watchers: Sequence[Watcher] = ()
) -> RunFolder | None:
    """Goes on from the newest whole checkpoint, exactly as if the run had never stopped; None where it had ended already.
    `wanted`: with these settings, if they are not the run's own; a difference must be accepted."""
    run = RunFolder.open(out)
    stop = StopRequest()
    with in_a_sentence(out, wanted or run.recipe), stop.listening(), run.alone():
        with stop.may_drop():
            run.recover()
            wanted = run.recipe if wanted is None else as_prepared(wanted, run.recipe)
            if not run.prepared:
                if wanted != run.recipe and not accept_changes:
                    check_changes(changes(run.recipe, wanted), accepted=False)
                run = prepared(run, wanted)
                wanted = run.recipe
            for name, wrong in run.file_problems().items():
                if wrong is not None:
                    raise UserError(
                        f"{run.path / name} cannot be used: {wrong}; bring it back from a copy, or train anew"
                    )
            step = run.latest_checkpoint(say)
            state: dict[str, Any] = {"metrics_bytes": 0, "samples_bytes": 0}
            tensors: dict[str, dict[str, Tensor]] = {}
            if step is not None:
                tensors, state = read_checkpoint(run.checkpoints.path(step))
            trained_with = Recipe.from_dict(state["recipe"]) if "recipe" in state else run.recipe
            # What was confirmed once is in run.json, under its seal; what came into run.json in another way is not.
            found = changes(run.recipe if run.sealed else trained_with, wanted)
            check_changes(found, accepted=accept_changes)
            if not found and (ended := run.finished()) is not None:
                say(f"{out} has been trained to its end, step {ended}; there is nothing to go on with")
                return None
            for change in found:
                say(f"from here on with {change}")
            if found or not run.sealed:
                run.write_recipe(wanted, VERSION, run.facts["files"])
                run = RunFolder(out)
            for path in run.checkpoints.set_aside_after(step or 0):
                say(f"{path} is kept for you to look at, and not used")
            for later in (s for s in run.snapshots.steps() if s > (step or 0)):
                checkpoint.remove(run.snapshots.path(later))
            cut_back(run.metrics_file, state["metrics_bytes"])
            cut_back(run.samples_file, state["samples_bytes"])
            session = make_session(run, run.recipe, run.tokenizers, stop)
            if step is not None:
                session.trainer.restore(tensors, state)
                session.saved = session.screen.first = step
                mend_best(session, trained_with)
        return go(session, watchers)


def mend_best(session: Session, trained_with: Recipe) -> None:
    """The best so far counts only if it was measured in the same way and is still there."""
    progress, best = session.trainer.progress, session.trainer.progress.best_step
    if best is None:
        return
    wrong = checkpoint.problem(session.run.checkpoints.path(best)) if best != progress.step else None
    if wrong is not None:
        say(f"the best checkpoint, of step {best}, cannot be used: {wrong}; the best is looked for again from here on")
    if wrong is not None or metric_of(trained_with) != metric_of(session.recipe):
        progress.best_step = progress.best_score = None
        progress.waiting = 0


def cut_back(path: Path, size: int) -> None:
    """Lines written after the checkpoint will be written again."""
    if path.exists():
        os.truncate(path, min(size, path.stat().st_size))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def go(session: Session, watchers: Sequence[Watcher]) -> RunFolder:
    session.trainer.watchers.extend(watchers)
    try:
        session.train()
    finally:
        session.log.close()
    return session.run


__all__ = ["STOPPED", "Checkpoints", "Session", "Stopped", "resume", "train"]
