"""Is a resumed run the run that was never stopped? Tried out, and told bit by bit.

One process trains 2n steps. Another trains the same recipe, saves at step n, and is killed (SIGKILL) half way to the end;
a third goes on from what the second left. Then everything that moves is compared: parameters, optimizer, moving average,
random state, progress, place in the data, what was logged, and the final weights.

Validation is cut to a few examples and every step is logged; all else is as the recipe says.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer import runs
from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.runs.checkpoint import read_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.runs.stop import handled_by
from glassformer.screen import quietly, warn
from glassformer.training.progress import StepReport
from glassformer_lab.runner import leave_with_parent

EXAMPLES = 32  # decoded at a validation
POSITION = ("epoch", "index")
NOT_COMPARED = ("metrics_bytes", "seconds", "recipe", "run")  # times; the recipe is the same by construction


@dataclass(frozen=True)
class Difference:
    """Something that is not the same in both runs."""

    name: str
    what: str


@dataclass(frozen=True)
class ComparedPart:
    """One row of the table: so many things compared, so many bits differ, and where."""

    name: str
    compared: int
    bits: int
    differences: list[Difference]


@dataclass(frozen=True)
class KillAt:
    """A callback that ends its own process, as a power cut would, when a step is logged."""

    step: int

    def on_log(self, report: StepReport) -> None:
        """Kills the process at the step."""
        if report.step >= self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_message(self, text: str) -> None:
        """Nothing."""


def train_or_go_on(recipe: Recipe | None, folder: Path, kill_at: int | None) -> None:
    """The work of the other processes: a training from the beginning, or without a recipe from the last checkpoint."""
    leave_with_parent()
    callbacks = [] if kill_at is None else [KillAt(kill_at)]
    try:
        with quietly(True):
            if recipe is None:
                runs.resume(folder, callbacks=callbacks)
            else:
                runs.train(recipe, folder, callbacks=callbacks)
    except UserError as error:
        warn(str(error))
        raise SystemExit(2) from None


def ending_in_order() -> AbstractContextManager[None]:
    """SIGTERM and SIGHUP unwind like Ctrl-C, so that children and temporary folders go too."""

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    return handled_by(leave, (signal.SIGTERM, signal.SIGHUP))


def in_a_fresh_process(recipe: Recipe | None, folder: Path, *, kill_at: int | None = None) -> None:
    """A training in a process of its own, killed at a step; without a recipe resumed."""
    process = multiprocessing.get_context("spawn").Process(target=train_or_go_on, args=(recipe, folder, kill_at))
    process.start()
    try:
        process.join()
    finally:
        process.kill()
    expected = 0 if kill_at is None else -signal.SIGKILL
    if process.exitcode != expected:
        raise UserError("a training process ended with {code} and not with {expected}", process.exitcode, expected)


def with_steps(recipe: Recipe, steps: int) -> Recipe:
    """The recipe, cut to 2n steps with a checkpoint in the middle."""
    train = replace(
        recipe.train,
        steps=2 * steps,
        save_every=steps,
        validate_every=steps,
        validate_examples=min(recipe.train.validate_examples, EXAMPLES),
        log_every=1,
        tensorboard=False,
        wandb=False,
    )
    return replace(recipe, train=train)


def state_of(run: RunFolder) -> dict[str, dict[str, Any]]:
    """Everything that moves in a training, by the rows of the table: the last checkpoint, and what the run left behind."""
    step = run.latest_checkpoint()
    if step is None:
        raise UserError("{name} cannot be compared: it has no checkpoint", run.path)
    tensors, state = read_checkpoint(run.checkpoints.path(step))

    def of(kind: str) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in tensors["training"].items() if name.startswith(f"{kind}/")}

    snapshots = {
        f"{step}/{name}": tensor
        for step in run.snapshots.steps()
        for name, tensor in read_checkpoint(run.snapshots.path(step))[0]["model"].items()
    }
    return {
        "parameters": tensors["model"],
        "optimizer": of("optimizer"),
        "moving average": of("ema"),
        "snapshots": snapshots,
        "random state": of("random"),
        "progress": {key: value for key, value in state.items() if key not in (*NOT_COMPARED, *POSITION)},
        "place in the data": {key: state[key] for key in POSITION},
        "log, line by line": {
            str(number): {key: value for key, value in record.items() if key != "clock"}
            for number, record in enumerate(run.metrics())
        },
        "final weights": read_checkpoint(run.final)[0]["model"] if run.final.is_dir() else {},
    }


def raw_bytes(value: Any) -> np.ndarray:
    """The bytes of a tensor, or those of a value's JSON."""
    if isinstance(value, Tensor):
        return value.contiguous().flatten().view(torch.uint8).numpy()
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def differing_bits(one: Any, other: Any) -> int:
    """How many bits of two tensors, or of the JSON of two values, differ; what one of them alone has differs whole."""
    a, b = raw_bytes(one), raw_bytes(other)
    both = min(len(a), len(b))
    return int(np.unpackbits(a[:both] ^ b[:both]).sum()) + 8 * abs(len(a) - len(b))


def compare_part(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> ComparedPart:
    """One row of the table: the same things of two runs by their names."""
    differences, bits = [], 0
    for key in sorted(a.keys() | b.keys()):
        one, other = a.get(key), b.get(key)
        if not (apart := differing_bits(one, other)):
            continue
        bits += apart
        told = f"{str(one)[:60]} and {str(other)[:60]}"
        if isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape:
            told = f"{apart:,} bits; at most {float((one.double() - other.double()).abs().max()):.3g} apart"
        differences.append(Difference(key, told))
    return ComparedPart(name, len(a.keys() | b.keys()), bits, differences)


def compare(one: RunFolder, other: RunFolder) -> list[ComparedPart]:
    """Two runs that should be the same, part by part; a part that neither has is left out."""
    a, b = state_of(one), state_of(other)
    return [compare_part(name, a[name], b[name]) for name in a if a[name] or b[name]]


def verify_resume(
    recipe: Recipe, steps: int, folder: Path, say: Callable[[str], None] = lambda _: None
) -> list[ComparedPart]:
    """Trains both ways in `folder`, in fresh processes, and compares."""
    if steps < 2:
        raise UserError("--steps must be at least 2: there has to be something to lose between a save and the kill")
    recipe = with_steps(recipe, steps)
    straight, resumed = folder / "straight", folder / "resumed"
    kill_at = steps + steps // 2
    say(_("training {steps} steps without a stop …", 2 * steps))
    in_a_fresh_process(recipe, straight)
    say(_("training again, killed at step {kill_at} …", kill_at))
    in_a_fresh_process(recipe, resumed, kill_at=kill_at)
    saved = RunFolder.open(resumed).latest_checkpoint()
    say(_("going on from step {saved} in a third process …", saved))
    in_a_fresh_process(None, resumed)
    return compare(RunFolder.open(straight), RunFolder.open(resumed))
