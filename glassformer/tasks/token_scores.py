"""How likely a model finds a text it did not write: the log-probability of a target after its source, or of a text after
a prompt, with the right tokens before each (teacher forcing)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from glassformer.data.examples import causal_windows
from glassformer.errors import UserError
from glassformer.models import GPT, Transformer
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import Rows
from glassformer.tasks.generate import prompt_ids
from glassformer.tasks.text_model import FAMILIES, TextModel
from glassformer.text.tokenizer import BOS, EOS

AT_ONCE = 32


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
        """Of the whole text, in nats."""
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
