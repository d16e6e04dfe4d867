"""Do residual connections carry the gradient? Blocks with and without, over depth."""

from __future__ import annotations

from typing import Any

from glassformer.lab.claims.lab import Fit, gradient_norms, thinned, train
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.text import characters, drawn_rows, held_out_loss
from glassformer.lab.claims.verdict import larger, smaller
from glassformer.lab.claims.words import Words
from glassformer.models import GPT
from glassformer.plots.panels import LinePanel, panels

ROW = 64
NORMS = {"layer": ("with layer norm", "有层归一化"), "none": ("without any norm", "无归一化")}


def plan(effort: Effort) -> list[Settings]:
    """Depths, with and without residual connections."""
    return grid(effort, depth=effort.pick([2, 6], [1, 2, 4, 8, 12], [1, 2, 4, 8, 12, 24]), residual=[True, False])


def make(depth: int, residual: bool, norm: str) -> GPT:
    """A GPT that reads characters."""
    return GPT(
        n_layer=depth,
        n_head=4,
        n_embd=64,
        vocab_size=characters()[1],
        block_size=ROW,
        dropout=0.0,
        residual=residual,
        norm=norm,
    )


def trial(effort: Effort, depth: int, residual: bool, seed: int) -> Measured:
    """The gradient of each block before the first step, with and without norms, then a training with them."""
    found: Measured = {}
    for norm in ("none", "layer"):  # the last one is trained
        model = make(depth, residual, norm)
        total, count = drawn_rows(model, 8, ROW, seed)(0)
        (total / count).backward()
        gradients = gradient_norms(model, depth)
        found |= {f"gradients, {norm}": gradients, f"ratio, {norm}": gradients[0] / max(gradients[-1], 1e-30)}
        model.zero_grad(set_to_none=True)
    losses = train(model, drawn_rows(model, 8, ROW, seed), Fit(effort.steps(400)))
    return found | {"loss": held_out_loss(model, ROW, 200), "curve": thinned(losses)}


def judge(results: Results) -> StudyResult:
    """At every depth: the trained result; at the deepest: the gradient that reaches the first block."""
    depths = results.options("depth")
    conditions = [
        smaller(
            Words(f"{depth} blocks: learns better with residual connections", f"{depth} 层：有残差连接学得更好"),
            results.values("loss", depth=depth, residual=True),
            results.values("loss", depth=depth, residual=False),
            margin=0.02,
            unit=" nats",
        )
        for depth in depths
    ]
    deepest = depths[-1]
    for norm, words in NORMS.items():
        conditions.append(
            larger(
                Words(
                    f"{deepest} blocks, untrained, {words[0]}: the first block gets a larger share of the last one's gradient",
                    f"{deepest} 层，训练前，{words[1]}：第一层得到的梯度与最后一层之比更大",
                ),
                results.values(f"ratio, {norm}", depth=deepest, residual=True),
                results.values(f"ratio, {norm}", depth=deepest, residual=False),
                margin=0.1,
            )
        )
    rows = tuple(
        (
            str(depth),
            *(
                results.spoken(key, digits, depth=depth, residual=r)
                for key, digits in (("loss", 3), ("ratio, layer", 3), ("ratio, none", 4))
                for r in (True, False)
            ),
        )
        for depth in depths
    )
    columns = (
        "blocks",
        "loss, with",
        "without",
        "gradient first/last, with",
        "without",
        "gradient first/last without norms, with",
        "without",
    )
    return StudyResult(
        (Table("The next character of Python's source, held-out text", columns, rows),), tuple(conditions)
    )


def draw(results: Results) -> Any:
    """Loss over depth, gradient by block at the deepest, curves there."""
    depths, seeds = results.options("depth"), results.options("seed")
    names = {True: "with residual connections", False: "without"}

    def over_depth(residual: bool) -> tuple[list[int], list[list[float]]]:
        return depths, [[results.values("loss", depth=d, residual=residual, seed=s)[0] for d in depths] for s in seeds]

    deepest = depths[-1]
    by_block = {}
    curves = {}
    for residual, name in names.items():
        found = [m for _, m in results.where(depth=deepest, residual=residual)]
        for norm in NORMS:
            by_block[f"{name}, {'no' if norm == 'none' else norm} norm"] = (
                list(range(deepest)),
                [m[f"gradients, {norm}"] for m in found],
            )
        curves[name] = (list(range(min(len(m["curve"]) for m in found))), [m["curve"] for m in found])
    return panels(
        [
            LinePanel("after training", "blocks", "held-out loss", {n: over_depth(r) for r, n in names.items()}),
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
    version=2,
)
