"""Does dividing by √d_k keep the gradient alive? Softmax of random products, and trainings with and without."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.lab.claims.lab import Fit, Letters, exact_match, thinned, train_on
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.verdict import larger, smaller
from glassformer.lab.claims.words import Words
from glassformer.models import Transformer
from glassformer.nn.attention import attention_scores, masked_softmax
from glassformer.plots.panels import LinePanel, panels

TASK = Letters("reverse", 2, 12)


def plan(effort: Effort) -> list[Settings]:
    """Random products for every head size; trainings for a small, a usual and a large one, from two beginnings."""
    sizes = effort.pick([8, 512], [2, 8, 32, 128, 512])
    products = grid(effort, part=["products"], size=sizes, scaled=[True, False])
    heads = effort.pick([16], [16, 64, 256])
    starts = effort.pick(["xavier"], ["normal", "xavier"])
    return products + grid(effort, part=["training"], size=heads, scaled=[True, False], init=starts)


def trial(effort: Effort, part: str, size: int, scaled: bool, seed: int, init: str = "") -> Measured:
    """Either random queries and keys of unit variance, or a training."""
    if part == "products":
        q, k = torch.randn(500, 1, size), torch.randn(500, 10, size)
        scores = attention_scores(q, k, scaled=scaled)
        weights = masked_softmax(scores)
        slope = torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]
        return {
            "spread": float(scores.std()),
            "largest": float(weights.max(-1).values.mean()),
            "gradient": float(slope.norm(dim=(-2, -1)).mean()),
        }
    model = Transformer(
        n_layer=2,
        n_head=2,
        n_embd=64,
        head_size=size,
        vocab_size=TASK.vocabulary,
        block_size=32,
        dropout=0.0,
        scaled_attention=scaled,
        init=init,
    )
    losses = train_on(model, TASK, Fit(effort.steps(700)), seed)
    return {"accuracy": exact_match(model, TASK.test()), "curve": thinned(losses), "area": sum(losses) / len(losses)}


def judge(results: Results) -> StudyResult:
    """The softmax's gradient at the largest size, and the trained result at every head size."""
    largest = max(results.options("size", part="products"))
    conditions = [
        larger(
            Words(
                f"random products of {largest} numbers: the softmax lets through more gradient with 1/√d_k",
                f"随机点积（d_k = {largest}）：有 1/√d_k 时，softmax 传过的梯度更大",
            ),
            results.values("gradient", part="products", size=largest, scaled=True),
            results.values("gradient", part="products", size=largest, scaled=False),
            margin=0.05,
        )
    ]
    for init in results.options("init", part="training"):
        for size in results.options("size", part="training"):
            own = {"part": "training", "size": size, "init": init}
            conditions.append(
                smaller(
                    Words(
                        f"head size {size}, {init} beginning: learns faster with it (mean loss over training is lower)",
                        f"d_k = {size}，{init} 初始化：有它时学得更快（训练中平均损失更低）",
                    ),
                    results.values("area", scaled=True, **own),
                    results.values("area", scaled=False, **own),
                    margin=0.02,
                    unit=" nats",
                )
            )
    rows = [
        (
            str(size),
            *(
                results.spoken(key, 2, part="products", size=size, scaled=s)
                for key in ("spread", "largest", "gradient")
                for s in (True, False)
            ),
        )
        for size in results.options("size", part="products")
    ]
    heads = ("d_k", "std of scores, with", "without", "largest weight, with", "without", "gradient, with", "without")
    trained = [
        (
            init,
            str(size),
            *(
                results.spoken(key, digits, part="training", size=size, init=init, scaled=s)
                for key, digits in (("area", 3), ("accuracy", 1))
                for s in (True, False)
            ),
        )
        for init in results.options("init", part="training")
        for size in results.options("size", part="training")
    ]
    heads2 = ("init", "d_k", "mean loss, with", "without", "exact match %, with", "without")
    tables = (
        Table("Ten random keys of unit variance", heads, tuple(rows)),
        Table("Reversing letters, 2+2 layers", heads2, tuple(trained)),
    )
    return StudyResult(tables, tuple(conditions))


def draw(results: Results) -> Any:
    """Spread, largest weight and gradient over the head size, and the curves of training."""
    sizes = results.options("size", part="products")

    def line(key: str, scaled: bool) -> tuple[list[int], list[list[float]]]:
        seeds = results.options("seed", part="products")
        own = [
            [results.values(key, part="products", size=s, scaled=scaled, seed=seed)[0] for s in sizes] for seed in seeds
        ]
        return sizes, own

    names = {
        "spread": "standard deviation of scores",
        "largest": "largest of ten weights",
        "gradient": "gradient let through",
    }
    parts = [
        LinePanel(title, "d_k", "", {"with 1/√d_k": line(key, True), "without": line(key, False)}, log="x", bottom=0)
        for key, title in names.items()
    ]
    for init in results.options("init", part="training"):
        curves = {}
        for size in results.options("size", part="training"):
            for scaled in (True, False):
                own = results.where(part="training", size=size, scaled=scaled, init=init)
                found = [m["curve"] for _, m in own]
                curves[f"{size}, {'with' if scaled else 'without'}"] = (list(range(len(found[0]))), found)
        parts.append(LinePanel(f"training, {init} beginning", "training →", "loss", curves))
    return panels(parts)


STUDY = Study(
    name="scaling",
    claim=Words(
        "Without dividing by √d_k the softmax saturates for large heads and its gradient dies, so training suffers.",
        "若不除以 √d_k，头的维度大时 softmax 会饱和、梯度消失，训练因此受损。",
    ),
    said_by="Vaswani et al. 2017, 3.2.1, and nearly every tutorial",
    minutes=15,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
)
