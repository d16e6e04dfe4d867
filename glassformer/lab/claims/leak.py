"""The curve nobody shows: fresh random tokens cannot be predicted, so a loss below ln V proves that the answer leaks."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from glassformer.lab.claims.lab import Fit, thinned, train
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.verdict import exactly, smaller
from glassformer.lab.claims.words import Words
from glassformer.models import Transformer
from glassformer.nn.masks import cross_mask
from glassformer.nn.rows import as_rows
from glassformer.plots.panels import LinePanel, panels

WORDS, LENGTH, ROWS = 50, 12, 32
ARMS = {
    "right": "another text as source, causal mask",
    "no mask": "another text as source, no mask in the decoder",
    "same ids": "the same ids into encoder and decoder, causal mask",
    "both": "the same ids into both stacks, no mask (the tutorials' machine)",
}


def plan(effort: Effort) -> list[Settings]:
    """Each machine, each seed."""
    return grid(effort, arm=list(ARMS))


def loss_of(model: Transformer, source: Tensor, target: Tensor, labels: Tensor, *, causal: bool) -> Tensor:
    """The model's summed loss, with or without the mask that hides the future."""
    if causal:
        return model.loss(source, target, labels)
    queries, keys = as_rows(target, None), as_rows(source, None)
    memory = model.decoder.project_memory(model.encode(keys))
    inputs = model.block_inputs(queries, causal=False, cross_mask=cross_mask(queries, keys))
    x = model.embed_target(queries.tokens, queries.broadcast_positions, queries.n_positions, inputs.real)
    hidden = model.decoder(x, inputs, memory)
    return torch.nn.functional.cross_entropy(model.logits(hidden).flatten(0, 1), labels.flatten(), reduction="sum")


def trial(effort: Effort, arm: str, seed: int) -> Measured:
    """Trains to say the next of twelve random tokens; every batch is new, so nothing can be learned by heart."""
    model = Transformer(n_layer=2, n_head=4, n_embd=64, vocab_size=WORDS, block_size=LENGTH, dropout=0.0)
    draw = torch.Generator().manual_seed(seed)

    def loss(_: int) -> tuple[Tensor, int]:
        ids = torch.randint(WORDS, (ROWS, LENGTH + 1), generator=draw)
        other = torch.randint(WORDS, (ROWS, LENGTH + 1), generator=draw)
        source = ids if arm in ("same ids", "both") else other
        labels = ids[:, 1:].contiguous()
        causal = arm in ("right", "same ids")
        return loss_of(
            model, source[:, :LENGTH].contiguous(), ids[:, :-1].contiguous(), labels, causal=causal
        ), labels.numel()

    losses = train(model, loss, Fit(effort.steps(1500)))
    tail = losses[-max(1, len(losses) // 20) :]
    return {"loss": sum(tail) / len(tail), "curve": thinned(losses)}


def judge(results: Results) -> StudyResult:
    """The honest machine stays at ln V; the others fall below it, which no honest one can."""
    chance = math.log(WORDS)
    lowest = min(results.values("loss", arm="right"))
    conditions = [
        exactly(
            Words("the right machine stays at ln V", "正确的模型停在 ln V"),
            abs(lowest - chance) < 0.05,
            f"{lowest:.3f}, ln V = {chance:.3f}",
        )
    ]
    for arm in list(ARMS)[1:]:
        conditions.append(
            smaller(
                Words(f"{ARMS[arm]}: falls below ln V, so the answer leaks", f"{ARMS[arm]}：低于 ln V，即答案泄漏"),
                results.values("loss", arm=arm),
                [chance] * len(results.values("loss", arm=arm)),
                margin=0.2,
                unit=" nats",
            )
        )
    rows = tuple((text, results.spoken("loss", 3, arm=arm), f"{chance:.3f}") for arm, text in ARMS.items())
    note = Words(
        "A loss that falls on such data says nothing of learning: the model copies what it should not see, and when it "
        "writes by itself there is nothing to copy.",
        "在这种数据上损失下降并不说明学到了东西：模型只是抄了不该看见的答案；自己生成时便无可抄。",
    )
    return StudyResult(
        (Table("Loss at the end (nats a token)", ("machine", "loss", "ln V"), rows),), tuple(conditions), (note,)
    )


def draw(results: Results) -> Any:
    """The four curves and ln V."""
    lines = {}
    for arm in ARMS:
        curves = results.where(arm=arm)
        lines[arm] = (list(range(len(curves[0][1]["curve"]))), [found["curve"] for _, found in curves])
    part = LinePanel(
        "fresh random tokens", "training →", "loss (nats a token)", lines, level=(math.log(WORDS), "ln V"), bottom=0
    )
    return panels([part])


STUDY = Study(
    name="leak",
    claim=Words(
        "Training with the same ids in both stacks and without a mask, as circulating code does, leaks the answer.",
        "如流传的代码那样，把同一串 id 送进编码器和解码器又不加掩码，会泄漏答案。",
    ),
    said_by="nobody: the code of several tutorials does it, and shows the falling loss",
    minutes=4,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
)
