"""Is an RNN serial and forgetful, and what did attention add to it? LSTM without and with attention beside a Transformer."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from glassformer.lab.claims.lab import Fit, Letters, Strings, dates, exact_match, parameters, summed_loss, train_on
from glassformer.lab.claims.recurrent_translator import RecurrentTranslator
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.verdict import larger
from glassformer.lab.claims.words import Words
from glassformer.models import Transformer
from glassformer.plots.panels import BarPanel, LinePanel, panels

ARMS = {"lstm": "LSTM", "lstm+attention": "LSTM with attention", "transformer": "Transformer"}


def plan(effort: Effort) -> list[Settings]:
    """Copying over growing lengths, and dates."""
    return grid(effort, task=["copy"], length=effort.pick([8], [8, 16, 32]), arm=list(ARMS)) + grid(
        effort, task=["dates"], length=[0], arm=list(ARMS)
    )


def make(arm: str, vocabulary: int) -> nn.Module:
    """The model of an arm (transformer, LSTM, LSTM with attention), all at about the same number of parameters."""
    if arm == "transformer":
        return Transformer(
            n_layer=2, n_head=4, n_embd=64, n_hidden=192, vocab_size=vocabulary, block_size=72, dropout=0.0
        )
    return RecurrentTranslator(vocabulary, 128 if arm == "lstm" else 124, attends=arm != "lstm")


def gradient_over_time(model: nn.Module, length: int, seed: int) -> list[float]:
    """How much the score of the first target token depends on each source token: the size of that gradient."""
    task = Letters("copy", length, length)
    pairs = task.batch(16, torch.Generator().manual_seed(seed))
    kept: list[torch.Tensor] = []
    table = model.embedding if isinstance(model, RecurrentTranslator) else model.source_table  # type: ignore[union-attr]

    def keep(_: nn.Module, __: object, out: torch.Tensor) -> torch.Tensor:
        if not kept:
            out.retain_grad()
            kept.append(out)
        return out

    handle = table.register_forward_hook(keep)  # type: ignore[union-attr, arg-type]
    try:
        scores = model(pairs.source, pairs.target, pairs.source_lengths, pairs.target_lengths)[:, 0]
        scores.logsumexp(-1).sum().backward()
    finally:
        handle.remove()
    assert kept[0].grad is not None
    return kept[0].grad.norm(dim=-1).mean(0).tolist()  # type: ignore[no-any-return]


def trial(effort: Effort, task: str, length: int, arm: str, seed: int) -> Measured:
    """Train, count right answers, time a step, and see how far back the gradient reaches before training."""
    data: Letters | Strings = (
        Letters("copy", max(2, length // 2), length) if task == "copy" else dates(effort.steps(20_000))
    )
    model = make(arm, data.vocabulary)
    found: Measured = {"parameters": parameters(model)}
    if task == "copy":
        found["reach"] = gradient_over_time(model, length, seed)
        model.zero_grad()
    losses = train_on(model, data, Fit(effort.steps(900)), seed)
    pairs = data.batch(64, torch.Generator().manual_seed(7))
    began = time.perf_counter()
    for _ in range(5):
        summed_loss(model, pairs).backward()
    found |= {
        "accuracy": exact_match(model, data.test()),
        "loss": sum(losses[-20:]) / len(losses[-20:]),
        "step": (time.perf_counter() - began) / 5,
    }
    return found


def judge(results: Results) -> StudyResult:
    """Attention against none, Transformer against LSTM with attention, at each task."""
    conditions = []
    cases = [("copy", n) for n in results.options("length", task="copy")] + [("dates", 0)]
    for task, length in cases:
        name = f"{task} of up to {length} letters" if length else task
        named = f"复制至多 {length} 个字母" if length else "日期"
        own = {"task": task, "length": length}
        conditions += [
            larger(
                Words(f"{name}: attention makes the LSTM better", f"{named}：加注意力使 LSTM 更好"),
                results.values("accuracy", arm="lstm+attention", **own),
                results.values("accuracy", arm="lstm", **own),
                margin=5.0,
                unit="%",
                learned=20.0,
            ),
            larger(
                Words(
                    f"{name}: the Transformer is better than the LSTM with attention",
                    f"{named}：Transformer 优于带注意力的 LSTM",
                ),
                results.values("accuracy", arm="transformer", **own),
                results.values("accuracy", arm="lstm+attention", **own),
                margin=5.0,
                unit="%",
                learned=20.0,
            ),
        ]
    rows = tuple(
        (
            f"{task} {length or ''}".strip(),
            ARMS[arm],
            f"{results.mean('parameters', task=task, length=length, arm=arm):,.0f}",
            results.spoken("accuracy", 1, task=task, length=length, arm=arm),
            results.spoken("loss", 3, task=task, length=length, arm=arm),
            f"{1000 * results.mean('step', task=task, length=length, arm=arm):.0f} ms",
        )
        for task, length in cases
        for arm in ARMS
    )
    columns = ("task", "model", "parameters", "exact match %", "loss", "a step")
    return StudyResult((Table("Same steps, about the same size", columns, rows),), tuple(conditions))


def draw(results: Results) -> Any:
    """Accuracy by task, and the gradient of the first answer to each source token."""
    lengths = results.options("length", task="copy")
    groups = [f"copy {n}" for n in lengths] + ["dates"]
    bars = {
        name: [results.values("accuracy", task="copy", length=n, arm=arm) for n in lengths]
        + [results.values("accuracy", task="dates", arm=arm)]
        for arm, name in ARMS.items()
    }
    longest = lengths[-1]
    reach = {}
    for arm, name in ARMS.items():
        found = [m["reach"] for _, m in results.where(task="copy", length=longest, arm=arm)]
        reach[name] = (list(range(longest)), [[value / max(one) for value in one] for one in found])
    return panels(
        [
            BarPanel("after training", "exact match %", groups, bars),
            LinePanel(
                f"untrained: gradient of the first answer, {longest} letters",
                "source token",
                "share of the largest",
                reach,
                log="y",
            ),
        ],
        across=2,
    )


STUDY = Study(
    name="rnn",
    claim=Words(
        "A recurrent network is serial and forgets; attention mends that, and the Transformer is better still.",
        "循环网络只能串行且会遗忘；注意力弥补了这一点，Transformer 更好。",
    ),
    said_by="Bahdanau et al. 2015; Vaswani et al. 2017, 1",
    minutes=17,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
    version=2,
)
