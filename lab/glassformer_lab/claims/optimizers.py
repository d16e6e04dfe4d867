"""Optimizers on the recipes people train: the same model, data and number of steps, each optimizer at its best rate."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.config import TrainConfig, read_recipe
from glassformer.evaluation.examples import held_out
from glassformer.evaluation.teacher_forced import teacher_forced
from glassformer.training.optim import schedule
from glassformer_lab.claims.claim import Budget, Measured

RECIPES = {
    "dates": "dates",
    "shakespeare": "shakespeare-char",
    "multi30k": "multi30k-en-de",
    "tatoeba": "tatoeba-en-zh",
}
# For AdamW, where a recipe takes another optimizer; of 2,400 steps of dates half were enough for AdamW, too.
ADAMW: dict[str, dict[str, Any]] = {
    "dates": {"steps": 1200},
    "shakespeare": {"steps": 1500, "warmup": 100},
    "tatoeba": {"steps": 5000, "learning_rate": 2e-3, "warmup": 1000},
}
MUON_RATE = 0.02
HELD_OUT = 2000  # examples of validation: half of them choose the rate, the other half judge


def for_adamw(corpus: str) -> TrainConfig:
    """How a corpus is trained with AdamW: by its recipe, unless that takes another optimizer."""
    return replace(read_recipe(RECIPES[corpus]).train, **ADAMW.get(corpus, {}))


def settings_of(corpus: str, optimizer: str, rate: float, steps: int, seed: int) -> dict[str, Any]:
    """A recipe's settings of training with another optimizer. `rate` multiplies AdamW's own, at its highest; it follows half
    a cosine, and nothing is averaged."""
    recipe = for_adamw(corpus)
    highest = schedule(recipe, read_recipe(RECIPES[corpus]).model.n_embd)(recipe.warmup)  # noam's is in no setting
    return {
        "optimizer": optimizer,
        "learning_rate": rate * highest,
        "muon_learning_rate": rate * MUON_RATE,
        "schedule": "cosine",
        "warmup": min(recipe.warmup, steps // 10),
        "steps": steps,
        "validate_every": steps,
        "validate_examples": 0,
        "metric": "loss",
        "save_every": steps,
        "average_last": 0,
        "ema": None,
        "seed": seed + 1,
    }


def trial(budget: Budget, corpus: str, optimizer: str, rate: float, share: float, seed: int) -> Measured:
    """The loss on held-out examples after a share of the recipe's steps."""
    from glassformer.api import train
    from glassformer_lab.reproduce.reproduction import begin_afresh

    begin_afresh()
    steps = budget.steps(round(share * for_adamw(corpus).steps))
    size: dict[str, Any] = {"size": max(500, budget.steps(100_000))} if corpus == "dates" else {}
    device = torch.get_default_device()
    with tempfile.TemporaryDirectory() as folder, torch.device("cpu"):  # what is prepared is made on the host
        how = settings_of(corpus, optimizer, rate, steps, seed)
        began = time.perf_counter()
        run = Path(folder) / "run"
        model = train(RECIPES[corpus], out=run, device=device.type, quiet=True, train=how, **size)
        seconds = time.perf_counter() - began
        batches = held_out(model, "val", HELD_OUT, run / "data").batches
        choosing, judging = (teacher_forced(model._model, batches[n::2], device).values["loss"] for n in (0, 1))
    return {"val": choosing, "loss": judging, "seconds": seconds}
