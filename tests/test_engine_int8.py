"""Weights of 8 bits cost next to nothing in quality, measured on models that have really learned their task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.evaluate import Scores
from glassformer.studies.score import score_split
from tests.counts import count

ROOT = Path(__file__).parents[1]


def train(recipe: str, out: Path, steps: int, *settings: str) -> Path:
    """In a process of its own, which does not check shapes and is quicker for it."""
    given = [f"train.{name}={steps}" for name in ("steps", "validate_every", "save_every")]
    given += ["train.optimizer=muon", "train.threads=1", "train.validate_examples=10", *settings]
    command = [sys.executable, "-m", "glassformer", "train", recipe, "--out", str(out), *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def scores(run: Path, engine: str, limit: int) -> dict[str, float]:
    found: Scores = score_split(run, "test", engine=engine, limit=limit)[0]
    return found.values


@pytest.mark.slow
def test_exact_match_on_dates_is_that_of_full_weights(tmp_path: Path) -> None:
    """Within 0.2 points. Caught: one scale for a whole matrix, inputs rounded to 7 bits where 8 would do, a bias that is
    rounded too: each costs dates."""
    run = train("dates", tmp_path / "dates", count(fast=500, soak=2400), "data.batch_tokens=704", "data.size=30000")
    dates = 1000
    full, eight = (scores(run, engine, dates)["exact_match"] for engine in ("plain", "int8"))
    print(f"dates: exact match {full:.2f} with full weights, {eight:.2f} with int8")
    assert full > 93  # or there would be little to lose
    assert eight == pytest.approx(full, abs=0.2 + 1e-9)


@pytest.mark.slow
def test_bleu_on_sentences_is_that_of_full_weights(tmp_path: Path) -> None:
    """Within 0.2 BLEU, on held-out sentences from German to English."""
    sizes = ["model.n_embd=64", "model.n_hidden=256", "data.batch_tokens=1024", "data.size=20000"]
    rates = ["train.learning_rate=1e-2", "train.warmup=40"]
    run = train("phrases-de-en", tmp_path / "phrases", count(fast=300, soak=2000), *sizes, *rates)
    full, eight = (scores(run, engine, count(fast=400, soak=1000))["bleu"] for engine in ("plain", "int8"))
    print(f"phrases: BLEU {full:.2f} with full weights, {eight:.2f} with int8")
    assert full > 80
    assert eight == pytest.approx(full, abs=0.2)
