"""What padding costs: batches at random, by length, and packed. Counted and timed."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from glassformer.models import Transformer
from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Rows
from glassformer_lab.claims.claim import Budget, Measured
from glassformer_lab.claims.training import BEGIN, END, Strings, dates, phrases

TOKENS = 2048  # places of the target in a batch, padding included
Example = tuple[list[int], list[int]]


def examples_of(task: Strings, count: int, draw: torch.Generator) -> list[Example]:
    """So many pairs of token lists, in random order."""
    chosen = [
        task.train[i] for i in torch.randperm(len(task.train), generator=draw, device=draw.device)[:count].tolist()
    ]
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


def trial(budget: Budget, task: str, way: str, seed: int) -> Measured:
    """Forward and backward passes over the same examples, laid out in one way."""
    data = dates(budget.steps(4000)) if task == "dates" else phrases(count=budget.steps(4000))
    draw = torch.Generator().manual_seed(seed)
    examples = examples_of(data, budget.steps(2000), draw)
    width = 128
    examples = [(s[:width], t[: width - 1]) for s, t in examples]
    if way == "packed":
        batches = [as_rows(rows, width) for rows in pack(examples, width)]
    else:
        ordered = sorted(examples, key=lambda one: (len(one[0]), len(one[1]))) if way == "by length" else examples
        batches = []
        for some in cut(ordered):
            longest = max(max(len(s), len(t) + 1) for s, t in some)
            batches.append(as_rows([[pair] for pair in some], longest))
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
