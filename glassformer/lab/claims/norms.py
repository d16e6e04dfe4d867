"""Layer norm against batch norm, RMS norm and none; norm before the sublayer against after it."""

from __future__ import annotations

from typing import Any

from glassformer.lab.claims.claim import Budget, Measured
from glassformer.lab.claims.text import characters, drawn_rows, held_out_loss
from glassformer.lab.claims.training import Letters, TrainArgs, downsample, exact_match, train, train_on
from glassformer.models import GPT, Transformer

TASK, LONGER = Letters("sort", 2, 12), Letters("sort", 13, 16)
ROW = 64  # characters that a deep one reads


def kind_trial(budget: Budget, norm: str, batch: int, rate: float, seed: int) -> Measured:
    """Sorting letters with one kind of norm."""
    model = Transformer(
        n_layer=2, n_head=4, n_embd=64, vocab_size=TASK.vocabulary, block_size=32, dropout=0.0, norm=norm
    )
    losses = train_on(model, TASK, TrainArgs(budget.steps(800), rate=rate, batch=batch), seed)
    return {
        "accuracy": exact_match(model, TASK.test()),
        "longer": exact_match(model, LONGER.test()),
        "loss": sum(losses[-20:]) / len(losses[-20:]),
        "curve": downsample(losses),
    }


def order_trial(budget: Budget, pre: bool, depth: int, warmup: int, seed: int) -> Measured:
    """The next character of Python's source, norm before or after the sublayer; the loss is that of text held out."""
    model = GPT(
        n_layer=depth,
        n_head=4,
        n_embd=48,
        vocab_size=characters()[1],
        block_size=ROW,
        dropout=0.0,
        pre_norm=pre,
        final_norm=pre,
        scaled_init=False,
    )

    args = TrainArgs(budget.steps(300), warmup=round(warmup * min(1.0, budget.share)))
    losses = train(model, drawn_rows(model, 8, ROW, seed), args)
    return {"loss": held_out_loss(model, ROW, 200), "curve": downsample(losses)}


def trial(budget: Budget, part: str, seed: int, **settings: Any) -> Measured:
    """One training of either part."""
    return (kind_trial if part == "kind" else order_trial)(budget, seed=seed, **settings)
