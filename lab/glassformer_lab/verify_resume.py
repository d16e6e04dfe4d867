"""Is a resumed run the run that was never stopped? Tried out, and told bit by bit.

One process trains 2n steps. Another trains the same recipe, saves at step n, and is killed (SIGKILL) half way to the end;
a third goes on from what the second left. Then everything that moves is compared: parameters, optimizer, moving average,
random state, progress, place in the data, what was logged, and the final weights.

Validation is cut to a few examples and every step is logged; all else is as the recipe says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
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
from glassformer.runs.checkpoint import Checkpoints, read_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.runs.stop import handled_by
from glassformer.training.progress import StepReport

EXAMPLES = 32  # decoded at a validation
POSITION = ("epoch", "index")
NOT_COMPARED = ("metrics_bytes", "seconds", "recipe", "run")  # times; the recipe is the same by construction
CHILD = "import sys; from glassformer_lab.verify_resume import child; child(*sys.argv[1:])"


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


def end_with_parent() -> None:
    """A process that verifies holds the other end of this one's stdin: when it is gone, however it went, so is this one."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def child(recipe_file: str, folder: str, kill_at: str, resume: str) -> None:
    """What the other processes run."""
    end_with_parent()
    callbacks = [KillAt(int(kill_at))] if kill_at else []
    try:
        if resume:
            runs.resume(Path(folder), callbacks=callbacks)
        else:
            recipe = Recipe.from_dict(json.loads(Path(recipe_file).read_text(encoding="utf-8")))
            runs.train(recipe, Path(folder), callbacks=callbacks)
    except UserError as error:
        print(f"glassformer: {error}", file=sys.stderr, flush=True)
        os._exit(2)
    sys.stderr.flush()
    os._exit(0)  # past the thread that waits


def ending_in_order() -> AbstractContextManager[None]:
    """SIGTERM and SIGHUP unwind like Ctrl-C, so that children and temporary folders go too."""

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    return handled_by(leave, (signal.SIGTERM, signal.SIGHUP))


def in_a_fresh_process(recipe_file: Path, folder: Path, *, kill_at: int | None = None, resume: bool = False) -> None:
    """A training in a process of its own, killed at a step or resumed."""
    arguments = [str(recipe_file), str(folder), str(kill_at or ""), "yes" if resume else ""]
    command = [sys.executable, "-c", CHILD, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.read()
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    expected = 0 if kill_at is None else -signal.SIGKILL
    if code != expected:
        last = (said.strip().splitlines() or ["nothing was said"])[-1]
        raise UserError("a training process ended with {code} and not with {expected}: {last}", code, expected, last)


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


def differing_bits(a: Tensor, b: Tensor) -> int:
    """How many bits of two tensors differ."""

    def raw(tensor: Tensor) -> np.ndarray:
        return tensor.contiguous().flatten().view(torch.uint8).numpy()

    return int(np.unpackbits(raw(a) ^ raw(b)).sum())


def compare_tensors(name: str, a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> ComparedPart:
    """Two sets of tensors by name, bit by bit."""
    differences, bits = [], 0
    for key in sorted(a.keys() | b.keys()):
        one, other = a.get(key), b.get(key)
        if one is None or other is None:
            differences.append(Difference(key, "is in one of the two only"))
        elif one.shape != other.shape or one.dtype != other.dtype:
            differences.append(
                Difference(key, f"is {one.dtype} {tuple(one.shape)} and {other.dtype} {tuple(other.shape)}")
            )
        elif here := differing_bits(one, other):
            bits += here
            furthest = float((one.double() - other.double()).abs().max())
            differences.append(Difference(key, f"{here:,} bits; at most {furthest:.3g} apart"))
    return ComparedPart(name, len(a.keys() | b.keys()), bits, differences)


def compare_values(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> ComparedPart:
    """Things that are not tensors; a value that differs counts by the bits of its JSON."""
    differences, bits = [], 0
    for key in sorted(a.keys() | b.keys()):
        one, other = (json.dumps(values.get(key)).encode() for values in (a, b))
        if one != other:
            width = max(len(one), len(other))
            padded = [np.frombuffer(text.ljust(width), np.uint8) for text in (one, other)]
            bits += int(np.unpackbits(padded[0] ^ padded[1]).sum())
            differences.append(Difference(key, f"{one.decode()[:60]} and {other.decode()[:60]}"))
    return ComparedPart(name, len(a.keys() | b.keys()), bits, differences)


def compare(one: RunFolder, other: RunFolder) -> list[ComparedPart]:
    """Two runs that should be the same, at their last checkpoints and in what they left behind."""
    steps = [run.latest_checkpoint() for run in (one, other)]
    if None in steps:
        raise UserError("{name} and {other} cannot be compared: one has no checkpoint", one.path, other.path)
    (a, state_a), (b, state_b) = (
        read_checkpoint(run.checkpoints.path(step or 0)) for run, step in zip((one, other), steps, strict=True)
    )

    def of(kind: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        found = [{n: t for n, t in c["training"].items() if n.startswith(f"{kind}/")} for c in (a, b)]
        return found[0], found[1]

    def progress(state: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in state.items() if k not in (*NOT_COMPARED, *POSITION)}

    def logged(run: RunFolder) -> dict[str, Any]:
        return {str(i): {k: v for k, v in m.items() if k != "clock"} for i, m in enumerate(run.metrics())}

    def in_snapshots(snapshots: Checkpoints) -> dict[str, Tensor]:
        return {
            f"{step}/{name}": tensor
            for step in snapshots.steps()
            for name, tensor in read_checkpoint(snapshots.path(step))[0]["model"].items()
        }

    parts = [compare_tensors("parameters", a["model"], b["model"]), compare_tensors("optimizer", *of("optimizer"))]
    if of("ema")[0]:
        parts.append(compare_tensors("moving average", *of("ema")))
    if one.snapshots.steps():
        parts.append(compare_tensors("snapshots", in_snapshots(one.snapshots), in_snapshots(other.snapshots)))
    parts += [
        compare_tensors("random state", *of("random")),
        compare_values("progress", progress(state_a), progress(state_b)),
        compare_values("place in the data", *({k: s[k] for k in POSITION} for s in (state_a, state_b))),
        compare_values("log, line by line", logged(one), logged(other)),
    ]
    if one.final.is_dir() or other.final.is_dir():
        finals = [read_checkpoint(run.final)[0]["model"] for run in (one, other)]
        parts.append(compare_tensors("final weights", finals[0], finals[1]))
    return parts


def verify_resume(
    recipe: Recipe, steps: int, folder: Path, say: Callable[[str], None] = lambda _: None
) -> list[ComparedPart]:
    """Trains both ways in `folder`, in fresh processes, and compares."""
    if steps < 2:
        raise UserError("--steps must be at least 2: there has to be something to lose between a save and the kill")
    recipe_file = folder / "recipe.json"
    recipe_file.write_text(json.dumps(with_steps(recipe, steps).to_dict()), encoding="utf-8")
    straight, resumed = folder / "straight", folder / "resumed"
    kill_at = steps + steps // 2
    say(_("training {steps} steps without a stop …", 2 * steps))
    in_a_fresh_process(recipe_file, straight)
    say(_("training again, killed at step {kill_at} …", kill_at))
    in_a_fresh_process(recipe_file, resumed, kill_at=kill_at)
    saved = RunFolder.open(resumed).latest_checkpoint()
    say(_("going on from step {saved} in a third process …", saved))
    in_a_fresh_process(recipe_file, resumed, resume=True)
    return compare(RunFolder.open(straight), RunFolder.open(resumed))
