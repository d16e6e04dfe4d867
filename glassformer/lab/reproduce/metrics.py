"""The published metrics. What was written and what was wanted are left in the run's folder, so that anyone can score them
again with a tool of their own.

Recipes are chosen on the validation split; the split a score stands on is scored once a run, at the very end. (Tiny
Shakespeare has no test split: its published number is the best loss on the validation split, and so is ours.)
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from glassformer import runs
from glassformer.api import load
from glassformer.config import Recipe
from glassformer.data.store import run_examples
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.evaluation.metrics import text_scores
from glassformer.files.durable import write_atomically
from glassformer.lab.reproduce.table import Metric
from glassformer.models import GPT
from glassformer.nn.rows import Rows
from glassformer.runs.folder import RunFolder
from glassformer.screen import watched
from glassformer.tasks import translate_each
from glassformer.text.tokenizer import EOS

ESTIMATE_BATCHES = 200  # nanoGPT's eval_iters


ESTIMATE_ROWS = 64  # its batch_size


@dataclass(frozen=True)
class Score:
    """A value with the signature that says how it was taken."""

    value: float
    signature: str
    others: dict[str, float] = field(default_factory=dict)  # told beside it


def device_of(recipe: Recipe) -> torch.device:
    """Where the recipe is trained."""
    return runs.pick_device(recipe.train)


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """A text a line; a line break inside one becomes a space."""
    write_atomically(path, "".join(" ".join(line.splitlines()) + "\n" for line in lines).encode())


def text_score(run: RunFolder, metric: Metric) -> Score:
    """Every sentence of the test split, written as the recipe's [decode] says."""
    model = load(run.path, device=device_of(run.recipe).type)
    run.check_data("test")
    pairs = list(run_examples(run.recipe.data, "test", run.path / "data"))
    wanted = [target for _, target in pairs]
    found = translate_each(model, [source for source, _ in pairs])
    written = [answers[0].text for answers in watched(found, "scoring", len(pairs))]
    write_lines(run.path / "test.written.txt", written)
    write_lines(run.path / "test.wanted.txt", wanted)
    scores = text_scores(written, wanted, metric.removeprefix("bleu-") if metric.startswith("bleu-") else "auto")
    if metric == "exact-match":
        whole = f"whole lines alike, blanks at the ends aside, in percent of {len(pairs):,}"
        return Score(scores.values["exact_match"], whole, {"chrF": scores.values["chrf"]})
    beside = {"chrF": scores.values["chrf"], "exact match": scores.values["exact_match"]}
    return Score(scores.values["bleu"], scores.signatures["bleu"], beside)


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
    """nanoGPT's estimate: the mean over so many batches of rows that begin anywhere (train.py, `estimate_loss`)."""
    if len(tokens) <= block:
        raise UserError(
            f"the validation text has {len(tokens)} tokens, which is no block of {block} and the next token"
        )
    draw = torch.Generator().manual_seed(seed)
    reach = torch.arange(block + 1)
    losses = []
    for _ in range(batches):
        first = torch.randint(len(tokens) - block, (rows,), generator=draw)
        losses.append(summed_loss(model, tokens[first[:, None] + reach], device) / (rows * block))
    return statistics.fmean(losses)


def validation_tokens(run: RunFolder) -> Int[Tensor, " N"]:
    """The validation text alone: the sign that ends a document is ours, not the text's."""
    tokens = TokenFile.open(run.path / "data" / "val.text").tokens
    end = len(tokens) - 1 if len(tokens) and tokens[-1] == EOS else len(tokens)
    return torch.from_numpy(tokens[:end].astype("int64"))


def loss_score(run: RunFolder) -> Score:
    """The loss of the next token over the validation text, in blocks that do not overlap."""
    device = device_of(run.recipe)
    model = run.load_model(device=device)
    if not isinstance(model, GPT):
        raise UserError(f"{run.path} is no GPT; the loss of the next token is that of a GPT")
    tokens, block = validation_tokens(run), run.recipe.model.block_size
    signature = f"nats a token, the last {len(tokens):,} tokens in blocks of {block} that do not overlap"
    estimate = random_batches_loss(model, tokens, block, device)
    named = f"estimate over {ESTIMATE_BATCHES} random batches of {ESTIMATE_ROWS} x {block}"
    return Score(whole_loss(model, tokens, block, device), signature, {named: estimate})


@contextmanager
def full_precision() -> Iterator[None]:
    """Training may have allowed matrix products in fewer bits; a score is not to depend on that."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def score(run: RunFolder, metric: Metric) -> Score:
    """A run by the metric that others published with, in full precision."""
    with full_precision():
        return loss_score(run) if metric == "loss" else text_score(run, metric)
