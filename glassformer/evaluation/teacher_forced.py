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
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.config import Recipe
from glassformer.data.batches import Batch, Batches, SentenceBatches
from glassformer.errors import UserError
from glassformer.evaluation.metrics import Scores
from glassformer.language import _
from glassformer.models import BERT, GPT, Transformer
from glassformer.nn.loss import IGNORE
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import Rows

Model = Transformer | GPT | BERT

ESTIMATE_BATCHES = 200  # nanoGPT's eval_iters
ESTIMATE_ROWS = 64  # its batch_size
LOGITS_AT_A_TIME = 2**21
LEAST_VALIDATED, MOST_VALIDATED, VALIDATION_SHARE = 1_000, 20_000, 0.1

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


def validated_examples(batches: Batches, recipe: Recipe) -> int:
    """The number of examples, from the first on, whose loss a validation measures: as many as take a tenth of the arithmetic of
    the steps between two validations (a step is three forward passes), but 1,000 at least and 20,000 at most. It follows from
    recipe and data alone, so that no run depends on how fast a machine is."""
    steps = min(recipe.train.validate_every, recipe.train.steps)
    tokens = VALIDATION_SHARE * 3 * steps * recipe.data.batch_tokens
    length = float(getattr(batches, "block_size", 1))
    if isinstance(batches, SentenceBatches):
        length = float(batches.target.sum()) / max(1, len(batches.kept))
    return min(MOST_VALIDATED, max(LEAST_VALIDATED, int(tokens / max(1.0, length))))


def label_losses(
    model: Model, x: Float[Tensor, "N C"], labels: Int[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], Bool[Tensor, " N"]]:
    """For each position with a label: its loss in nats, and whether its label has the highest logit. `x` is what the model's
    output layer reads there. The logits are made for a few positions at a time: those of a whole batch are hundreds of
    megabytes that a CPU asks the system for anew each time, which takes as long as computing them."""
    nats, hits = [], []
    positions = max(1, LOGITS_AT_A_TIME // model.config.vocab_size)
    for x_some, labels_some in zip(x.split(positions), labels.split(positions), strict=True):
        logits = model.logits(x_some[None])[0].float()
        nats.append(F.cross_entropy(logits, labels_some, reduction="none"))
        hits.append(logits.argmax(-1) == labels_some)
    return torch.cat(nats), torch.cat(hits)


def summed(nats: Float[Tensor, " N"]) -> Float[Tensor, ""]:
    """The sum, added up in the order in which torch's cross-entropy of all positions at once adds it up."""
    return F.nll_loss(-nats[:, None], torch.zeros_like(nats, dtype=torch.long), reduction="sum")


@torch.no_grad()
def teacher_forced(model: Model, batches: Iterable[Batch], device: torch.device | str = "cpu") -> Scores:
    """Loss (in nats), perplexity and token accuracy over every labelled position."""
    total = torch.zeros((), dtype=torch.float64)
    right = count = 0
    with eval_mode(model):
        for batch in batches:
            batch = batch.to(device)
            labelled = batch.labels != IGNORE
            nats, hits = label_losses(model, model.hidden(*model_inputs(batch))[labelled], batch.labels[labelled])
            total += summed(nats).cpu().double()
            right += int(hits.sum())
            count += nats.numel()
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
        labelled = batch.labels != IGNORE
        losses, hits = label_losses(model, model.hidden(*model_inputs(batch))[labelled], batch.labels[labelled])
        nats = losses.new_zeros(batch.labels.shape).masked_scatter(labelled, losses).cpu().double().sum(1)
        right = torch.zeros_like(labelled).masked_scatter(labelled, hits).sum(1)
        for row, number in enumerate(batch.examples):
            before = found.get(number, ExampleLoss(0.0, 0, 0))  # of a long sentence, whose windows are rows
            labels, correct = before.labels + int(labelled[row].sum()), before.right + int(right[row])
            found[number] = ExampleLoss(before.nats + float(nats[row]), labels, correct)
    return found


def summed_loss(model: GPT, blocks: Int[Tensor, "B L1"], device: torch.device) -> float:
    """Of each token but the first of its row, in nats."""
    blocks = blocks.to(device)
    hidden = model.hidden(Rows.whole(blocks[:, :-1].contiguous()))
    return float(summed(label_losses(model, hidden.flatten(0, 1), blocks[:, 1:].flatten())[0]))


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
