"""Without positions attention sees a bag of words; with them, or with a causal rule, it sees an order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models import build_model
from glassformer.nn import AttentionMask, MultiHeadAttention, Rows
from glassformer.nn.positions import sinusoids
from tests.counts import count
from tests.laws.zoo import POSITIONS, VOCABULARY, Model, small

WORDS = {"我": 1, "喜": 2, "欢": 3, "你": 4}


def order_gap(model: Model, tokens: list[int], permutation: list[int]) -> float:
    """How far the logits of the permuted sentence are from the permuted logits of the sentence."""
    with torch.no_grad():
        first = model(Rows.whole(torch.tensor([tokens])))[0]
        second = model(Rows.whole(torch.tensor([[tokens[i] for i in permutation]])))[0]
    return float((first[permutation] - second).abs().max())


@settings(max_examples=count(fast=25, soak=500), deadline=None)
@given(tokens=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9), choice=st.randoms())
def test_without_positions_order_is_not_seen(tokens: list[int], choice: Any) -> None:
    permutation = list(range(len(tokens)))
    choice.shuffle(permutation)
    assert order_gap(small("bert", positions="none"), tokens, permutation) <= 1e-12


def test_one_layer_of_self_attention_is_permutation_equivariant() -> None:
    mha = MultiHeadAttention(24, 6).double()
    x, permutation = torch.randn(1, 7, 24).double(), torch.randperm(7)
    torch.testing.assert_close(
        mha(x, AttentionMask())[:, permutation], mha(x[:, permutation], AttentionMask()), atol=1e-12, rtol=0
    )


def test_i_like_you_and_you_like_me() -> None:
    """我喜欢你 and 你喜欢我 are the same four words: the same to a model without positions, not to one with them."""
    sentence, permutation = [WORDS[w] for w in "我喜欢你"], ["我喜欢你".index(w) for w in "你喜欢我"]
    assert order_gap(small("bert", positions="none"), sentence, permutation) <= 1e-12
    for scheme in POSITIONS:
        if scheme != "none":
            assert order_gap(small("bert", positions=scheme), sentence, permutation) > 1e-3


def test_a_causal_rule_is_an_order() -> None:
    """A GPT without positions still knows what came first: each token sees only what stands before it."""
    assert order_gap(small("gpt", positions="none"), [1, 2, 3, 4], [3, 1, 2, 0]) > 1e-3


@pytest.mark.parametrize("scheme", ["rotary", "alibi", "relative", "none"])
@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_relative_schemes_see_distance_alone(family: str, scheme: str) -> None:
    """The same sentence at positions shifted by 17 is the same; with absolute positions it is not."""
    tokens = torch.tensor([[5, 3, 8, 1, 9]])
    here = Rows.whole(tokens)
    there = Rows(tokens, here.segments, here.positions + 17, "packed")

    def shift_gap(model: Model) -> float:
        with torch.no_grad():
            return float((model(here) - model(there)).abs().max())

    assert shift_gap(small(family, positions=scheme)) <= 1e-11
    assert shift_gap(small(family, positions="sinusoidal")) > 1e-3
    assert shift_gap(small(family, positions="learned")) > 1e-3


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary", "alibi", "relative", "none"])
@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_positions_without_an_end(family: str, scheme: str) -> None:
    """A model built for rows of 4 and one built for rows of 40 with the same weights agree on a row of 11.

    Caught: a table that stops, repeats or is clamped at block_size."""
    short, long = small(family, positions=scheme, block_size=4), small(family, positions=scheme, block_size=40)
    rows = Rows.whole(torch.arange(11)[None])
    assert torch.equal(short(rows), long(rows))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary", "alibi"])
def test_tables_are_rounded_once(scheme: str, dtype: torch.dtype) -> None:
    """A model cast to a narrow dtype and back to double holds the same tables as one that never left double.

    Caught: a table cast like a weight, which keeps the rounding of every dtype it has passed through."""
    model, never_cast = small("gpt", positions=scheme), small("gpt", positions=scheme)
    model.to(dtype).double()
    tables = {name: buffer for name, buffer in model.named_buffers() if name.endswith("table")}
    assert tables
    for name, buffer in never_cast.named_buffers():
        if name.endswith("table"):
            assert torch.equal(tables[name], buffer)


def test_interpolated_positions_are_those_between_and_ntk_leaves_the_fastest_pair() -> None:
    """Chen et al. 2023: at position n * factor stands what stood at n. NTK: the fastest pair turns as before, the slowest
    `factor` times more slowly. Caught: a base raised by the factor itself, a squeeze that multiplies."""
    common = {"family": "gpt", "vocab_size": 9, "n_layer": 1, "n_head": 2, "n_embd": 32, "positions": "rotary"}
    plain, linear, ntk = (
        build_model(ModelConfig(**common, **more)).rotary  # type: ignore[arg-type]
        for more in (
            {},
            {"rotary_scaling": "linear", "rotary_factor": 4.0},
            {"rotary_scaling": "ntk", "rotary_factor": 4.0},
        )
    )
    assert plain is not None and linear is not None and ntk is not None
    torch.testing.assert_close(linear.table[::4], plain.table[: len(linear.table[::4])])
    angles = [torch.atan2(r.table[1, 8:], r.table[1, :8]) for r in (plain, ntk)]
    torch.testing.assert_close(angles[1][0], angles[0][0])
    torch.testing.assert_close(angles[1][-1] * 4, angles[0][-1], rtol=1e-4, atol=1e-8)
    for wrong in ({"rotary_scaling": "ntk"}, {"rotary_factor": 2.0}, {"rotary_factor": 0.5}):
        with pytest.raises(ConfigError):
            ModelConfig(**common, **wrong)  # type: ignore[arg-type]


def test_the_base_of_the_sinusoid_and_the_start_of_deep_models() -> None:
    sizes = {"family": "gpt", "vocab_size": 9, "n_layer": 8, "n_head": 2, "n_embd": 64}
    longer = build_model(ModelConfig(**sizes, sinusoid_base=1e6)).positions  # type: ignore[arg-type]
    torch.testing.assert_close(longer.table, sinusoids(256, 64, 1e6).float())
    stds = {}
    for scaled in (True, False):
        torch.manual_seed(0)
        model = build_model(ModelConfig(**sizes, scaled_init=scaled))  # type: ignore[arg-type]
        stds[scaled] = float(model.decoder.layers[0].mlp.down.weight.std())
    assert stds[False] == pytest.approx(0.02, rel=0.05) and stds[True] == pytest.approx(0.02 / 4, rel=0.05)
