"""Models made of nothing but a table of scores: every beginning of a text has its own random ones.

They implement the same protocol as real models, so the search runs on them unchanged; and a space so small can be
enumerated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.decode import SpecialTokens
from glassformer.nn import Rows

CONTROLS = SpecialTokens(bos=0, eos=1, unknown=None, never=())
EOS = 1


@dataclass
class TableState:
    table: Tensor  # for each row, the number of its table
    node: Tensor  # for each row, the number of what it has written; -1: not even BOS

    def reorder(self, rows: Tensor) -> None:
        self.table, self.node = self.table[rows], self.node[rows]


class TableModel(nn.Module):
    """The source is one token: the number of the table. Node 0 is the empty text; child v of node n is n * V + v + 1."""

    def __init__(self, tables: int, vocabulary: int, depth: int, *, seed: int, scale: float = 1.5) -> None:
        super().__init__()
        nodes = sum(vocabulary**n for n in range(depth + 1))
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(tables, nodes, vocabulary, generator=generator, dtype=torch.float64) * scale
        self.logits = nn.Parameter(logits)
        self.config = ModelConfig(vocab_size=vocabulary, positions="none", n_head=1, n_embd=2)

    def start(self, source: Rows, capacity: int, *, beams: int = 1) -> TableState:
        table = source.tokens[:, 0].repeat_interleave(beams)
        return TableState(table, torch.full_like(table, -1))

    def step(self, tokens: Tensor, state: TableState, lengths: Sequence[int] | None = None) -> Tensor:
        following = state.node * self.config.vocab_size + tokens[:, 0] + 1
        state.node = torch.where(state.node < 0, 0, following)
        return self.logits[state.table, state.node][:, None]


@dataclass(frozen=True)
class Possible:
    ids: tuple[int, ...]
    total: float
    complete: bool


def everything(model: TableModel, table: int, limit: int, minimum: int = 0) -> Iterator[Possible]:
    """All texts that end with EOS after `minimum` to limit - 1 tokens, and all of `limit` tokens that do not."""
    words = [v for v in range(model.config.vocab_size) if v != EOS]
    logprobs = model.logits[table].detach().log_softmax(-1).tolist()
    for length in range(limit + 1):
        for ids in itertools.product(words, repeat=length):
            node, parts = 0, []
            for token in ids:
                parts.append(logprobs[node][token])
                node = node * model.config.vocab_size + token + 1
            if length == limit:
                yield Possible(ids, math.fsum(parts), False)
            elif length >= minimum:
                yield Possible(ids, math.fsum([*parts, logprobs[node][EOS]]), True)


def by_hand(found: Possible, rule: str, alpha: float) -> float:
    """The length rules, written out once more."""
    words = len(found.ids)
    with_eos = words + 1 if found.complete else words
    if rule == "gnmt":
        return found.total / ((5 + with_eos) ** alpha / 6**alpha)
    return found.total / max(1, with_eos if rule == "power" else words) ** alpha


class Unigram(nn.Module):
    """A language model that forgets everything: the same scores after every text."""

    def __init__(self, probabilities: Sequence[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(probabilities, dtype=torch.float64).log())
        self.config = ModelConfig(family="gpt", vocab_size=len(probabilities), positions="none", n_head=1, n_embd=2)

    def start(self, rows: int, capacity: int) -> TableState:
        return TableState(torch.zeros(rows, dtype=torch.long), torch.zeros(rows, dtype=torch.long))

    def step(self, tokens: Tensor, state: TableState, lengths: Sequence[int] | None = None) -> Tensor:
        return self.logits.expand(*tokens.shape, -1)
