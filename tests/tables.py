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
from glassformer.nn import KVCache, Rows

CONTROLS = SpecialTokens(bos=0, eos=1, unknown=None, never=())
EOS = 1


class TableCache(KVCache):
    """A cache without layers: of each slot the number of its table, of each row the number of what it has written (-1: not even
    BOS)."""

    def __init__(self, n_slots: int, beams: int, columns: int, source: int) -> None:
        super().__init__([], [], (1, 1), n_slots, beams, columns, source, like=torch.zeros(1, dtype=torch.float64))
        self.table = torch.zeros(n_slots, dtype=torch.long)
        self.node = torch.full((n_slots, beams), -1)

    def begin(self, start: int, end: int) -> None:
        super().begin(start, end)
        self.node[start:end] = -1

    def move(self, from_slots: Sequence[int], to_slots: Sequence[int]) -> None:
        super().move(from_slots, to_slots)
        for numbers in (self.table, self.node):
            numbers[list(to_slots)] = numbers[list(from_slots)]

    def reorder(self, parents: Tensor, n_keys: int | None = None) -> None:
        super().reorder(parents, n_keys)
        self.node[: len(parents)] = self.node[: len(parents)].gather(1, parents)


class TableModel(nn.Module):
    """The source is one token: the number of the table. Node 0 is the empty text; child v of node n is n * V + v + 1."""

    def __init__(self, tables: int, vocabulary: int, depth: int, *, seed: int, scale: float = 1.5) -> None:
        super().__init__()
        nodes = sum(vocabulary**n for n in range(depth + 1))
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(tables, nodes, vocabulary, generator=generator, dtype=torch.float64) * scale
        self.logits = nn.Parameter(logits)
        self.config = ModelConfig(vocab_size=vocabulary, positions="none", n_head=1, n_embd=2)

    def make_cache(self, n_slots: int, columns: int, *, beams: int = 1, source: int = 0) -> TableCache:
        return TableCache(n_slots, beams, columns, source)

    def grow_tables(self, n_positions: int) -> None:
        pass

    def prefill(self, source: Rows, cache: TableCache, start: int = 0, *, copies: int = 1) -> None:
        cache.begin(start, start + source.shape[0] * copies)
        cache.table[start : start + source.shape[0] * copies] = source.tokens[:, 0].repeat_interleave(copies)

    def step(self, tokens: Tensor, cache: TableCache, **shapes: int) -> Tensor:
        n = len(tokens) // cache.beams
        cache.reserve(n)
        node = cache.node[:n]
        following = node * self.config.vocab_size + tokens.view(n, -1) + 1
        cache.node[:n] = torch.where(node < 0, 0, following)
        cache.advance()
        return self.logits[cache.table[:n, None], cache.node[:n]].flatten(0, 1)[:, None]


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

    def make_cache(self, n_slots: int, columns: int, *, beams: int = 1, source: int = 0) -> TableCache:
        return TableCache(n_slots, beams, columns, source)

    def grow_tables(self, n_positions: int) -> None:
        pass

    def prefill(
        self, tokens: Tensor, lengths: Sequence[int], cache: TableCache, slots: Sequence[int], *, copies: int = 1
    ) -> None:
        cache.reserve_prompts(slots, lengths, tokens.size(1), copies=copies)

    def step(self, tokens: Tensor, cache: TableCache, **shapes: int) -> Tensor:
        cache.reserve(len(tokens) // cache.beams)
        cache.advance()
        return self.logits.expand(*tokens.shape, -1)
