"""Small models of every kind, and the same sentences laid out in rows in every way.

The weights are not the ones training starts from (all near zero, where every law holds by accident): each matrix, gain and
bias is random and large enough that whatever reaches a place where it should not is seen there.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models import BERT, GPT, Transformer, build_model
from glassformer.nn import BatchNorm, Rows
from tests.counts import SOAK
from tests.covering import covering

Model = Transformer | GPT | BERT
Sentence = list[int]
Pair = tuple[Sentence, Sentence]
How = Literal["alone", "right", "left", "packed"]

VOCABULARY = 19
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "block_size": 40,
    "n_layer": 2,
    "n_head": 6,
    "n_embd": 24,
    "n_hidden": 20,
    "dropout": 0.0,
    "scale_embeddings": False,
}
FAMILIES = ("transformer", "gpt", "bert")
CAUSAL = ("transformer", "gpt")
POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
Changes = dict[str, Any]
# What can be chosen beside what SMALL is, and with what else: one of each line.
CHOICES: dict[str, dict[str, Changes]] = {
    "positions": {f"{scheme} positions": {"positions": scheme} for scheme in POSITIONS},
    "activation": {name: {"activation": name} for name in ("gelu", "gelu_tanh", "relu2", "swiglu", "geglu")},
    "norm": {"rms": {"norm": "rms"}, "batch norm, evaluating": {"norm": "batch"}, "no norm": {"norm": "none"}},
    "order": {"post-norm": {"pre_norm": False, "final_norm": False}},
    "keys": {"grouped heads": {"n_kv_head": 3}, "multi-query": {"n_kv_head": 1}},
    "window": {"window 1": {"window": 1}, "window 4": {"window": 4}},
    "sizes": {"free head sizes": {"head_size": 6, "value_size": 5}},
    "queries": {"query-key norm": {"qk_norm": True}},
    "scale": {"unscaled": {"scaled_attention": False}},
    "bias": {"no bias": {"bias": False}},
    "output": {"untied": {"tie_output": False}},
    "embedding": {"embedding norm, scaled": {"embedding_norm": True, "scale_embeddings": True}},
    "sharing": {"shared layers": {"share_layers": True}},
    "residual": {"no residual": {"residual": False}},
}
MIXTURES: dict[str, Changes] = {
    **{f"{scheme}, window, grouped": {"positions": scheme, "window": 3, "n_kv_head": 2} for scheme in POSITIONS},
    "t5": {
        "positions": "relative",
        "norm": "rms",
        "bias": False,
        "scaled_attention": False,
        "activation": "geglu_tanh",
    },
    "modern": {
        "positions": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "n_kv_head": 2,
        "qk_norm": True,
        "bias": False,
    },
}
VARIANTS: dict[str, Changes] = {name: how for line in CHOICES.values() for name, how in line.items()} | MIXTURES
ENCODER_DECODER_VARIANTS: dict[str, Changes] = {
    "encoder of one layer": {"n_encoder_layer": 1},
    "an encoder of its own sizes": {"n_encoder_head": 4, "n_encoder_hidden": 12},
    "two vocabularies": {"source_vocab_size": VOCABULARY + 3, "share_source_target": False},
}


def variants(*families: str) -> list[Any]:
    """Every variant alone in every family, as (family, settings) for pytest."""
    extra = {"transformer": ENCODER_DECODER_VARIANTS}
    return [
        pytest.param(family, changes, id=f"{family}: {name}")
        for family in families
        for name, changes in {**VARIANTS, **extra.get(family, {})}.items()
    ]


def is_model(changes: Changes) -> bool:
    """Whether these settings go together."""
    try:
        ModelConfig(**{**SMALL, **changes})
    except ConfigError:
        return False
    return True


@functools.cache
def cases(*families: str, also: tuple[str, ...] = ()) -> list[Any]:
    """(family, settings) for pytest, with one of `also` as a third if there are any: so few that every two choices meet in one,
    and each mixture in one family. In `make soak-laws` every variant in every family besides."""
    plain: dict[str, dict[str, Changes]] = {
        "family": {family: {"family": family} for family in families},
        "also": {name: {} for name in also or ("",)},
        **{line: ({} if line == "positions" else {"": {}}) | how for line, how in CHOICES.items()},
    }
    levels = {line: list(how.values()) for line, how in plain.items()}

    def settings_of(row: dict[str, int]) -> Changes:
        return {name: value for line, level in row.items() for name, value in levels[line][level].items()}

    names = {line: list(how) for line, how in plain.items()}
    found = []
    encoders = itertools.cycle(({"": {}} | ENCODER_DECODER_VARIANTS).items())
    for row in covering(levels, lambda row: is_model(settings_of(row))):
        changes = settings_of(row)
        chosen = [names[line][row[line]] for line in plain if line not in ("family", "also")]
        if changes["family"] == "transformer":
            encoder, more = next((name, more) for name, more in encoders if is_model(changes | more))
            changes, chosen = changes | more, [*chosen, encoder]
        family = changes.pop("family")
        found.append((family, changes, names["also"][row["also"]], ", ".join(filter(None, chosen))))
    turns = zip(itertools.cycle(families), itertools.cycle(names["also"]), MIXTURES.items())
    found += [(family, changes, third, name) for family, third, (name, changes) in turns]
    if SOAK:
        found += [
            (*case.values, third, str(case.id).partition(": ")[2])
            for case in variants(*families)
            for third in names["also"]
        ]
    return [pytest.param(*case[: 3 if also else 2], id=f"{case[0]}: {case[3]} {case[2]}".strip()) for case in found]


def without_ties(changes: Changes) -> Changes:
    """For a beam: where nothing tells hypotheses from each other that are each other's permutation, something that does."""
    blind = changes.get("residual") is False or (changes.get("positions"), changes.get("window")) == ("none", 1)
    return {**changes, "positions": "relative", "window": None} if blind else changes


