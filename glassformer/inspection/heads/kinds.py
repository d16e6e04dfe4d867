"""What each head looks at, by what its attention weights do on average over the real queries of the examples.

Each kind is a number from 0 to 1:

    previous, next, same, first, last    the weight on the token before, the token after, the token of the same number, the
                     first token and the last one (queries for which that is their only choice are left out)
    diagonal         cross-attention: the weight on the one or two keys nearest to the straight line from the first query
                     and first key to the last query and last key
    induction        self-attention: the weight on what came after an earlier occurrence of the query's own token (Olsson et
                     al. 2022); for a GPT measured on random tokens said twice, else on the examples
    broad            the entropy of the weights, divided by that of even weights over all that may be seen

A mean hides a head that does its work in a few rows and idles in the others. So a second count is kept: in what share of the
rows more than half of the weight is on one token (it is pointed), and in what share that is the token before, the first one …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer import probe
from glassformer.evaluation.examples import HeldOut
from glassformer.evaluation.teacher_forced import model_inputs
from glassformer.models import GPT
from glassformer.nn.masks import cross_mask, self_mask
from glassformer.nn.rows import Rows
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import CONTROL, EOS

KINDS = ("previous", "next", "same", "first", "last", "diagonal", "induction", "broad")

POINTED = 0.4  # a head that puts this much where a kind says is of that kind; among several, of the strongest

SHARP = 0.5  # a row is pointed where one key has more than this

EVEN = 0.5  # a head of no such kind is broad from this on, and mixed below


@dataclass
class AttentionStats:
    """Sums for one attention over all batches: for each kind, the weight found (a head) and the queries counted."""

    found: dict[str, Tensor] = field(default_factory=dict)
    count: dict[str, float] = field(default_factory=dict)

    def add(
        self, kind: str, weight: Float[Tensor, "B H T"] | Bool[Tensor, "B H T"], queries: Bool[Tensor, "B T"]
    ) -> None:
        """Adds the weight that real queries gave to keys of this kind, head by head."""
        here = (weight.double() * queries[:, None]).sum((0, 2))
        self.found[kind] = self.found.get(kind, 0) + here
        self.count[kind] = self.count.get(kind, 0.0) + float(queries.sum())

    def scores(self) -> dict[str, list[float]]:
        """For each kind a number a head; a kind that cannot be (no query could have shown it) is left out."""
        return {k: (self.found[k] / self.count[k]).tolist() for k in KINDS if self.count.get(k)}

    def pointed(self) -> dict[str, list[float]]:
        """For each head the share of rows that are pointed ("all"), and of those that are so at each place, by its kind."""
        total = self.count.get("pointed") or 1.0
        names = {"all": "pointed"} | {k: f"pointed {k}" for k in KINDS}
        return {name: (self.found[key] / total).tolist() for name, key in names.items() if key in self.found}


def at_keys(weights: Float[Tensor, "B H T S"], keys: Int[Tensor, "B T"]) -> Float[Tensor, "B H T"]:
    """The weight each query gives to one key of its own."""
    index = keys.clamp(0, weights.size(3) - 1)[:, None, :, None].expand(-1, weights.size(1), -1, 1)
    return weights.gather(3, index)[..., 0]


def add_attention(
    stats: AttentionStats,
    weights: Float[Tensor, "B H T S"],
    queries: Int[Tensor, "B"],
    keys: Int[Tensor, "B"],
    visible: Bool[Tensor, "B T S"],
    *,
    cross: bool = False,
) -> None:
    """Adds what one batch shows of every kind but induction. `queries` and `keys` are how many are real in each row."""
    place = torch.arange(weights.size(2), device=weights.device)[None].expand(weights.size(0), -1)
    real = place < queries[:, None]
    choices = (visible & real[:, :, None]).sum(-1)
    most, top = weights.max(-1)
    sharp = most > SHARP
    stats.add("pointed", sharp, real & (choices > 1))

    def towards(kind: str, key: Tensor, extra: Tensor | None = None) -> None:
        may = (key >= 0) & (key < keys[:, None])
        seen = visible.gather(2, key.clamp(0, weights.size(3) - 1)[..., None])[..., 0]
        asked = real & may & seen & (choices > 1)
        stats.add(kind, at_keys(weights, key), asked if extra is None else asked & extra)
        stats.add(f"pointed {kind}", sharp & (top == key[:, None]), asked)

    last = (keys - 1)[:, None].expand_as(place)
    towards("same", place)
    towards("first", torch.zeros_like(place))
    if not cross:
        towards("previous", place - 1)
        towards("next", place + 1)
    causal = not cross and not bool(visible[:, :1, 1:].any())
    if not causal:
        towards("last", last)
    if cross:
        line = place * (keys - 1)[:, None] / (queries - 1).clamp(min=1)[:, None]
        low, high = line.floor().long(), line.ceil().long()
        both = at_keys(weights, low) + at_keys(weights, high) * (low != high)[:, None]
        stats.add("diagonal", both, real & (choices > 1) & (queries > 1)[:, None])
    spread = -(weights.double() * weights.double().clamp(min=1e-30).log()).sum(-1)
    even = choices.double().clamp(min=2).log()
    stats.add("broad", spread / even[:, None], real & (choices > 1))


def add_induction(
    stats: AttentionStats, weights: Float[Tensor, "B H T T"], tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"]
) -> None:
    """The weight on every key that follows an earlier occurrence of the query's token, over the queries that have one."""
    place = torch.arange(tokens.size(1), device=tokens.device)
    again = tokens[:, :, None] == tokens[:, None, :]
    again = again & (place[None, :] + 1 < place[:, None])  # at j, well before i
    after = torch.zeros_like(again)
    after[:, :, 1:] = again[:, :, :-1]
    real = (place < lengths[:, None]) & after.any(-1)
    stats.add("induction", (weights * after[:, None]).sum(-1), real)


