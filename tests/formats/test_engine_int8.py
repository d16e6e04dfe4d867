"""Weights of 8 bits cost next to nothing in quality, measured on models that have really learned their task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import call
from tests.counts import count

# Commands, not functions: a process of its own does not check shapes, and is quicker for it.


def train(recipe: str, out: Path, steps: int, *settings: str) -> Path:
    given = [f"train.{name}={steps}" for name in ("steps", "validate_every", "save_every")]
    given += ["train.optimizer=muon", "train.threads=1", "train.validate_examples=10", *settings]
    done = call("train", recipe, "--out", out, *given)
    assert done.returncode == 0, done.stderr
    return out


def scores(run: Path, engine: str, limit: int) -> dict[str, float]:
    done = call("evaluate", run, "--split", "test", "--engine", engine, "--limit", limit, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_bleu_on_sentences_is_that_of_full_weights(tmp_path: Path) -> None:
    """Within 0.2 BLEU, on held-out sentences from German to English."""
    sizes = ["model.n_embd=64", "model.n_hidden=256", "data.batch_tokens=1024", "data.size=20000"]
    rates = ["train.learning_rate=1e-2", "train.warmup=40"]
    run = train("phrases-de-en", tmp_path / "phrases", count(fast=300, soak=2000), *sizes, *rates)
    full, eight = (scores(run, engine, count(fast=400, soak=1000))["bleu"] for engine in ("fast", "int8"))
    print(f"phrases: BLEU {full:.2f} with full weights, {eight:.2f} with int8")
    assert full > 80
    assert eight == pytest.approx(full, abs=0.2)
