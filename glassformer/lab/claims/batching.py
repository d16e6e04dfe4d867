"""What padding costs: batches at random, by length, and packed. Counted and timed."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from glassformer.lab.claims.lab import BEGIN, END, Strings, dates, phrases
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.verdict import larger
from glassformer.lab.claims.words import Words
from glassformer.models import Transformer
from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Rows
from glassformer.plots.panels import BarPanel, panels

TOKENS = 2048  # places of the target in a batch, padding included
WAYS = {
    "random": "in random order, padded",
    "by length": "like lengths together, padded",
    "packed": "several a row, packed",
}
Example = tuple[list[int], list[int]]


def plan(effort: Effort) -> list[Settings]:
    """Each way on each task."""
    return grid(effort, task=["dates", "phrases"], way=list(WAYS))


def examples_of(task: Strings, count: int, draw: torch.Generator) -> list[Example]:
    """So many pairs of token lists, in random order."""
    chosen = [task.train[i] for i in torch.randperm(len(task.train), generator=draw)[:count].tolist()]
    return [(task.ids(source), task.ids(target)) for source, target in chosen]


def cut(examples: list[Example]) -> list[list[Example]]:
    """Batches that fill TOKENS places when padded, each to its longest pair."""
    batches: list[list[Example]] = [[]]
    longest = 0
    for source, target in examples:
        longest = max(longest, len(source), len(target) + 1)
        if batches[-1] and longest * (len(batches[-1]) + 1) > TOKENS:
            batches.append([])
            longest = max(len(source), len(target) + 1)
        batches[-1].append((source, target))
    return batches


def pack(examples: list[Example], width: int) -> list[list[list[Example]]]:
    """Batches of rows of so many places, each row with as many pairs as fit (first fit)."""
    rows: list[tuple[list[Example], int, int]] = []
    done: list[list[Example]] = []
    for source, target in examples:
        for i, (own, s, t) in enumerate(rows):
            if s + len(source) <= width and t + len(target) + 1 <= width:
                rows[i] = ([*own, (source, target)], s + len(source), t + len(target) + 1)
                break
        else:
            rows.append(([(source, target)], len(source), len(target) + 1))
            if len(rows) > 16:
                done.append(rows.pop(0)[0])
    done += [own for own, _, _ in rows]
    size = max(1, TOKENS // width)
    return [done[i : i + size] for i in range(0, len(done), size)]


def as_rows(rows: list[list[Example]], width: int) -> tuple[Rows, Rows, Tensor]:
    """Sources, targets and labels of packed rows."""
    sources = Rows.pack([[source for source, _ in row] for row in rows], width)
    targets = Rows.pack([[[BEGIN, *target] for _, target in row] for row in rows], width)
    labels = torch.full((len(rows), width), IGNORE)
    for i, row in enumerate(rows):
        flat = [token for _, target in row for token in [*target, END]]
        labels[i, : len(flat)] = torch.tensor(flat)
    return sources, targets, labels


def trial(effort: Effort, task: str, way: str, seed: int) -> Measured:
    """Forward and backward passes over the same examples, laid out in one way."""
    data = dates(effort.steps(4000)) if task == "dates" else phrases(count=effort.steps(4000))
    draw = torch.Generator().manual_seed(seed)
    examples = examples_of(data, effort.steps(2000), draw)
    width = 128
    examples = [(s[:width], t[: width - 1]) for s, t in examples]
    if way == "packed":
        batches = [as_rows(rows, width) for rows in pack(examples, width)]
    else:
        ordered = sorted(examples, key=lambda one: (len(one[0]), len(one[1]))) if way == "by length" else examples
        batches = []
        for some in cut(ordered):
            longest = max(max(len(s), len(t) + 1) for s, t in some)
            batches.append(as_rows([[one] for one in some], longest))
    model = Transformer(n_layer=2, n_head=4, n_embd=64, vocab_size=data.vocabulary, block_size=width, dropout=0.0)
    places = sum(labels.numel() for *_, labels in batches)
    tokens = sum(int((labels != IGNORE).sum()) for *_, labels in batches)
    model.loss(*batches[0]).backward()
    spent = []
    for _ in range(5):  # the best of them, for the machine may be busy with something else at times
        began = time.perf_counter()
        for source, target, labels in batches:
            model.loss(source, target, labels).backward()
        spent.append(time.perf_counter() - began)
    return {"waste": 100 * (1 - tokens / places), "speed": tokens / min(spent), "batches": len(batches)}


def judge(results: Results) -> StudyResult:
    """Each way against random order."""
    conditions, rows = [], []
    for task in results.options("task"):
        for way in ("by length", "packed"):
            name = {"by length": "按长度分批", "packed": "打包"}[way]
            ours, theirs = results.values("speed", task=task, way=way), results.values("speed", task=task, way="random")
            ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
            text = Words(f"{task}, {way}: faster than random order", f"{task}，{name}：比随机顺序快")
            conditions.append(larger(text, ratios, [1.0] * len(ratios), margin=0.1, unit="x"))
        for way, text_of_way in WAYS.items():
            own = {"task": task, "way": way}
            rows.append((task, text_of_way, results.spoken("waste", 1, **own), f"{results.mean('speed', **own):,.0f}"))
    columns = ("task", "batches", "padding, % of places", "target tokens/s, forward and backward")
    return StudyResult((Table(f"{TOKENS} places a batch", columns, tuple(rows)),), tuple(conditions))


def draw(results: Results) -> Any:
    """Padding and speed."""
    tasks = results.options("task")
    waste = {way: [results.values("waste", task=t, way=way) for t in tasks] for way in WAYS}
    speed = {way: [results.values("speed", task=t, way=way) for t in tasks] for way in WAYS}
    return panels(
        [BarPanel("padding", "% of places", tasks, waste), BarPanel("speed", "target tokens/s", tasks, speed)], across=2
    )


STUDY = Study(
    name="batching",
    claim=Words(
        "Batches of like lengths, or packed rows, waste less and train faster.",
        "按长度分批或打包成行，浪费更少、训练更快。",
    ),
    said_by="Vaswani et al. 2017, 5.1; Krell et al. 2021",
    minutes=3,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
    alone=True,
    version=3,
)
