"""What training a recipe will take here: counted where counting is exact, measured where it is not.

Memory is counted: weights, gradients and optimizer state exactly; activations are measured on one small step and scaled,
since they grow in proportion to the tokens of a micro-batch. Speed is measured by training for a few seconds on the
recipe's own data, in a folder that is thrown away.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from glassformer.config import VERSION, Recipe, UserError
from glassformer.data.prepare import complete_model, prepare
from glassformer.run_folder import RunFolder
from glassformer.runs import make_session, pick_device
from glassformer.train.screen import duration


def out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


@dataclass(frozen=True)
class Plan:
    device: str
    parameters: int
    non_embedding: int
    memory: float  # bytes
    available: float
    tokens_per_second: float
    steps: int
    step_tokens: float
    examples: int
    epoch_steps: float
    fits: bool
    advice: str

    def rows(self) -> list[tuple[str, str]]:
        seconds = self.steps * self.step_tokens / max(1.0, self.tokens_per_second)
        return [
            ("parameters", f"{self.parameters:,} ({self.non_embedding:,} without embeddings)"),
            ("data", f"{self.examples:,} examples; an epoch is {self.epoch_steps:,.0f} steps"),
            ("batch", f"{self.step_tokens:,.0f} target tokens a step"),
            ("memory", f"{self.memory / 2**30:.2f} GB of {self.available / 2**30:.1f} GB"),
            ("speed", f"{self.tokens_per_second:,.0f} target tokens/s, measured"),
            ("time", f"{duration(seconds)} for {self.steps:,} steps (validation apart)"),
        ]


def available_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info()[0])
    with open("/proc/meminfo") as file:
        facts = dict(line.split(":") for line in file)
    return float(facts["MemAvailable"].split()[0]) * 1024


def resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096.0


def make_plan(recipe: Recipe, seconds: float = 5.0) -> Plan:
    device = pick_device(recipe.train)
    with TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "plan", recipe, VERSION)
        texts = prepare(recipe, run.path)
        recipe = complete_model(recipe, texts)
        room = available_memory(device)
        session = make_session(run, recipe, texts)
        trainer, model = session.trainer, session.model
        trainer.watchers = []
        # Weights, gradients and two moments of Adam (or one of Muon), in float32.
        fixed = model.num_params() * 4 * 4.0
        session.model.train()
        try:
            before = resident() if device.type == "cpu" else float(torch.cuda.memory_allocated())
            trainer.step()  # the first step compiles, allocates and warms up
            trainer.step()
            began, tokens, steps = time.perf_counter(), trainer.progress.tokens, trainer.progress.step
            while time.perf_counter() - began < seconds and trainer.progress.step < recipe.train.steps:
                trainer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            spent = time.perf_counter() - began
            done = trainer.progress.tokens - tokens
            peak = resident() - before if device.type == "cpu" else float(torch.cuda.max_memory_allocated())
            memory = max(fixed, peak)
            fits, advice = memory < room, ""
            step_tokens = done / max(1, trainer.progress.step - steps)
            speed = done / spent
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            memory, fits, speed, step_tokens = room, False, 0.0, float(recipe.data.batch_tokens)
        finally:
            session.log.close()
        if not fits:
            share = max(1, 2 ** (int(memory / max(room, 1.0)).bit_length()))
            advice = (
                f"Try data.batch_tokens={recipe.data.batch_tokens // (2 * share)} or "
                f"train.accumulate={recipe.train.accumulate * 2 * share} (the same batch in more pieces)."
            )
        epoch = trainer.batches.epoch_length() / recipe.train.accumulate
        plan = Plan(
            torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads",
            model.num_params(),
            model.num_params(non_embedding=True),
            memory,
            room,
            speed,
            recipe.train.steps,
            step_tokens,
            len(getattr(trainer.batches, "kept", [])) or int(epoch),
            epoch,
            fits,
            advice,
        )
    return plan


def with_batch(recipe: Recipe, batch_tokens: int) -> Recipe:
    return replace(recipe, data=replace(recipe.data, batch_tokens=batch_tokens))


__all__ = ["Plan", "UserError", "make_plan", "out_of_memory", "with_batch"]
