"""Do residual connections carry the gradient? Blocks with and without, over depth."""

from __future__ import annotations

from typing import Any

from glassformer.models import GPT
from glassformer.plots.panels import LinePanel, panels
from glassformer.studies.claims.lab import Fit, Letters, exact_match, gradient_norms, summed_loss, thinned, train_on
from glassformer.studies.claims.study import Effort, Finding, Measured, Results, Settings, Study, Table, grid
from glassformer.studies.claims.verdict import larger
from glassformer.studies.claims.words import Words

TASK = Letters("reverse", 2, 8)


def plan(effort: Effort) -> list[Settings]:
    """Depths, with and without residual connections."""
    return grid(effort, depth=effort.pick([2, 6], [1, 2, 4, 8, 12], [1, 2, 4, 8, 12, 24]), residual=[True, False])


def trial(effort: Effort, depth: int, residual: bool, seed: int) -> Measured:
    """The gradient of each block before the first step, then a training."""
    import torch

    model = GPT(
        n_layer=depth, n_head=4, n_embd=64, vocab_size=TASK.vocabulary, block_size=32, dropout=0.0, residual=residual
    )
    pairs = TASK.batch(64, torch.Generator().manual_seed(seed))
    (summed_loss(model, pairs) / pairs.tokens).backward()
    first = gradient_norms(model, depth)
    model.zero_grad(set_to_none=True)
    losses = train_on(model, TASK, Fit(effort.steps(600)), seed)
    return {
        "gradients": first,
        "ratio": first[0] / max(first[-1], 1e-30),
        "accuracy": exact_match(model, TASK.test()),
        "loss": sum(losses[-20:]) / len(losses[-20:]),
        "curve": thinned(losses),
    }


def judge(results: Results) -> Finding:
    """At every depth: the trained result; at the deepest: the gradient that reaches the first block."""
    depths = results.options("depth")
    conditions = [
        larger(
            Words(f"{depth} blocks: more right answers with residual connections", f"{depth} 层：有残差连接时答对更多"),
            results.values("accuracy", depth=depth, residual=True),
            results.values("accuracy", depth=depth, residual=False),
            margin=5.0,
            unit="%",
            learned=30.0,
        )
        for depth in depths
    ]
    deepest = depths[-1]
    conditions.append(
        larger(
            Words(
                f"{deepest} blocks, before training: the first block gets a larger share of the last one's gradient",
                f"{deepest} 层，训练前：第一层得到的梯度与最后一层之比更大",
            ),
            results.values("ratio", depth=deepest, residual=True),
            results.values("ratio", depth=deepest, residual=False),
            margin=0.1,
        )
    )
    rows = tuple(
        (
            str(depth),
            *(
                results.spoken(key, digits, depth=depth, residual=r)
                for key, digits in (("accuracy", 1), ("loss", 3), ("ratio", 3))
                for r in (True, False)
            ),
        )
        for depth in depths
    )
    columns = (
        "blocks",
        "exact match %, with",
        "without",
        "loss, with",
        "without",
        "gradient first/last, with",
        "without",
    )
    return Finding((Table("A GPT that reverses letters", columns, rows),), tuple(conditions))


def draw(results: Results) -> Any:
    """Accuracy over depth, gradient by block at the deepest, curves there."""
    depths, seeds = results.options("depth"), results.options("seed")
    names = {True: "with residual connections", False: "without"}

    def over_depth(residual: bool) -> tuple[list[int], list[list[float]]]:
        return depths, [
            [results.values("accuracy", depth=d, residual=residual, seed=s)[0] for d in depths] for s in seeds
        ]

    deepest = depths[-1]
    by_block = {}
    curves = {}
    for residual, name in names.items():
        found = [m for _, m in results.where(depth=deepest, residual=residual)]
        by_block[name] = (list(range(deepest)), [m["gradients"] for m in found])
        curves[name] = (list(range(min(len(m["curve"]) for m in found))), [m["curve"] for m in found])
    return panels(
        [
            LinePanel(
                "after training", "blocks", "exact match %", {n: over_depth(r) for r, n in names.items()}, bottom=0
            ),
            LinePanel(f"gradient by block, {deepest} blocks, untrained", "block", "norm", by_block, log="y"),
            LinePanel(f"training of {deepest} blocks", "training →", "loss", curves),
        ]
    )


STUDY = Study(
    name="residuals",
    claim=Words(
        "Residual connections carry the gradient; without them a deep stack does not train.",
        "残差连接传递梯度；没有它，深层堆叠无法训练。",
    ),
    said_by="He et al. 2016; every tutorial's Add & Norm",
    minutes=6,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
)
