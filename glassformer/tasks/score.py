"""How likely a model finds texts that it is given: log P(target | source) for pairs, log P(text) for a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from glassformer.data.batches import BlockBatches, SentenceBatches
from glassformer.data.examples import Pairs, Prompts, causal_windows
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.models import GPT, Transformer
from glassformer.nn.loss import IGNORE
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import Rows
from glassformer.tasks.generate import prompt_ids
from glassformer.tasks.text_model import FAMILIES, TextModel
from glassformer.text.tokenizer import BOS, EOS

AT_ONCE = 32  # rows


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


@dataclass(frozen=True)
class TokenScores:
    """The log-probability of a text in nats, token by token; a translation's last token is its end.

    >>> found = TokenScores(["a", "b"], [-0.5, -1.5])
    >>> float(found), round(found.perplexity, 3)
    (-2.0, 2.718)
    """

    tokens: list[str]
    token_logprobs: list[float]

    @property
    def logprob(self) -> float:
        """The log-probability of the whole text, in nats."""
        return float(sum(self.token_logprobs))

    @property
    def perplexity(self) -> float:
        """Among how many equally likely tokens the model seemed to choose, on average."""
        return math.exp(min(50.0, -self.logprob / max(1, len(self.token_logprobs))))

    def __float__(self) -> float:
        return self.logprob


@torch.no_grad()
def token_scores(model: TextModel, sources: Sequence[str], targets: Sequence[str]) -> list[TokenScores]:
    """For each source (a GPT of plain text: each prompt) how likely the target is to follow it."""
    net = model._model
    if not isinstance(net, Transformer | GPT) or model.verb == "classify":
        raise UserError(
            "this run is {families} made to {verb}; it writes no text to be scored",
            FAMILIES[net.config.family],
            model.verb,
        )
    if len(sources) != len(targets):
        raise UserError(
            "there are {n_sources} sources and {n_targets} targets; they go together one by one",
            len(sources),
            len(targets),
        )
    written = model.tokenizers.target.encode_batch(list(targets))
    if isinstance(net, Transformer):
        read = [[*ids, EOS] for ids in model.tokenizers.source.encode_batch(list(sources))]
        begins = [[BOS]] * len(read)
    else:
        read, begins = [], [prompt_ids(model, source) for source in sources]
    ends = [] if model.kind == "gpt" else [EOS]
    rows = [[*begin, *ids, *ends] for begin, ids in zip(begins, written, strict=True)]
    most = net.config.block_size
    if read and (longest := max([len(row) - 1 for row in rows] + [len(ids) for ids in read], default=0)) > most:
        raise UserError(
            "a text has {longest} tokens, and this model reads {block_size} at once; score it sentence by sentence",
            longest,
            most,
        )
    # A GPT reads a long text in overlapping windows, each no longer than what it has learned from.
    cut = [(number, window) for number, row in enumerate(rows) for window in causal_windows(len(row) - 1, most)]
    values: list[list[float]] = [[] for _ in rows]
    with eval_mode(net):
        for some in (cut[i : i + AT_ONCE] for i in range(0, len(cut), AT_ONCE)):
            inputs: list[Any] = [Rows.from_lists([read[number] for number, _ in some]).to(model.device)] if read else []
            inputs.append(Rows.from_lists([rows[number][w.start : w.end] for number, w in some]).to(model.device))
            scores = net.logits(net.hidden(*inputs)).float().log_softmax(-1)
            for (number, window), of_row in zip(some, scores, strict=True):
                first = max(window.first, len(begins[number]) - 1)  # what the text begins with is given
                labels = torch.tensor(rows[number][first + 1 : window.last + 1], device=scores.device, dtype=torch.long)
                at = of_row[first - window.start : first - window.start + len(labels)]
                values[number] += (-F.nll_loss(at, labels, reduction="none")).tolist() if len(labels) else []
    pieces = (model.tokenizers.target.pieces(row[len(begin) :]) for row, begin in zip(rows, begins, strict=True))
    return [TokenScores(tokens, logprobs) for tokens, logprobs in zip(pieces, values, strict=True)]
