"""Does quality grow with scale? The loss of small GPTs against their size and against their data, with a power law fitted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from glassformer.lab.claims.claim import Budget, Measured, Results
from glassformer.lab.claims.text import characters, drawn_rows, summed_loss_of
from glassformer.lab.claims.training import TrainArgs, parameters, train
from glassformer.models import GPT

BLOCK = 128
HELD_OUT = 64 * BLOCK


def trial(budget: Budget, part: str, width: int, tokens: int, seed: int) -> Measured:
    """The same number of steps for all; the loss on text that none has seen, at its best along the way."""
    text, vocabulary = characters()
    held = text[-HELD_OUT - 1 :].unfold(0, BLOCK + 1, BLOCK)
    seen = text[: min(tokens, len(text) - HELD_OUT - 1)]
    model = GPT(n_layer=3, n_head=4, n_embd=width, vocab_size=vocabulary, block_size=BLOCK, dropout=0.0)
    best: list[float] = []
    steps = budget.steps(900)

    def watch(step: int) -> None:
        if step % max(1, steps // 10) == 0 or step == steps:
            model.eval()
            with torch.no_grad():
                total, count = summed_loss_of(model, held)
            best.append(float(total) / count)
            model.train()

    train(model, drawn_rows(model, 16, BLOCK, seed, seen), TrainArgs(steps, rate=3e-3), watch)
    table = model.embedding.weight.numel()
    return {"loss": min(best), "parameters": parameters(model) - table}


def power_law(sizes: list[float], losses: list[float]) -> tuple[float, float]:
    """The exponent b of loss = a · size^-b by least squares on the logarithms, and the share of variance it explains.

    >>> b, fit = power_law([1.0, 10.0, 100.0], [2.0, 1.0, 0.5])
    >>> round(b, 3), round(fit, 3)
    (0.301, 1.0)
    """
    x, y = np.log(sizes), np.log(losses)
    slope, intercept = np.polyfit(x, y, 1)
    left = ((y - slope * x - intercept) ** 2).sum()
    whole = ((y - y.mean()) ** 2).sum()
    return float(-slope), float(1 - left / whole) if whole > 0 else 1.0


VARIED = {"size": "width", "data": "tokens"}


def points(results: Results, part: str) -> tuple[list[float], list[float]]:
    """Parameters (or characters) of each training, and its mean loss."""
    key = VARIED[part]
    values = results.options(key, part=part)
    sizes = [results.mean("parameters", part=part, **{key: v}) if part == "size" else float(v) for v in values]
    return sizes, [results.mean("loss", part=part, **{key: v}) for v in values]


def facts(results: Results) -> Measured:
    """The exponents of both laws, and whether they fit."""
    found: Measured = {}
    for part in VARIED:
        exponent, share = power_law(*points(results, part))
        found |= {f"{part}_exponent": exponent, f"{part}_share": share, f"{part}_fits": share >= 0.95}
    return found


def rows(results: Results) -> list[tuple[str, ...]]:
    """The loss of every size and every amount of data."""
    return [
        (part, f"{size:,.0f}", results.mean_std("loss", 3, part=part, **{key: value}))
        for part, key in VARIED.items()
        for value, size in zip(results.options(key, part=part), points(results, part)[0], strict=True)
    ]


def fitted_lines(results: Results, part: str) -> dict[str, Any]:
    """The picture everyone knows: measured losses, and a straight line on double logarithmic paper."""
    sizes, means = points(results, part)
    exponent, _ = power_law(sizes, means)
    middle, centre = (math.exp(float(np.mean(np.log(values)))) for values in (means, sizes))
    fitted = [[middle * (size / centre) ** -exponent for size in sizes]]
    measured = results.line("loss", VARIED[part], part=part)[1]
    return {"measured": (sizes, measured), f"x^-{exponent:.3f}": (sizes, fitted)}