def small(family: str, *, seed: int = 0, **changes: Any) -> Any:
    """A small model in double precision, evaluating, with weights that hide nothing. (Any: the caller knows the family.)"""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_model(ModelConfig(**{**SMALL, "family": family, **changes})).double().eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1 or name.endswith("bias"):
                    parameter.normal_(std=0.25)
                else:
                    parameter.uniform_(0.5, 1.5)
            for module in model.modules():
                if isinstance(module, BatchNorm):
                    module.running_mean.normal_(std=0.25)
                    module.running_variance.uniform_(0.5, 1.5)
    return model


def some_pairs(lengths: Sequence[tuple[int, int]], seed: int = 0) -> list[Pair]:
    """Random sentences of the given source and target lengths."""
    draw = random.Random(seed)
    return [
        ([draw.randrange(VOCABULARY) for _ in range(s)], [draw.randrange(VOCABULARY) for _ in range(t)])
        for s, t in lengths
    ]


def with_filler(rows: Rows, seed: int) -> Rows:
    """The same rows with arbitrary words in the padding."""
    generator = torch.Generator().manual_seed(seed)
    filler = torch.randint(0, VOCABULARY, rows.tokens.shape, generator=generator)
    return replace(rows, tokens=torch.where(rows.real, rows.tokens, filler))


def lay_out(
    sentences: Sequence[Sentence], how: How, *, extra: int = 0, group: int = 3, filler: int = 0
) -> tuple[Rows, list[tuple[int, slice]]]:
    """The sentences as rows, and where each of them is found: (row, columns). `extra` columns hold nothing but padding."""
    longest = max(map(len, sentences))
    match how:
        case "alone":
            raise ValueError("alone means a batch each")
        case "right":
            wide = [[*s, *[0] * (longest + extra - len(s))] for s in sentences]
            rows = Rows.padded(torch.tensor(wide, dtype=torch.long), [len(s) for s in sentences])
            places = [(i, slice(0, len(s))) for i, s in enumerate(sentences)]
        case "left":
            # A longer sentence in the last row pushes the others to the right.
            width = longest + extra
            rows = Rows.from_lists([*sentences, [0] * width], side="left")
            places = [(i, slice(width - len(s), width)) for i, s in enumerate(sentences)]
        case "packed":
            groups = [sentences[i : i + group] for i in range(0, len(sentences), group)]
            rows = Rows.pack(groups, max(sum(map(len, g)) for g in groups) + extra)
            places = []
            for i, members in enumerate(groups):
                start = 0
                for s in members:
                    places.append((i, slice(start, start + len(s))))
                    start += len(s)
    return with_filler(rows, filler), places


def run(model: Model, source: Rows, target: Rows) -> Tensor:
    """Logits of any family; those with one text read the target."""
    return model(source, target) if isinstance(model, Transformer) else model(target)


def loss_and_gradients(model: Any, source: Rows, target: Rows, labels: Tensor, **options: float) -> list[Tensor]:
    """The loss of any family, and the gradient of every parameter."""
    model.zero_grad()
    loss = model.loss(*((source, target) if isinstance(model, Transformer) else (target,)), labels, **options)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def scores(model: Model, pairs: Sequence[Pair], how: How, **layout: int) -> list[Tensor]:
    """The logits of each sentence's own positions, however the sentences are laid out."""
    if how == "alone":
        alone = [run(model, Rows.whole(torch.tensor([s])), Rows.whole(torch.tensor([t]))) for s, t in pairs]
        return [logits[0] for logits in alone]
    source, _ = lay_out([s for s, _ in pairs], how, **layout)
    target, places = lay_out([t for _, t in pairs], how, **layout)
    logits = run(model, source, target)
    return [logits[row, columns] for row, columns in places]


def gap(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """The largest difference anywhere, beside the largest number where that is above 1: without a norm they grow."""
    pairs = [(a.detach(), b.detach()) for a, b in zip(first, second, strict=True) if a.numel()]
    return max(float((a - b).abs().max()) for a, b in pairs) / max(1.0, *(float(a.abs().max()) for a, _ in pairs))
