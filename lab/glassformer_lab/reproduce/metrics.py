"""The published metrics. What was written and what was wanted are left in the run's folder, so that anyone can score them
again with a tool of their own.

Recipes are chosen on the validation split; the split a score stands on is scored once a run, at the very end. (Tiny
Shakespeare has no test split: its published number is the best loss on the validation split, and so is ours.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from glassformer import runs
from glassformer.api import load
from glassformer.config import Recipe
from glassformer.data.store import run_examples
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.evaluation.metrics import bracket_f1, text_scores
from glassformer.evaluation.teacher_forced import (
    ESTIMATE_BATCHES,
    ESTIMATE_ROWS,
    full_precision,
    random_batches_loss,
    whole_loss,
)
from glassformer.files.durable import write_atomically
from glassformer.language import _
from glassformer.models import GPT
from glassformer.runs.folder import RunFolder
from glassformer.runs.setup import trains_in_half
from glassformer.screen import watched
from glassformer.tasks import translate_each
from glassformer.text.tokenizer import EOS
from glassformer_lab.reproduce.table import Metric


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
    if metric == "bracket-f1":
        found_f1 = bracket_f1(written, wanted)
        return Score(found_f1.pop("f1"), f"labelled brackets by evalb's rule, {len(pairs):,} trees", found_f1)
    scores = text_scores(written, wanted, metric.removeprefix("bleu-") if metric.startswith("bleu-") else "auto")
    if metric == "exact-match":
        whole = f"whole lines alike, blanks at the ends aside, in percent of {len(pairs):,}"
        return Score(scores.values["exact_match"], whole, {"chrF": scores.values["chrf"]})
    beside = {"chrF": scores.values["chrf"], _("exact match"): scores.values["exact_match"]}
    return Score(scores.values["bleu"], scores.signatures["bleu"], beside)


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
        raise UserError("{path} is no GPT; the loss of the next token is that of a GPT", run.path)
    tokens, block = validation_tokens(run), run.recipe.model.block_size
    signature = f"nats a token, the last {len(tokens):,} tokens in blocks of {block} that do not overlap"
    with torch.autocast(
        device.type, torch.bfloat16, enabled=trains_in_half(run.recipe.train, device)
    ):  # as nanoGPT's own
        estimate = random_batches_loss(model, tokens, block, device)
    named = f"estimate over {ESTIMATE_BATCHES} random batches of {ESTIMATE_ROWS} x {block}"
    return Score(whole_loss(model, tokens, block, device), signature, {named: estimate})


def score(run: RunFolder, metric: Metric) -> Score:
    """A run by the metric that others published with, in full precision."""
    with full_precision():
        return loss_score(run) if metric == "loss" else text_score(run, metric)
