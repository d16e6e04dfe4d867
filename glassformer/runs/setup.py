"""From a prepared run to a session: device, model, loss, batches and trainer, wired as the recipe says."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from glassformer import machine
from glassformer.accel import accelerate, trials
from glassformer.accel.fp8 import unsupported_reason
from glassformer.config import Recipe, TrainConfig
from glassformer.data.batches import Batch, Batches, recipe_batches
from glassformer.data.encoding import open_files, trained_length
from glassformer.data.redraw import EpochDraws
from glassformer.errors import ConfigError, UserError
from glassformer.evaluation.generated import TEACHER_FORCED, metric_of
from glassformer.evaluation.teacher_forced import batch_loss, model_inputs
from glassformer.language import _
from glassformer.models import build_model
from glassformer.nn.block import Block
from glassformer.nn.rows import Rows
from glassformer.runs.facts import Build, write_facts
from glassformer.runs.fine_tune import choose_what_learns, load_start
from glassformer.runs.folder import RunFolder
from glassformer.runs.metrics_log import MetricsLog
from glassformer.runs.session import Session
from glassformer.runs.stop import StopRequest
from glassformer.screen import say, warn
from glassformer.text.tokenizers import Tokenizers
from glassformer.training.optim import make_optimizers, schedule
from glassformer.training.processes import current
from glassformer.training.progress import Screen
from glassformer.training.r_drop import r_drop_loss
from glassformer.training.trainer import Trainer


def pick_device(config: TrainConfig) -> torch.device:
    """The device to train on: CUDA if it is there and not ruled out, else the CPU; Apple's GPU (MPS) where it is asked for."""
    if config.device == "mps":
        if not torch.backends.mps.is_available():
            raise UserError(
                "train.device=mps was asked for, and torch sees no GPU of Apple's here; use train.device=cpu"
            )
        return torch.device("mps")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("train.device=cuda was asked for, and torch sees no CUDA device here; use train.device=cpu")
    return torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")


def is_compiled(config: TrainConfig, device: torch.device) -> bool:
    """Whether the steps are compiled: where the recipe says so, and on CUDA unless it says no."""
    return config.compile if config.compile is not None else device.type == "cuda"


def set_up(config: TrainConfig, device: torch.device) -> None:
    """The settings of torch that hold for the whole process: threads, determinism, the seed."""
    if device.type == "mps":
        warn(
            _(
                "train.device=mps: nobody has tried this on a GPU of Apple's yet; compare its losses with train.device=cpu"
            )
        )
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(config.seed)


def make_fast(model: Any, device: torch.device, *, compiled: bool, precision: str = "auto") -> None:
    """Installs on the model what makes its training fast on this device (glassformer.accel)."""
    if precision == "fp8" and (why := unsupported_reason(model, device)) is not None:
        raise ConfigError("train.precision=fp8 cannot be had here: {why}; set train.precision=auto", why)
    eager_on_cpu, processes = device.type == "cpu" and not compiled, current()
    tried = trials.short_rows() if eager_on_cpu and processes.rank == 0 else 0  # whose answer all processes keep to
    accelerate(model, compiled=compiled, float8=precision == "fp8", short_rows=processes.broadcast(tried))


def trains_in_half(config: TrainConfig, device: torch.device) -> bool:
    """Whether a training's products are in bfloat16."""
    return config.precision in ("bf16", "fp8") or (config.precision == "auto" and device.type == "cuda")


