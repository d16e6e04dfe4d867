"""Layer norm against batch norm, RMS norm and none; norm before the sublayer against after it."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.models import GPT, Transformer
from glassformer_lab.claims.claim import Budget, Measured
from glassformer_lab.claims.text import characters, drawn_rows, held_out
from glassformer_lab.claims.training import (
    Letters,
    TrainArgs,
    downsample,
    exact_match,
    held_out_scores,
    small,
    summed_loss,
    train,
    train_on,
)

TASK, LONGER = Letters("sort", 2, 12), Letters("sort", 13, 16)
ROW = 128  # characters that a deep one reads


def kind_trial(budget: Budget, norm: str, batch: int, rate: float, seed: int) -> Measured:
    """Sorting letters with one kind of norm. Scores are those of evaluation, where batch norm has the statistics it gathered;
    `gap` is how much worse its loss is there than with the statistics of the rows themselves, as in training."""
    model = small(Transformer, n_layer=2, vocab_size=TASK.vocabulary, block_size=32, norm=norm)
    losses = train_on(model, TASK, TrainArgs(budget.steps(800), rate=rate, batch=batch), seed)
    found: Measured = held_out_scores(model, TASK, seed) | {"longer": exact_match(model, LONGER.test(500, seed))}
    test = TASK.test(500, seed)
    with torch.no_grad():
        in_training = float(summed_loss(model.train(), test)) / test.tokens
    return found | {"gap": found["loss"] - in_training, "curve": downsample(losses)}


def order_trial(budget: Budget, pre: bool, depth: int, warmup: int, rate: float, seed: int) -> Measured:
    """The next character of Python's source, norm before or after the sublayer; the loss is that of text held out."""
    norms = {"pre_norm": pre, "final_norm": pre, "scaled_init": False}
    model = small(GPT, n_layer=depth, vocab_size=characters()[1], block_size=ROW, **norms)
    args = TrainArgs(budget.steps(1000), rate=rate, warmup=round(warmup * min(1.0, budget.share)))
    losses = train(model, *drawn_rows(model, 32, ROW, seed), args)
    return held_out(model, ROW, 200, seed) | {"curve": downsample(losses)}


def trial(budget: Budget, part: str, seed: int, **settings: Any) -> Measured:
    """One training of either part."""
    return (kind_trial if part == "kind" else order_trial)(budget, seed=seed, **settings)
