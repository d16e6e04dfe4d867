"""Does quality grow with scale? The loss of small GPTs against their size and against their data, with a power law fitted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from glassformer.lab.claims.lab import Fit, parameters, train
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.text import characters, drawn_rows, summed_loss_of
from glassformer.lab.claims.verdict import exactly, smaller
from glassformer.lab.claims.words import Words
from glassformer.models import GPT
from glassformer.plots.panels import LinePanel, panels

BLOCK = 128
HELD_OUT = 64 * BLOCK


def plan(effort: Effort) -> list[Settings]:
    """Five widths on all the text; one width on five amounts of it."""
    widths = effort.pick([16, 32], [16, 32, 64, 96, 144], [16, 32, 64, 128, 192, 256])
    amounts = effort.pick([10_000, 100_000], [10_000, 30_000, 100_000, 300_000, 1_800_000])
    return grid(effort, part=["size"], width=widths, tokens=[1_800_000]) + grid(
        effort, part=["data"], width=[64 if 64 in widths else 32], tokens=amounts
    )


def trial(effort: Effort, part: str, width: int, tokens: int, seed: int) -> Measured:
    """The same number of steps for all; the loss on text that none has seen, at its best along the way."""
    text, vocabulary = characters()
    held = text[-HELD_OUT - 1 :].unfold(0, BLOCK + 1, BLOCK)
    seen = text[: min(tokens, len(text) - HELD_OUT - 1)]
    model = GPT(n_layer=3, n_head=4, n_embd=width, vocab_size=vocabulary, block_size=BLOCK, dropout=0.0)
    best: list[float] = []
    steps = effort.steps(900)

    def watch(step: int) -> None:
        if step % max(1, steps // 10) == 0 or step == steps:
            model.eval()
            with torch.no_grad():
                total, count = summed_loss_of(model, held)
            best.append(float(total) / count)
            model.train()

    train(model, drawn_rows(model, 16, BLOCK, seed, seen), Fit(steps, rate=3e-3), watch)
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


def judge(results: Results) -> StudyResult:
    """The largest against the smallest, and whether a straight line on double logarithmic paper fits."""
    conditions, rows = [], []
    for part, key in (("size", "width"), ("data", "tokens")):
        values = results.options(key, part=part)
        name = {"size": ("more parameters", "参数更多"), "data": ("more data", "数据更多")}[part]
        conditions.append(
            smaller(
                Words(f"{name[0]}: a lower loss", f"{name[1]}：损失更低"),
                results.values("loss", part=part, **{key: values[-1]}),
                results.values("loss", part=part, **{key: values[0]}),
                margin=0.1,
                unit=" nats",
            )
        )
        sizes = [results.mean("parameters", part=part, **{key: v}) if part == "size" else float(v) for v in values]
        means = [results.mean("loss", part=part, **{key: v}) for v in values]
        exponent, share = power_law(sizes, means)
        conditions.append(
            exactly(
                Words(f"{name[0]}: a power law fits (R² of at least 0.95)", f"{name[1]}：符合幂律（R² ≥ 0.95）"),
                share >= 0.95,
                f"loss ~ x^-{exponent:.3f}, R² = {share:.3f}",
            )
        )
        rows += [
            (part, f"{size:,.0f}", results.spoken("loss", 3, part=part, **{key: v}))
            for v, size in zip(values, sizes, strict=True)
        ]
    note = Words(
        "Parameters are counted without the embedding table; every training has the same number of steps, so the "
        "largest are the least finished.",
        "参数不含词嵌入；每次训练步数相同，因此最大的模型训练得最不充分。",
    )
    return StudyResult(
        (
            Table(
                "Python's source by the character", ("varied", "parameters or characters", "loss (nats)"), tuple(rows)
            ),
        ),
        tuple(conditions),
        (note,),
    )


def draw(results: Results) -> Any:
    """The picture everyone knows: straight lines on double logarithmic paper."""
    parts = []
    for part, key, label in (("size", "width", "parameters"), ("data", "tokens", "characters to learn from")):
        values, seeds = results.options(key, part=part), results.options("seed", part=part)
        sizes = [results.mean("parameters", part=part, **{key: v}) if part == "size" else float(v) for v in values]
        found = [[results.values("loss", part=part, seed=s, **{key: v})[0] for v in values] for s in seeds]
        exponent, _ = power_law(sizes, [results.mean("loss", part=part, **{key: v}) for v in values])
        middle = math.exp(float(np.mean(np.log([results.mean("loss", part=part, **{key: v}) for v in values]))))
        centre = math.exp(float(np.mean(np.log(sizes))))
        fitted = [[middle * (size / centre) ** -exponent for size in sizes]]
        parts.append(
            LinePanel(
                f"loss over {label}",
                label,
                "loss (nats)",
                {"measured": (sizes, found), f"x^-{exponent:.3f}": (sizes, fitted)},
                log="xy",
            )
        )
    return panels(parts, across=2)


STUDY = Study(
    name="scale",
    claim=Words("Quality grows with parameters and with data, along a power law.", "质量随参数量和数据量按幂律增长。"),
    said_by="Kaplan et al. 2020; Hoffmann et al. 2022",
    minutes=15,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
)
