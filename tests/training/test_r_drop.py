"""R-Drop against its formula, written out sentence by sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from glassformer.config import ModelConfig, Recipe
from glassformer.errors import ConfigError
from glassformer.models import build_model
from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Rows
from glassformer.training.r_drop import r_drop_loss, twice

SMALL = ModelConfig(
    family="transformer", vocab_size=19, n_layer=1, n_head=2, n_embd=16, n_hidden=24, block_size=12, dropout=0.3
)


def batch(family: str) -> tuple[list[Rows], torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    source = Rows.padded(torch.randint(3, 19, (4, 7), generator=draw), [7, 3, 5, 1])
    target = Rows.padded(torch.randint(3, 19, (4, 6), generator=draw), [2, 6, 4, 5])
    labels = torch.randint(3, 19, (4, 6), generator=draw).masked_fill(~target.real, IGNORE)
    return [source, target] if family == "transformer" else [target], labels


@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_is_the_papers_formula(family: str) -> None:
    """A broken variant: KL in one direction only, or the smoothed target in it, or positions without a label counted."""
    torch.manual_seed(1)
    model: Any = build_model(replace(SMALL, family=family)).double().train()  # type: ignore[arg-type]
    inputs, labels = batch(family)
    torch.manual_seed(5)
    found = r_drop_loss(model, inputs, labels, smoothing=0.1, strength=3.0)
    torch.manual_seed(5)
    scores = model.logits(model.hidden(*(twice(rows) for rows in inputs)))
    p, q = (torch.distributions.Categorical(logits=half) for half in scores.chunk(2))
    wanted = torch.zeros((), dtype=torch.float64)
    for b in range(labels.size(0)):
        for t in range(labels.size(1)):
            if labels[b, t] == IGNORE:
                continue
            one, other = (torch.distributions.Categorical(logits=d.logits[b, t]) for d in (p, q))
            for d in (one, other):
                target = torch.full((19,), 0.1 / 19, dtype=torch.float64)
                target[labels[b, t]] += 0.9
                wanted = wanted + 0.5 * torch.nn.functional.cross_entropy(d.logits, target)
            kl = torch.distributions.kl_divergence
            wanted = wanted + 3.0 / 4 * (kl(one, other) + kl(other, one))
    torch.testing.assert_close(found, wanted)


def test_without_dropout_it_is_the_plain_loss() -> None:
    """Two passes that drop nothing agree. A broken variant: losses added where they should be averaged."""
    torch.manual_seed(1)
    model: Any = build_model(SMALL).double().eval()
    inputs, labels = batch("transformer")
    found = r_drop_loss(model, inputs, labels, smoothing=0.1, strength=5.0)
    torch.testing.assert_close(found, model.loss(*inputs, labels, smoothing=0.1))


def test_the_two_passes_drop_different_numbers() -> None:
    torch.manual_seed(1)
    model: Any = build_model(SMALL).double().train()
    first, second = model.hidden(*(twice(rows) for rows in batch("transformer")[0])).chunk(2)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"dropout": 0.0}}, "nothing is dropped"),
        ({"model": {"family": "bert"}}, "a BERT expects none"),
        ({"train": {"precision": "fp8"}}, "do not go together"),
    ],
)
def test_what_it_cannot_go_with_is_told_at_once(changes: dict[str, Any], sentence: str) -> None:
    values = {"model": changes.get("model", {}), "train": {"r_drop": 1.0, **changes.get("train", {})}}
    with pytest.raises(ConfigError, match=sentence):
        Recipe.from_dict(values)
