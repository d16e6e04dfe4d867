"""Scores with the right tokens before each position (teacher forcing): loss, perplexity and token accuracy of batches, the loss
of each example by itself, and of a whole text in blocks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.data.batches import Batch
from glassformer.errors import UserError
from glassformer.evaluation.metrics import Scores
from glassformer.language import _
from glassformer.models import BERT, GPT, Transformer
from glassformer.models.eval_mode import eval_mode
from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Rows

Model = Transformer | GPT | BERT

ESTIMATE_BATCHES = 200  # nanoGPT's eval_iters
ESTIMATE_ROWS = 64  # its batch_size

TEACHER_FORCED = {
    "loss": _("nats a token, the right tokens before it given"),
    "perplexity": _("e to the loss"),
    "token_accuracy": _("% of tokens, the right tokens before each given"),
}


def model_inputs(batch: Batch) -> tuple[Any, ...]:
    """The rows that a model of this batch's kind reads."""
    return (batch.rows,) if batch.source is None else (batch.source, batch.rows)


def batch_loss(model: Any, batch: Batch, smoothing: float = 0.0) -> Float[Tensor, ""]:
    """The summed loss of a batch, for any family."""
    return model.loss(*model_inputs(batch), batch.labels, smoothing=smoothing)


@torch.no_grad()
def teacher_forced(model: Model, batches: Iterable[Batch], device: torch.device | str = "cpu") -> Scores:
    """Loss (in nats), perplexity and token accuracy over every labelled position."""
    total = torch.zeros((), dtype=torch.float64)
    right = count = 0
    with eval_mode(model):
        for batch in batches:
            batch = batch.to(device)
            wanted = batch.labels != IGNORE
            logits = model.logits(model.hidden(*model_inputs(batch)))[wanted].float()
            labels = batch.labels[wanted]
            total += F.cross_entropy(logits, labels, reduction="sum").cpu().double()
            right += int((logits.argmax(-1) == labels).sum())
            count += labels.numel()
    loss = float(total) / max(1, count)
    values = {"loss": loss, "perplexity": math.exp(min(loss, 50)), "token_accuracy": 100 * right / max(1, count)}
    return Scores(values, dict(TEACHER_FORCED))


@dataclass(frozen=True)
class ExampleLoss:
    """What a model makes of one example under teacher forcing: its loss in nats, over how many labels, and how many of
    them it would have got right."""

    nats: float
    labels: int
    right: int


@torch.no_grad()
def example_losses(model: Any, batches: list[Batch]) -> dict[int, ExampleLoss]:
    """By the number of the example."""
    found: dict[int, ExampleLoss] = {}
    for batch in batches:
        logits = model.logits(model.hidden(*model_inputs(batch))).float()
        losses = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE, reduction="none")
        wanted = batch.labels != IGNORE
        right = ((logits.argmax(-1) == batch.labels) & wanted).sum(1)
        nats = losses.view_as(batch.labels).cpu().double().sum(1)
        for row, number in enumerate(batch.examples):
            found[number] = ExampleLoss(float(nats[row]), int(wanted[row].sum()), int(right[row]))
    return found


def summed_loss(model: GPT, blocks: Int[Tensor, "B L1"], device: torch.device) -> float:
    """Of each token but the first of its row, in nats."""
    blocks = blocks.to(device)
    logits = model.logits(model.hidden(Rows.whole(blocks[:, :-1].contiguous())))
    return float(F.cross_entropy(logits.float().flatten(0, 1), blocks[:, 1:].flatten(), reduction="sum"))


@torch.no_grad()
def whole_loss(model: GPT, tokens: Int[Tensor, " N"], block: int, device: torch.device) -> float:
    """The mean over the whole text, in blocks of so many tokens that do not overlap: each token but the very first is
    asked for once, and sees what is before it in its block. The last block is as short as it happens to be."""
    asked = len(tokens) - 1
    full = asked // block
    whole = tokens[: full * block + 1].unfold(0, block + 1, block) if full else tokens.new_empty(0, block + 1)
    total = sum(summed_loss(model, rows, device) for rows in whole.split(ESTIMATE_ROWS) if len(rows))
    if asked % block:
        total += summed_loss(model, tokens[full * block :][None], device)
    return total / asked


@torch.no_grad()
def random_batches_loss(
    model: GPT,
    tokens: Int[Tensor, " N"],
    block: int,
    device: torch.device,
    *,
    batches: int = ESTIMATE_BATCHES,
    rows: int = ESTIMATE_ROWS,
    seed: int = 1337,
) -> float:
    """nanoGPT's estimate: the mean over so many batches of rows that begin anywhere (estimate_loss in its train.py)."""
    if len(tokens) <= block:
        raise UserError(
            "the validation text has {n_tokens} tokens, which is no block of {block} and the next token",
            len(tokens),
            block,
        )
    draw = torch.Generator().manual_seed(seed)
    reach = torch.arange(block + 1)
    losses = []
    for _unused in range(batches):
        first = torch.randint(len(tokens) - block, (rows,), generator=draw)
        losses.append(summed_loss(model, tokens[first[:, None] + reach], device) / (rows * block))
    return statistics.fmean(losses)


@contextmanager
def full_precision() -> Iterator[None]:
    """Training may have allowed matrix products in fewer bits; a score is not to depend on that."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
