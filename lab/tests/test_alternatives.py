"""What attention is compared with: linear attention, a recurrent layer, a convolution. Each against its plain form."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from glassformer.nn.masks import AttentionMask, self_mask
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record
from glassformer_lab.alternatives.convolution import Convolution
from glassformer_lab.alternatives.linear_attention import LinearAttention, linear_attention, linear_attention_weights
from glassformer_lab.alternatives.recurrent import Recurrent, lstm


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 5, 64, 150])
def test_linear_attention_is_its_quadratic_form(causal: bool, length: int) -> None:
    """Broken variants: a block that forgets what came before it; the diagonal left out; sums that are not divided."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, length, 4, dtype=torch.float64) for _ in range(3))
    mask = torch.ones(length, length).tril().bool() if causal else None
    torch.testing.assert_close(
        linear_attention(q, k, v, causal=causal), linear_attention_weights(q, k, mask) @ v, atol=1e-12, rtol=0
    )


def test_linear_attention_as_a_layer() -> None:
    """Padding changes nothing, watched = unwatched, and a row's weights sum to one."""
    torch.manual_seed(0)
    layer = LinearAttention(16, 4, n_kv_head=2).double()
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    rows = Rows.padded(torch.zeros(2, 9, dtype=torch.long), [9, 6])
    for causal in (True, False):
        mask = self_mask(rows, causal=causal)
        plain = layer(x, mask)
        torch.testing.assert_close(plain[1:, :6], layer(x[1:, :6], AttentionMask(causal=causal)), atol=1e-12, rtol=0)
        with record(layer, "weights") as seen:
            watched = layer(x, mask)
        torch.testing.assert_close(watched, plain, atol=1e-12, rtol=0)
        torch.testing.assert_close(seen["weights"].sum(-1), torch.ones(2, 4, 9, dtype=torch.float64))


def test_the_recurrent_equation_is_torchs_layer() -> None:
    """Broken variant: gates in another order than i, f, g, o."""
    torch.manual_seed(0)
    layer = Recurrent(8).double()
    x = torch.randn(3, 7, 8, dtype=torch.float64)
    own = layer.layer
    weights = own.weight_ih_l0, own.weight_hh_l0, own.bias_ih_l0 + own.bias_hh_l0
    torch.testing.assert_close(layer(x, AttentionMask(causal=True)), lstm(x, weights), atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["recurrent", "convolution"])
def test_padding_says_nothing_and_the_future_is_not_seen(kind: str) -> None:
    """Broken variants: a backward reader that begins in the padding; a convolution centred where it must be causal."""
    torch.manual_seed(0)
    rows = Rows.padded(torch.zeros(2, 9, dtype=torch.long), [9, 5])
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    for causal in (True, False):
        made: nn.Module = Recurrent(8, causal=causal) if kind == "recurrent" else Convolution(8, kernel_size=5)
        layer = made.double()
        both = layer(x, self_mask(rows, causal=causal))
        alone = layer(x[1:, :5], AttentionMask(causal=causal))
        torch.testing.assert_close(both[1:, :5], alone, atol=1e-12, rtol=0)
        changed = x.clone()
        changed[:, 6] += 1
        moved = (
            (layer(changed, AttentionMask(causal=causal)) - layer(x, AttentionMask(causal=causal))).abs().sum((0, 2))
        )
        assert (moved[:6].sum() == 0) == causal
        assert moved[6:].sum() > 0


def test_a_convolution_is_a_sum_over_its_neighbours() -> None:
    torch.manual_seed(0)
    layer = Convolution(4, kernel_size=3).double()
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    weight, bias = layer.layer.weight, layer.layer.bias
    assert bias is not None
    before = [torch.zeros(4, dtype=torch.float64)] * 2
    tokens = [*before, *x[0]]
    by_hand = torch.stack([sum(weight[:, :, j] @ tokens[t + j] for j in range(3)) + bias for t in range(6)])
    torch.testing.assert_close(layer(x, AttentionMask(causal=True))[0], by_hand, atol=1e-12, rtol=0)