def compiled_loss(model: Any, smoothing: float, r_drop: float = 0.0) -> Callable[[Batch], Tensor]:
    """The loss as one compiled function of plain tensors; a fixed shape compiles once."""

    def of_tensors(layouts: tuple[str, ...], *tensors: Tensor) -> Tensor:
        *rows, labels = tensors
        inputs = [Rows(*rows[i : i + 3], layout=layouts[i // 3]) for i in range(0, len(rows), 3)]  # type: ignore[arg-type, misc]
        if r_drop:
            return r_drop_loss(model, inputs, labels, smoothing=smoothing, strength=r_drop)
        return model.loss(*inputs, labels, smoothing=smoothing)  # type: ignore[no-any-return]

    # torch keeps what it has compiled by code object, and compiles one only a few times: every training has its own.
    code, closure = of_tensors.__code__.replace(), of_tensors.__closure__
    fast = torch.compile(FunctionType(code, of_tensors.__globals__, closure=closure), dynamic=False)

    def loss(batch: Batch) -> Tensor:
        sides = [r for r in (batch.source, batch.rows) if r is not None]
        tensors = [t for r in sides for t in (r.tokens, r.segments, r.positions)]
        return fast(tuple(r.layout for r in sides), *tensors, batch.labels)  # type: ignore[no-any-return]

    return loss


def make_loss(model: Any, config: TrainConfig, device: torch.device, *, compiling: bool) -> Callable[[Batch], Tensor]:
    """The loss of a batch as the recipe asks for it: compiled or eager, in float8 or not, with R-Drop or without."""
    make_fast(model, device, compiled=compiling, precision=config.precision)
    if compiling and current().size > 1:
        # Block by block: DDP and FSDP come between them, and would break the graph of the whole.
        for block in (module for module in model.modules() if isinstance(module, Block)):
            block.compile(dynamic=False)
    elif compiling:
        return compiled_loss(model, config.label_smoothing, config.r_drop)

    def loss(batch: Batch) -> Tensor:
        smoothing, strength = config.label_smoothing, config.r_drop
        if strength:
            return r_drop_loss(model, model_inputs(batch), batch.labels, smoothing=smoothing, strength=strength)
        return batch_loss(model, batch, smoothing)

    return loss


def refuse_several(recipe: Recipe) -> None:
    """Refuses what only one process can train, where there are several."""
    alone = {
        "train.capture=true": recipe.train.capture is True,
        "train.precision=fp8": recipe.train.precision == "fp8",
        "model.norm=batch": recipe.model.norm == "batch",
    }
    if current().size > 1 and (asked := [setting for setting, is_asked in alone.items() if is_asked]):
        raise ConfigError("{setting} is for one process alone, and this training has several; leave it out", asked[0])


def check_metric(recipe: Recipe) -> None:
    """Refuses a measure of decoded examples where none are decoded."""
    config = recipe.train
    if metric_of(recipe) not in TEACHER_FORCED and config.validate_examples == 0:
        raise ConfigError(
            "train.metric={metric} is measured on decoded examples, and train.validate_examples=0 decodes none; "
            "set train.metric=loss",
            config.metric,
        )


def to_measure(model: Any, config: TrainConfig) -> Any:
    """The model that is validated. Of one that will be sharded rank 0 has a copy, into which the weights are gathered."""
    return copy.deepcopy(model).cpu() if config.shard and current().size > 1 and current().rank == 0 else model


def is_captured(config: TrainConfig, on_cuda: bool) -> bool:
    """Whether a step is replayed as a graph: `on_cuda`, compiled, with batches of one shape, where no other process has to be
    waited for."""
    may_be = on_cuda and current().size == 1
    if config.capture and not may_be:
        raise ConfigError(
            "train.capture=true captures a compiled step on CUDA whose batches all have one shape; leave train.capture out, "
            "or set train.device=cuda, train.compile=true and data.layout=packed"
        )
    return may_be and config.capture is not False


def keep_to_trials(run: RunFolder, device: torch.device) -> None:
    """Kernels are chosen as the run has chosen them before, whatever another trial here or elsewhere would say; told where that
    was on another processor, whose digits nobody can have again."""
    kept = run.facts.get("trials")
    if kept is None or device.type != "cpu":
        return
    if kept["processor"] == machine.processor_identity():
        trials.keep_to(kept["gains"])
    else:
        say(
            _(
                "trained on another processor or by another torch so far: from here on sums are made in another order, so the "
                "last digits will differ"
            )
        )


def with_trials(run: RunFolder, device: torch.device) -> RunFolder:
    """The run, whose run.json has the trials by which its kernels were chosen."""
    gains = trials.known_gains()
    kept = {"processor": machine.processor_identity(), "gains": gains}
    if device.type != "cpu" or not gains or run.facts.get("trials") == kept:
        return run
    write_facts(run.path, run.facts | {"trials": kept})
    return RunFolder(run.path)


def make_session(
    run: RunFolder, recipe: Recipe, tokenizers: Tokenizers, stop: StopRequest | None = None, build: Build = None
) -> Session:
    """Everything a training needs, ready for its first step (or for a checkpoint to be restored into)."""
    config = recipe.train
    check_metric(recipe)
    processes, stop = current(), stop or StopRequest()
    device = processes.device(pick_device(config))
    set_up(config, device)
    processes.watch(config.hang_seconds, str(run.path))
    if processes.rank == 0:
        keep_to_trials(run, device)
    model = build_model(recipe.model) if build is None else build(build_model(recipe.model))
    choose_what_learns(model, config, load_start(run, model))
    model = model.to(device)
    if "from" not in run.facts:
        model.trained_length = trained_length(recipe, run.path / "data")
    if config.checkpoint_activations:
        model.checkpoint_activations()
    layout = recipe.data.layout if recipe.data.layout != "auto" else ("packed" if device.type == "cuda" else "padded")
    workers = recipe.data.workers if recipe.data.workers is not None else (2 if device.type == "cuda" else 0)

    def batches(split: str, how: str) -> Batches:
        files = open_files(recipe.data, split, run.path / "data")
        drawn = split == "train" and recipe.data.drawn_each_epoch
        redraw = EpochDraws(recipe, run.path) if drawn else None
        own = replace(recipe, data=replace(recipe.data, workers=workers))
        return recipe_batches(own, files, layout=how, redraw=redraw)

    compiling = is_compiled(config, device)
    loss = make_loss(model, config, device, compiling=compiling)
    measured = to_measure(model, config)
    loss = processes.parallel(model, loss, shard=config.shard)
    log = MetricsLog(
        run.metrics_file if processes.rank == 0 else None,
        run.path / "tensorboard" if config.tensorboard else None,
        recipe.name if config.wandb else None,
    )
    screen = Screen(config.steps)
    train_batches = batches("train", layout)
    trainer = Trainer(
        model,
        loss,
        train_batches,
        make_optimizers(model, config),
        schedule(config, recipe.model.n_embd),
        config,
        callbacks=[log, screen],
        device=device,
        autocast=torch.bfloat16 if trains_in_half(config, device) else None,
        capture=is_captured(config, device.type == "cuda" and compiling and train_batches.shape is not None),
    )
    return Session(
        with_trials(run, device) if processes.rank == 0 else run,
        recipe,
        trainer,
        measured,
        tokenizers,
        batches("val", "padded"),
        log,
        screen,
        stop,
        compiles=compiling,
    )
