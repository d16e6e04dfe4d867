"""Pruned heads: a smaller model that answers as the ablated one, at once and token by token."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from glassformer import probe
from glassformer.accel.decoding.block import decoding_copy
from glassformer.accel.decoding.operations import PackedOps
from glassformer.config import ModelConfig
from glassformer.errors import ConfigError, UserError
from glassformer.models import build_model
from glassformer.models.costs import costs
from glassformer.nn import Rows
from glassformer.nn.attention import MultiHeadAttention
from glassformer.probe import Component
from tests.laws.zoo import CAUSAL, FAMILIES, run, small
from tests.probing import CASES, logits


def chosen(model: Any, seed: int = 1) -> list[Component]:
    """Some heads here and there, and all heads of one attention."""
    draw = random.Random(seed)
    everything = probe.heads(model)
    last = everything[-1].module
    return [*draw.sample([p for p in everything if p.module != last], 3), *(p for p in everything if p.module == last)]


@pytest.mark.parametrize(("family", "changes"), [c for c in CASES if "share_layers" not in c.values[1]])
def test_a_pruned_model_answers_as_the_ablated_one_and_is_smaller(family: str, changes: dict[str, Any]) -> None:
    """For every kind of position, norm and grouping. Broken variants: the wrong rows of a projection; the slopes (ALiBi) or
    key heads (grouped) of the heads that are gone; a bias lost; costs counted for the whole model."""
    model = small(family, **changes)
    cut = chosen(model)
    with probe.ablate(model, cut):
        wanted = logits(model)
    smaller = probe.pruned(model, cut)
    torch.testing.assert_close(logits(smaller), wanted, rtol=1e-9, atol=1e-9)
    assert smaller.num_params() < model.num_params()
    assert smaller.num_params() == costs(smaller.config).parameters == sum(p.numel() for p in smaller.parameters())
    assert costs(smaller.config).forward_flops < costs(model.config).forward_flops
    with probe.record(smaller, "*.weights") as seen:
        assert torch.allclose(logits(smaller), wanted), "looked at, too"
    for name, weights in seen.items():
        module = smaller.get_submodule(name.removesuffix(".weights"))
        assert isinstance(module, MultiHeadAttention)
        assert weights.size(1) == len(module.head_ids) == len(smaller.config.kept_heads(name.removesuffix(".weights")))
    with pytest.raises(UserError, match="was pruned"):
        probe.find_parts(smaller, [str(cut[0])])


@pytest.mark.parametrize("family", FAMILIES)
def test_pruning_twice_is_pruning_once(family: str) -> None:
    """Heads keep their numbers, so the second cut names the same heads. Broken variant: numbers count what is left."""
    for changes in ({}, {"n_kv_head": 3}, {"positions": "alibi"}, {"positions": "relative"}):
        model = small(family, **changes)
        cut = chosen(model, seed=4)
        once = probe.pruned(model, cut)
        twice = probe.pruned(probe.pruned(model, cut[:2]), cut[2:])
        assert set(once.config.pruned_heads) == set(twice.config.pruned_heads)
        torch.testing.assert_close(logits(twice), logits(once), rtol=1e-9, atol=1e-9)
        assert twice.num_params() == once.num_params()


@pytest.mark.parametrize("changes", [{}, {"positions": "alibi"}, {"positions": "rotary", "n_kv_head": 3}])
@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_a_pruned_model_writes_token_by_token_what_it_writes_at_once(
    family: str, changes: dict[str, Any], engine: str
) -> None:
    """With a cache, and on the fast engine. Broken variant: a cache with room for the heads there once were."""
    model = probe.pruned(small(family, **changes), chosen(small(family, **changes)))
    sentences = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2]])
    source = Rows.whole(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    with torch.no_grad():
        writes = model if engine == "plain" else decoding_copy(model, PackedOps())
        cache = writes.start(source, 8) if family == "transformer" else writes.start(2, 8)
        steps = [writes.step(sentences[:, i : i + 1], cache) for i in range(5)]
        wanted = run(model, source, Rows.whole(sentences))
    torch.testing.assert_close(torch.cat(steps, dim=1), wanted, rtol=1e-8, atol=1e-8)


def test_what_cannot_be_pruned() -> None:
    with pytest.raises(UserError, match="only heads"):
        probe.pruned(small("gpt"), ["decoder.0.mlp"])
    with pytest.raises(UserError, match="share_layers"):
        probe.pruned(small("gpt", share_layers=True), ["decoder.0.attention:0"])
    sizes: dict[str, Any] = {"family": "gpt", "vocab_size": 5, "n_layer": 1, "n_head": 2, "n_embd": 4}
    with pytest.raises(ConfigError, match=r"no head 'decoder\.0\.attentoin:1'"):
        ModelConfig(**sizes, pruned_heads=("decoder.0.attentoin:1",))
    with pytest.raises(ConfigError, match="twice"):
        ModelConfig(**sizes, pruned_heads=("decoder.0.attention:1", "decoder.0.attention:1"))
    with pytest.raises(ConfigError, match="share_layers"):
        ModelConfig(**sizes, share_layers=True, pruned_heads=("decoder.0.attention:1",))
    assert build_model(ModelConfig(**sizes, pruned_heads=("decoder.0.attention:1",))).num_params() > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_knows_the_heads_of_its_model_and_no_others(family: str) -> None:
    """Every head of the model may be pruned by name, and nothing else. Broken variants: cross-attention in a GPT; a number
    that is written in another way."""
    model = small(family)
    config = model.config
    assert all(config.could_have_head(str(head)) for head in probe.heads(model))
    assert [f"{name}:{h}" for name in config.attentions for h in range(6)] == [str(h) for h in probe.heads(model)]
    side = "encoder" if family == "bert" else "decoder"
    other = {"bert": "decoder.0.attention:0", "gpt": "encoder.0.attention:0", "transformer": "encoder.0.cross:0"}
    for name in (
        *(f"{side}.2.attention:0", f"{side}.0.attention:6", f"{side}.00.attention:0", f"{side}.0.attention:٠"),
        *(f"{side}.0.attention:-1", f"{side}.0.mlp", f"{side}.0.attention", "", other[family]),
    ):
        assert not config.could_have_head(name), name
