"""Does quality grow with scale, along a law that foretells larger sizes? The loss of small GPTs over their parameters, tokens in
proportion, and over the text they may learn from."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassformer.models import GPT
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.training import TrainArgs, characters, held_out, parameters, text_loss, train

BLOCK, ROWS = 128, 32
A_PARAMETER = 40  # characters to learn from
FORETOLD = 2  # the largest sizes, which no law is fitted to


def trial(budget: Budget, part: str, width: int, tokens: int, seed: int) -> Measured:
    """Steps in proportion to the parameters, at a rate that falls with the width (as one over it: Yang et al. 2021); the loss on
    text that none has seen."""
    text, vocabulary = characters()
    model = GPT(n_layer=3, n_head=4, n_embd=width, vocab_size=vocabulary, block_size=BLOCK, dropout=0.0)
    size = parameters(model) - model.embedding.weight.numel()
    steps = budget.steps(A_PARAMETER * size // (BLOCK * ROWS))
    args = TrainArgs(steps, rate=3e-3 * min(1.0, 64 / width), warmup=max(1, steps // 10))
    train(model, text_loss(model, ROWS, BLOCK, seed, text[: min(tokens, int(0.9 * len(text)))]), args)
    return held_out(model, BLOCK, 400, seed) | {"parameters": size}


def power_law(sizes: list[float], losses: list[float]) -> tuple[float, float, float]:
    """The floor, the factor and the exponent of loss = floor + a · size^-b: least squares on the logarithms for every floor
    from 0 to the lowest loss, and of those the nearest.

    >>> [round(one, 3) for one in power_law([1.0, 10.0, 100.0, 1000.0], [2.0, 1.5, 1.25, 1.125])]
    [1.0, 1.0, 0.301]
    """
    x = np.log(sizes)
    best: tuple[float, float, float, float] | None = None
    for floor in np.linspace(0.0, min(losses), 2000, endpoint=False):
        slope, intercept = np.polyfit(x, np.log(np.array(losses) - floor), 1)
        far = float(((floor + np.exp(intercept + slope * x) - losses) ** 2).sum())
        if best is None or far < best[0]:
            best = far, float(floor), float(np.exp(intercept)), float(-slope)
    assert best is not None
    return best[1:]


VARIED = {"size": "width", "data": "tokens"}


def points(results: Results, part: str, **seed: int) -> tuple[list[float], list[float]]:
    """Parameters (or characters) of each training, and its loss: of one seed, or the mean."""
    key = VARIED[part]
    values = results.options(key, part=part)
    sizes = [results.mean("parameters", part=part, **{key: v}) if part == "size" else float(v) for v in values]
    return sizes, [results.mean("loss", part=part, **{key: v}, **seed) for v in values]


def facts(results: Results) -> Measured:
    """The law of either part, fitted to all but the largest sizes, for each seed, and how far off those are."""
    found: Measured = {}
    for part in VARIED:
        errors: list[list[float]] = []
        for seed in results.options("seed", part=part):
            sizes, losses = points(results, part, seed=seed)
            kept = max(2, len(sizes) - FORETOLD)
            floor, a, b = power_law(sizes[:kept], losses[:kept])
            errors.append(
                [abs(floor + a * x**-b - y) for x, y in zip(sizes[kept:], losses[kept:], strict=True)] or [0.0]
            )
        floor, a, b = power_law(*(one[:kept] for one in points(results, part)))
        found |= {f"{part}_floor": floor, f"{part}_factor": a, f"{part}_exponent": b, f"{part}_kept": kept}
        found |= {f"{part}_errors": [max(own) for own in errors]}
    return found


def rows(results: Results) -> list[tuple[str, ...]]:
    """The loss of every size and every amount of data, and what the law says of it."""
    told = facts(results)
    found: list[tuple[str, ...]] = []
    for part, key in VARIED.items():
        floor, a, b, kept = (told[f"{part}_{name}"] for name in ("floor", "factor", "exponent", "kept"))
        for number, (value, size) in enumerate(
            zip(results.options(key, part=part), points(results, part)[0], strict=True)
        ):
            law = f"{floor + a * size**-b:.3f}" + (" (foretold)" if number >= kept else "")
            found.append((part, f"{size:,.0f}", results.mean_std("loss", 3, part=part, **{key: value}), law))
    return found


def fitted_lines(results: Results, part: str) -> dict[str, Any]:
    """Measured losses, and the law that was fitted to all but the largest sizes."""
    sizes = points(results, part)[0]
    told = facts(results)
    floor, a, b = (told[f"{part}_{name}"] for name in ("floor", "factor", "exponent"))
    law = [[floor + a * size**-b for size in sizes]]
    measured = results.line("loss", VARIED[part], part=part)[1]
    return {"measured": (sizes, measured), f"{floor:.2f} + {a:.2f} · x^-{b:.2f}": (sizes, law)}
