"""How likely a model finds texts that it is given: log P(target | source) for pairs, log P(text) for a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from glassformer.data.batches import BlockBatches, SentenceBatches
from glassformer.data.examples import Pairs, Prompts
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.nn.loss import IGNORE
from glassformer.nn.modes import eval_mode
from glassformer.tasks.text_model import TextModel
from glassformer.text.tokenizer import BOS


@dataclass(frozen=True)
class TextScore:
    """The natural logarithm of a probability, and over how many tokens it is a sum (the one that ends a target included)."""

    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """e to the mean loss of a token."""
        return math.exp(min(50.0, -self.log_probability / max(1, self.tokens)))


@torch.no_grad()
def sums(model: Any, batches: Any, budget: int) -> dict[int, TextScore]:
    """By the number of the example, over its labels."""
    found: dict[int, TextScore] = {}
    with eval_mode(model):
        for batch in batches.in_order(budget):
            batch = batch.to(next(model.parameters()).device)
            sides = (batch.rows,) if batch.source is None else (batch.source, batch.rows)
            logits = model.logits(model.hidden(*sides)).float()
            losses = F.cross_entropy(
                logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE, reduction="none"
            ).view_as(batch.labels)
            counts = (batch.labels != IGNORE).sum(1)
            for row, number in enumerate(batch.examples):
                found[number] = TextScore(-float(losses[row].cpu().double().sum()), int(counts[row]))
    return found


def score(model: TextModel, examples: Sequence[Any]) -> list[TextScore | None]:
    """For each pair (source, target), or for each text where a GPT learned from text, how likely the model finds it. None for
    a pair that is longer than the model reads; a long text is read in blocks, and its first token is given."""
    net, recipe = model._model, model.recipe
    budget = max(256, min(8192, 2**23 // max(1, net.config.vocab_size)))
    if model.kind in ("transformer", "gpt on pairs"):
        source, target = model.tokenizers.source, model.tokenizers.target
        sides = (
            TokenFile.of(source.encode_batch([pair[0] for pair in examples]), source.vocab_size),
            TokenFile.of(target.encode_batch([pair[1] for pair in examples]), target.vocab_size),
        )
        kind = Pairs if model.kind == "transformer" else Prompts
        limit = net.config.block_size
        batches = SentenceBatches(kind(*sides), budget=budget, limit=limit, layout="padded", seed=0)
        found = sums(net, batches, budget)
        return [found.get(number) for number in range(len(examples))]
    if model.kind != "gpt":
        raise UserError(
            "a BERT finds labels or hidden words and has no probability of a text; score a GPT or a translator"
        )
    out: list[TextScore | None] = []
    tokenizer = model.tokenizers.target
    for ids in tokenizer.encode_batch(list(examples)):
        blocks = BlockBatches(
            TokenFile.of([[BOS, *ids] if recipe.data.begin_documents else ids], tokenizer.vocab_size),
            block_size=recipe.model.block_size,
            budget=budget,
            task="next",
            seed=0,
        )
        parts = sums(net, blocks, budget).values() if len(ids) > 1 else ()
        out.append(TextScore(sum(part.log_probability for part in parts), sum(part.tokens for part in parts)))
    return out