def kind_of(scores: Mapping[str, float]) -> str:
    """The kind that a head gives most of its weight to; broad where it spreads it, mixed where neither."""
    pointed = {kind: value for kind, value in scores.items() if kind != "broad"}
    best = max(pointed, key=pointed.__getitem__, default="")
    if best and pointed[best] >= POINTED:
        return best
    return "broad" if scores.get("broad", 0.0) >= EVEN else "mixed"


def said_twice(model: Any, device: torch.device, rows: int = 16) -> Rows:
    """Random words, and the same again: only one who looks back knows how it goes on."""
    generator = torch.Generator().manual_seed(0)
    half = max(2, min(32, (model.config.block_size - 1) // 2))
    words = torch.randint(
        min(CONTROL, model.config.vocab_size - 1), model.config.vocab_size, (rows, half), generator=generator
    )
    start = torch.full((rows, 1), EOS)
    return Rows.whole(torch.cat([start, words, words], dim=1)).to(device)


@torch.no_grad()
def attention_stats(model: TextModel, held: HeldOut) -> dict[str, AttentionStats]:
    """What every attention does on the examples, by its name."""
    net = model.model
    stats = {name: AttentionStats() for name, attention in probe.attentions(net).items() if attention.head_ids}
    with probe.record(net, "*.weights") as seen:
        for batch in held.batches:
            net.hidden(*model_inputs(batch))
            for name in stats:
                weights = seen[f"{name}.weights"].float()
                encoder, cross = name.startswith("encoder."), name.endswith(".cross")
                mine = batch.source if encoder and batch.source is not None else batch.rows
                theirs = batch.source if cross and batch.source is not None else mine
                if cross:
                    attention_mask = cross_mask(mine, theirs)
                else:
                    attention_mask = self_mask(mine, causal=not encoder, window=net.config.window)
                mask = attention_mask.to_tensor(mine.shape[1], theirs.shape[1], weights.device)
                visible = theirs.real[:, None, :].expand(-1, mine.shape[1], -1)
                if mask is not None:
                    visible = visible & mask.view(-1, *mask.shape[-2:])
                lengths = mine.real.sum(1)
                add_attention(stats[name], weights, lengths, theirs.real.sum(1), visible, cross=cross)
                if not cross and not isinstance(net, GPT):
                    add_induction(stats[name], weights, mine.tokens, lengths)
        if isinstance(net, GPT):
            twice = said_twice(net, model.device)
            net(twice)
            for name in stats:
                add_induction(stats[name], seen[f"{name}.weights"].float(), twice.tokens, twice.real.sum(1))
    return stats


Scores = dict[str, dict[str, float]]
"""By head, then by kind."""


def head_stats(model: TextModel, held: HeldOut) -> tuple[Scores, Scores]:
    """For each head its score of every kind that its attention could have, and the share of rows that are pointed, by where."""
    kinds: Scores = {}
    pointed: Scores = {}
    attentions = probe.attentions(model.model)
    for name, stats in attention_stats(model, held).items():
        for found, values in ((kinds, stats.scores()), (pointed, stats.pointed())):
            for i, number in enumerate(attentions[name].head_ids):
                found[f"{name}:{number}"] = {kind: of_heads[i] for kind, of_heads in values.items()}
    return kinds, pointed
