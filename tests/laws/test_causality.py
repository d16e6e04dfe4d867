"""A future token never changes an earlier logit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import glassformer.models.parts as parts
from glassformer.nn import AttentionMask, Rows
from tests.counts import count
from tests.laws.zoo import CAUSAL, POSITIONS, VOCABULARY, How, Model, cases, lay_out, run, small, some_pairs

PAIRS = some_pairs([(4, 6), (7, 3), (2, 8), (5, 5)])
LAYOUTS: tuple[How, ...] = ("right", "left", "packed")


def stacked(rows: Rows, times: int) -> Rows:
    tokens, segments, positions = (t.repeat(times, 1) for t in (rows.tokens, rows.segments, rows.positions))
    return Rows(tokens, segments, positions, rows.layout)


def future_gap(model: Model, source: Rows, target: Rows) -> float:
    """For every column: change all tokens from there on; the largest change of a real logit before it.

    The original and all its changed copies run as one batch."""
    rows, width = target.shape
    copies = stacked(target, width)
    changed = copies.tokens.view(width, rows, width).clone()
    for cut in range(1, width):
        changed[cut, :, cut:] = (changed[cut, :, cut:] + 1 + cut % (VOCABULARY - 1)) % VOCABULARY
    with torch.no_grad():
        logits = run(model, stacked(source, width), replace(copies, tokens=changed.flatten(0, 1)))
    difference = (logits.unflatten(0, (width, rows)) - logits[:rows]).abs().amax(-1) * target.real
    assert difference.max() > 0, "the change itself must be felt, or the test sees nothing"
    return max(float(difference[cut, :, :cut].max()) for cut in range(1, width))


def future_gap_everywhere(model: Model) -> float:
    whole = torch.arange(12).view(2, 6) % VOCABULARY
    largest = future_gap(model, Rows.whole(whole), Rows.whole(whole.flip(1)))
    for how in LAYOUTS:
        source, _ = lay_out([s for s, _ in PAIRS], how, extra=1, group=2)
        target, _ = lay_out([t for _, t in PAIRS], how, extra=1, group=2)
        largest = max(largest, future_gap(model, source, target))
    return largest


@pytest.mark.parametrize(("family", "changes"), cases(*CAUSAL))
def test_the_future_is_not_seen(family: str, changes: dict[str, Any]) -> None:
    """Nothing at all may change, to the last bit but one. Caught: see `test_broken_sights_are_caught`."""
    assert future_gap_everywhere(small(family, **changes)) <= 1e-13


@settings(max_examples=count(fast=8, soak=200), deadline=None)
@given(
    family=st.sampled_from(CAUSAL),
    positions=st.sampled_from(POSITIONS),
    norm=st.sampled_from(["layer", "rms", "batch", "none"]),
    pre_norm=st.booleans(),
    n_kv_head=st.sampled_from([1, 2, 6]),
    window=st.sampled_from([None, 1, 2, 5]),
    lengths=st.lists(st.tuples(st.integers(1, 7), st.integers(2, 7)), min_size=1, max_size=4),
    how=st.sampled_from(LAYOUTS),
    seed=st.integers(0, 99),
)
def test_the_future_is_not_seen_in_any_mixture(
    family: str, lengths: list[tuple[int, int]], how: How, seed: int, **changes: Any
) -> None:
    pairs = some_pairs(lengths, seed)
    source, _ = lay_out([s for s, _ in pairs], how)
    target, _ = lay_out([t for _, t in pairs], how)
    assert future_gap(small(family, seed=seed, **changes), source, target) <= 1e-13


def not_causal(rows: Rows, *, causal: bool, window: int | None = None) -> AttentionMask:
    return self_mask(rows, causal=False, window=window)


def one_too_far(rows: Rows, *, causal: bool, window: int | None = None) -> AttentionMask:
    """A triangle that starts one diagonal too high."""
    everything = self_mask(rows, causal=False, window=window).to_tensor(
        rows.shape[1], rows.shape[1], torch.device("cpu")
    )
    near = rows.positions[:, :, None] - rows.positions[:, None, :] >= -1
    return AttentionMask(near[:, None] if everything is None else near[:, None] & everything)


def trusts_the_layout(rows: Rows, *, causal: bool, window: int | None = None) -> AttentionMask:
    """Reads only the triangle of columns, with a window of positions on both sides: right for one sentence a row only."""
    return self_mask(replace(rows, layout="whole"), causal=False, window=2)


self_mask = parts.self_mask


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("broken", [not_causal, one_too_far, trusts_the_layout])
def test_broken_sights_are_caught(
    family: str, broken: Callable[..., AttentionMask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "self_mask", broken)
    assert future_gap_everywhere(small(family)) > 1e-3


def test_the_target_fed_to_the_encoder_is_caught() -> None:
    """The tutorials' mistake: the same ids go to encoder and decoder, so the encoder hands the future to the decoder."""

    class Leaky:
        """Reads the target as its own source."""

        def __init__(self) -> None:
            self.model = small("transformer")

        def __call__(self, target: Rows) -> torch.Tensor:
            return self.model(target, target)

    target = Rows.whole(torch.arange(12).view(2, 6))
    assert future_gap(Leaky(), target, target) > 1e-3  # type: ignore[arg-type]


def test_an_encoder_sees_both_ways() -> None:
    """BERT is not causal, and the checker says so."""
    assert future_gap_everywhere(small("bert")) > 1e-3


@pytest.mark.parametrize("family", CAUSAL)
def test_batch_norm_in_training_is_exempt(family: str) -> None:
    """BatchNorm in training mode takes its statistics over all tokens of the batch, later ones included: a model with it
    is not causal while it trains. This is no fault of the code but what the method is, and one reason why Transformers
    do without it. While evaluating it is causal again."""
    model = small(family, norm="batch")
    source, target = torch.arange(10).view(2, 5), torch.arange(12).view(2, 6)
    changed = target.clone()
    changed[:, -1] += 1

    def change_of_the_past() -> float:
        before, after = (run(model, Rows.whole(source), Rows.whole(t))[:, :-1].detach() for t in (target, changed))
        return float((before - after).abs().max())

    assert change_of_the_past() <= 1e-13
    model.train()
    assert change_of_the_past() > 1e-3
