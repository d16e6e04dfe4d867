"""A sliding window in blocks is the same attention as the masked equation, in memory that grows with the length."""

from __future__ import annotations

import itertools

import pytest
import torch

from glassformer.config import ModelConfig
from glassformer.models import build_model
from glassformer.nn.attention import attention, fused_attention, sliding_window_attention
from glassformer.nn.masks import AttentionMask, self_mask
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record


def drawn(heads: int, key_heads: int, length: int) -> list[torch.Tensor]:
    torch.manual_seed(length)
    shapes = ((2, heads, length, 4), (2, key_heads, length, 4), (2, key_heads, length, 6))
    return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize(
    ("length", "window", "key_heads"),
    [(n, w, h) for n, w in itertools.product((1, 7, 8, 9, 24, 25), (1, 3, 8)) for h in (4, 2)],
)
def test_blocks_are_the_equation(length: int, window: int, key_heads: int) -> None:
    """Values and gradients. Broken variants: one key too many or too few; the block before the first, which is not there, seen
    as zeros; the padding at the end; key heads given to the wrong query heads."""
    q, k, v = drawn(4, key_heads, length)
    mask = AttentionMask(causal=True, window=window).to_tensor(length, length, q.device)
    assert mask is not None
    by_hand = [[0 <= i - j < window for j in range(length)] for i in range(length)]
    assert mask.tolist() == by_hand
    times = 4 // key_heads
    wanted = attention(q, k.repeat_interleave(times, 1), v.repeat_interleave(times, 1), mask)
    found = sliding_window_attention(q, k, v, window)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    pull = torch.randn_like(wanted)
    for one, other in zip(
        torch.autograd.grad(found, (q, k, v), pull), torch.autograd.grad(wanted, (q, k, v), pull), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
@pytest.mark.parametrize("lengths", [[20, 20], [20, 13]])
def test_a_model_with_a_window(positions: str, lengths: list[int]) -> None:
    """Fast path, and the explicit one that someone who listens gets; whole rows, padded ones, and packed ones, which keep
    their mask. Broken variant: ALiBi's bias that loses the window."""
    torch.manual_seed(0)
    settings = {
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 16,
        "vocab_size": 50,
        "block_size": 32,
        "dropout": 0.0,
        "window": 4,
    }
    model = build_model(ModelConfig(family="gpt", positions=positions, **settings)).double().eval()  # type: ignore[arg-type]
    rows = Rows.padded(torch.randint(0, 50, (2, 20)), lengths)
    packed = Rows(rows.tokens, rows.segments, rows.positions, "packed")
    assert (
        self_mask(rows, causal=True, window=4).allowed is None
        and self_mask(packed, causal=True, window=4).allowed is not None
    )
    found = model(rows)
    with record(model, "decoder.*.attention.weights") as seen:
        watched = model(rows)
    for weights in seen.values():
        assert not weights.tril(-4).any() and not weights.triu(1).any()
    for row, length in enumerate(lengths):
        for other in (watched, model(packed)):
            torch.testing.assert_close(found[row, :length], other[row, :length], atol=1e-10, rtol=0)


def test_no_square_of_the_length_is_ever_made() -> None:
    """The largest tensor of a long row, by its number of elements. Broken variant: the mask of the whole row."""
    length, window = 4096, 16
    q, k, v = (torch.randn(1, 1, length, 8) for _ in range(3))
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = function(*arguments, **(options or {}))
            for one in out if isinstance(out, tuple | list) else (out,):
                if isinstance(one, torch.Tensor):
                    largest = max(largest, one.numel())
            return out

    with Watch(), torch.no_grad():
        fused_attention(q, k, v, AttentionMask(causal=True, window=window))
    assert 0 < largest <= length * 2 * window * 2 < length**2 // 8
