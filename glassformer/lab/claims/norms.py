"""Layer norm against batch norm, RMS norm and none; norm before the sublayer against after it."""

from __future__ import annotations

from typing import Any

from glassformer.lab.claims.lab import Fit, Letters, exact_match, thinned, train, train_on
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.text import characters, drawn_rows, held_out_loss
from glassformer.lab.claims.verdict import Condition, larger, smaller
from glassformer.lab.claims.words import Words
from glassformer.models import GPT, Transformer
from glassformer.plots.panels import BarPanel, LinePanel, panels

TASK, LONGER = Letters("sort", 2, 12), Letters("sort", 13, 16)
ROW = 64  # characters that a deep one reads
KINDS = ["layer", "rms", "batch", "none"]


def plan(effort: Effort) -> list[Settings]:
    """Kinds of norm over batch sizes, and over learning rates at the second of them; orders of norm over depth, with and
    without warm-up."""
    sizes, rates = effort.pick([4], [2, 8, 64]), effort.pick([2e-3], [2e-3, 5e-4, 8e-3])
    kinds = grid(effort, part=["kind"], norm=KINDS, batch=sizes, rate=rates[:1])
    kinds += grid(effort, part=["kind"], norm=KINDS, batch=sizes[1:2], rate=rates[1:])
    depths = effort.pick([2, 6], [2, 6, 12, 24])
    return kinds + grid(effort, part=["order"], pre=[True, False], depth=depths, warmup=[0, 100])


def kind_trial(effort: Effort, norm: str, batch: int, rate: float, seed: int) -> Measured:
    """Sorting letters with one kind of norm."""
    model = Transformer(
        n_layer=2, n_head=4, n_embd=64, vocab_size=TASK.vocabulary, block_size=32, dropout=0.0, norm=norm
    )
    losses = train_on(model, TASK, Fit(effort.steps(800), rate=rate, batch=batch), seed)
    return {
        "accuracy": exact_match(model, TASK.test()),
        "longer": exact_match(model, LONGER.test()),
        "loss": sum(losses[-20:]) / len(losses[-20:]),
        "curve": thinned(losses),
    }


def order_trial(effort: Effort, pre: bool, depth: int, warmup: int, seed: int) -> Measured:
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

    fit = Fit(effort.steps(300), warmup=round(warmup * min(1.0, effort.share)))
    losses = train(model, drawn_rows(model, 8, ROW, seed), fit)
    return {"loss": held_out_loss(model, ROW, 200), "curve": thinned(losses)}


def trial(effort: Effort, part: str, seed: int, **settings: Any) -> Measured:
    """One training of either part."""
    return (kind_trial if part == "kind" else order_trial)(effort, seed=seed, **settings)


def conditions_of(results: Results) -> list[Condition]:
    """Layer norm against each other kind at each batch size, on longer rows and at each rate; pre-norm at each depth."""
    found = []
    rate = results.options("rate", part="kind", norm="layer", batch=results.options("batch", part="kind")[0])[0]
    for batch in results.options("batch", part="kind"):
        found.append(
            smaller(
                Words(
                    f"batches of {batch}: layer norm learns better than batch norm",
                    f"批大小 {batch}：层归一化优于批归一化",
                ),
                results.values("loss", part="kind", norm="layer", batch=batch, rate=rate),
                results.values("loss", part="kind", norm="batch", batch=batch, rate=rate),
                margin=0.02,
                unit=" nats",
            )
        )
    largest = results.options("batch", part="kind")[-1]
    found.append(
        larger(
            Words(
                "rows longer than in training: layer norm is better than batch norm",
                "比训练更长的序列：层归一化优于批归一化",
            ),
            results.values("longer", part="kind", norm="layer", batch=largest, rate=rate),
            results.values("longer", part="kind", norm="batch", batch=largest, rate=rate),
            margin=2.0,
            unit="%",
            learned=5.0,
        )
    )
    for depth in results.options("depth", part="order"):
        for warmup in results.options("warmup", part="order"):
            own = {"part": "order", "depth": depth, "warmup": warmup}
            warm = ("with warm-up", "有预热") if warmup else ("without warm-up", "无预热")
            found.append(
                smaller(
                    Words(
                        f"{depth} blocks {warm[0]}: pre-norm learns better than post-norm",
                        f"{depth} 层，{warm[1]}：前置归一化优于后置",
                    ),
                    results.values("loss", pre=True, **own),
                    results.values("loss", pre=False, **own),
                    margin=0.02,
                    unit=" nats",
                )
            )
    return found


def judge(results: Results) -> StudyResult:
    """A table for the kinds, one for the orders."""
    kinds = tuple(
        (
            str(batch),
            f"{rate:g}",
            *(results.spoken("accuracy", 1, part="kind", norm=kind, batch=batch, rate=rate) for kind in KINDS),
            *(results.spoken("longer", 1, part="kind", norm=kind, batch=batch, rate=rate) for kind in KINDS),
        )
        for batch in results.options("batch", part="kind")
        for rate in sorted(results.options("rate", part="kind", batch=batch))
    )
    orders = tuple(
        (
            str(depth),
            str(warmup),
            *(results.spoken("loss", 3, part="order", depth=depth, warmup=warmup, pre=pre) for pre in (True, False)),
        )
        for depth in results.options("depth", part="order")
        for warmup in results.options("warmup", part="order")
    )
    tables = (
        Table(
            "Sorting letters: exact match % at the trained lengths, and beyond",
            ("batch", "rate", *KINDS, *(f"{k}, longer" for k in KINDS)),
            kinds,
        ),
        Table(
            "Python's source by the character: loss on held-out text, norm before or after the sublayer",
            ("blocks", "warm-up, steps", "pre-norm", "post-norm"),
            orders,
        ),
    )
    return StudyResult(tables, tuple(conditions_of(results)))


def draw(results: Results) -> Any:
    """Kinds over batch size; loss of the two orders over depth."""
    sizes, depths = results.options("batch", part="kind"), results.options("depth", part="order")
    rate = results.options("rate", part="kind", norm="layer", batch=sizes[0])[0]
    bars = {
        kind: [results.values("accuracy", part="kind", norm=kind, batch=b, rate=rate) for b in sizes] for kind in KINDS
    }
    seeds = results.options("seed", part="order")
    lines = {}
    for pre, name in ((True, "pre-norm"), (False, "post-norm")):
        for warmup in results.options("warmup", part="order"):
            own = [
                [results.values("loss", part="order", pre=pre, depth=d, warmup=warmup, seed=s)[0] for d in depths]
                for s in seeds
            ]
            lines[f"{name}, warm-up {warmup}"] = (depths, own)
    return panels(
        [
            BarPanel("kinds of norm", "exact match %", [f"batch {b}" for b in sizes], bars),
            LinePanel("order and depth", "blocks", "loss at the end", lines),
        ],
        across=2,
    )


STUDY = Study(
    name="norms",
    claim=Words(
        "Layer norm beats batch norm for sequences, and pre-norm trains more easily than post-norm when deep or without warm-up.",
        "对序列而言层归一化优于批归一化；网络深或没有预热时，前置归一化比后置更易训练。",
    ),
    said_by="Ba et al. 2016; Xiong et al. 2020; every tutorial's comparison of the two norms",
    minutes=17,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
    version=2,
)
