"""Cheaper than attention: a window, linear attention, and a hybrid of linear and full layers, on long copying and on text."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from glassformer.lab.claims.lab import Fit, Letters, exact_match, train, train_on
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.text import characters, drawn_rows, held_out_loss
from glassformer.lab.claims.verdict import within
from glassformer.lab.claims.words import Words
from glassformer.models import GPT
from glassformer.nn.linear_attention import LinearAttention
from glassformer.plots.panels import BarPanel, panels

BLOCK = 256
WINDOW = 16


def make(kind: str, vocabulary: int) -> GPT:
    """A GPT of four blocks: full attention, a window, linear attention, or linear but for one block in four."""
    window = WINDOW if kind == "window" else None
    model = GPT(
        n_layer=4,
        n_head=4,
        n_embd=64,
        vocab_size=vocabulary,
        block_size=BLOCK,
        dropout=0.0,
        positions="rotary",
        window=window,
    )
    for number, block in enumerate(model.decoder.layers):
        if kind == "linear" or (kind == "hybrid" and number != 2):
            linear = LinearAttention(64, 4)
            linear.load_state_dict(block.attention.state_dict())
            block.attention = linear
    return model


def trial(effort: Effort, kind: str, task: str, length: int, seed: int) -> Measured:
    """Copying rows of so many letters, or the next character of Python's source."""
    if task == "copy":
        letters = Letters("copy", length, length)
        model = make(kind, letters.vocabulary)
        began = time.perf_counter()
        losses = train_on(model, letters, Fit(effort.steps(500), batch=32, muon=0.02), seed)
        return {
            "accuracy": exact_match(model, letters.test(200)),
            "loss": sum(losses[-20:]) / len(losses[-20:]),
            "step": (time.perf_counter() - began) / len(losses),
        }
    model = make(kind, characters()[1])
    began = time.perf_counter()
    losses = train(model, drawn_rows(model, 8, BLOCK, seed), Fit(effort.steps(400), rate=3e-3, muon=0.02))
    step = (time.perf_counter() - began) / len(losses)
    return {"loss": held_out_loss(model, BLOCK, 64), "step": step}


def plan_of(kind: str) -> Callable[[Effort], list[Settings]]:
    """Full attention and the other kind, on two lengths of copying and on text."""

    def plan(effort: Effort) -> list[Settings]:
        lengths = effort.pick([8], [12, 48])
        return grid(effort, task=["copy"], length=lengths, kind=["full", kind]) + grid(
            effort, task=["text"], length=[0], kind=["full", kind]
        )

    return plan


def judge_of(kind: str, name: Words) -> Callable[[Results], StudyResult]:
    """Whether the cheaper kind is as good: full attention is not better by what matters."""

    def judge(results: Results) -> StudyResult:
        conditions = []
        for length in results.options("length", task="copy"):
            own = {"task": "copy", "length": length}
            full, other = results.values("accuracy", kind="full", **own), results.values("accuracy", kind=kind, **own)
            conditions.append(
                within(
                    Words(
                        f"copying {length} letters: {name.en} comes within 5 points of full attention",
                        f"复制 {length} 个字母：{name.zh}与完全注意力相差不到 5 个百分点",
                    ),
                    other,
                    full,
                    slack=5.0,
                    unit="%",
                    learned=30.0,
                )
            )
        full, other = results.values("loss", task="text", kind="full"), results.values("loss", task="text", kind=kind)
        conditions.append(
            within(
                Words(
                    f"Python's source: {name.en} comes within 0.03 nats of full attention",
                    f"Python 源码：{name.zh}与完全注意力相差不到 0.03 nats",
                ),
                other,
                full,
                slack=0.03,
                unit=" nats",
                less_is_better=True,
            )
        )
        rows = []
        for task, length in [("copy", n) for n in results.options("length", task="copy")] + [("text", 0)]:
            for one in ("full", kind):
                own = {"task": task, "length": length, "kind": one}
                score = results.spoken("accuracy", 1, **own) if task == "copy" else "–"
                rows.append(
                    (
                        f"{task} {length or ''}".strip(),
                        one,
                        score,
                        results.spoken("loss", 3, **own),
                        f"{1000 * results.mean('step', **own):.0f} ms",
                    )
                )
        return StudyResult(
            (Table("A GPT of four blocks", ("task", "attention", "exact match %", "loss", "a step"), tuple(rows)),),
            tuple(conditions),
        )

    return judge


def draw_of(kind: str) -> Callable[[Results], Any]:
    """Accuracy and loss of both kinds."""

    def draw(results: Results) -> Any:
        lengths = results.options("length", task="copy")
        copied = {
            one: [results.values("accuracy", task="copy", length=n, kind=one) for n in lengths]
            for one in ("full", kind)
        }
        text = {one: [results.values("loss", task="text", kind=one)] for one in ("full", kind)}
        return panels(
            [
                BarPanel("copying", "exact match %", [f"{n} letters" for n in lengths], copied),
                BarPanel("Python's source", "loss", ["held out"], text),
            ],
            across=2,
        )

    return draw


def study_of(kind: str, name: Words, claim: Words, said_by: str) -> Study:
    """One of the three studies."""
    return Study(
        name=kind,
        claim=claim,
        said_by=said_by,
        minutes=9,
        plan=plan_of(kind),
        trial=trial,
        judge=judge_of(kind, name),
        draw=draw_of(kind),
        version=2,
    )


WINDOWED = study_of(
    "window",
    Words(f"a window of {WINDOW}", f"宽度 {WINDOW} 的窗口"),
    Words("Attention can be restricted to a neighbourhood at little loss.", "注意力可以限制在邻域内而损失很小。"),
    "Vaswani et al. 2017, 4 (restricted self-attention); Beltagy et al. 2020",
)
LINEAR = study_of(
    "linear",
    Words("linear attention", "线性注意力"),
    Words(
        "Linear attention does what softmax attention does, at a cost that grows with the length only.",
        "线性注意力能做到 softmax 注意力所做的，而代价只随长度线性增长。",
    ),
    "Katharopoulos et al. 2020",
)
HYBRID = study_of(
    "hybrid",
    Words("one full layer among linear ones", "线性层中夹一层完全注意力"),
    Words(
        "A few layers of full attention among linear ones recover what linear attention loses.",
        "在线性层中加入少数完全注意力层即可补回损失。",
    ),
    "hybrid models since 2023, such as Jamba (Lieber et al. 2024)",
)
