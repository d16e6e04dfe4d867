"""How much padding there is, on which side and what it holds never changes a real position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import glassformer.models.parts as parts
import glassformer.models.transformer as transformer
from glassformer.nn import IGNORE, AttentionMask, Rows
from tests.counts import count
from tests.laws.zoo import CAUSAL, FAMILIES, Model, Pair, cases, gap, run, scores, small, some_pairs

TOLERANCE = 1e-12
PAIRS = some_pairs([(5, 3), (2, 7), (4, 4), (7, 1), (1, 6)])
LAYOUTS: list[dict[str, Any]] = [
    {"how": "right"},
    {"how": "right", "extra": 6, "filler": 1},
    {"how": "left", "extra": 1},
    {"how": "left", "extra": 5, "filler": 2},
    {"how": "packed", "extra": 4, "filler": 3},
]


def padding_gap(model: Model, pairs: list[Pair] = PAIRS) -> float:
    """The largest difference that any layout makes, beside each sentence alone in its batch, which has no padding."""
    with torch.no_grad():
        alone = scores(model, pairs, "alone")
        return max(gap(alone, scores(model, pairs, **layout)) for layout in LAYOUTS)


@pytest.mark.parametrize(("family", "changes"), cases(*FAMILIES))
def test_padding_changes_nothing(family: str, changes: dict[str, Any]) -> None:
    """Caught: see `test_broken_sights_are_caught`."""
    assert padding_gap(small(family, **changes)) <= TOLERANCE


@settings(max_examples=count(fast=15, soak=400), deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    positions=st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]),
    norm=st.sampled_from(["layer", "rms", "batch", "none"]),
    pre_norm=st.booleans(),
    n_kv_head=st.sampled_from([1, 2, 3, 6]),
    window=st.sampled_from([None, 1, 2, 5]),
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_padding_changes_nothing_in_any_mixture(
    family: str, lengths: list[tuple[int, int]], seed: int, **changes: Any
) -> None:
    assert padding_gap(small(family, seed=seed, **changes), some_pairs(lengths, seed)) <= TOLERANCE


def blind_to_segments(rows: Rows, **options: Any) -> AttentionMask:
    return self_mask(replace(rows, segments=torch.ones_like(rows.segments)), **options)


def blind_to_the_left(rows: Rows, **options: Any) -> AttentionMask:
    """Takes every row for one that begins at column 0."""
    return self_mask(replace(rows, layout="padded"), **options)


def padding_by_token_id(rows: Rows, **options: Any) -> AttentionMask:
    """Takes the id 0 for padding, as the tutorials do."""
    return self_mask(replace(rows, segments=(rows.tokens != 0).long(), layout="packed"), **options)


def cross_without_padding(queries: Rows, keys: Rows, **options: Any) -> AttentionMask:
    return AttentionMask()


self_mask = parts.self_mask


@pytest.mark.parametrize(
    ("family", "broken"),
    [
        *[(family, broken) for family in FAMILIES for broken in (blind_to_segments, padding_by_token_id)],
        *[(family, blind_to_the_left) for family in CAUSAL],
    ],
)
def test_broken_sights_are_caught(
    family: str, broken: Callable[..., AttentionMask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "self_mask", broken)
    assert padding_gap(small(family)) > 1e-3


def test_cross_attention_to_padding_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "cross_mask", cross_without_padding)
    assert padding_gap(small("transformer")) > 1e-3


@pytest.mark.parametrize(("family", "changes"), cases(*FAMILIES))
def test_a_row_of_nothing_but_padding(family: str, changes: dict[str, Any]) -> None:
    """Finite logits and gradients with an empty source, an empty target, or both; the other rows do not notice.

    Caught: a softmax over an empty set (NaN), which turns every gradient into NaN."""
    model = small(family, **changes)
    source, target = torch.randint(0, 19, (4, 5)), torch.randint(0, 19, (4, 6))
    full = run(model, Rows.whole(source[:1]), Rows.whole(target[:1]))
    logits = run(model, Rows.padded(source, [5, 0, 3, 0]), Rows.padded(target, [6, 4, 0, 0]))
    assert logits.isfinite().all()
    assert gap([full[0]], [logits[0]]) <= TOLERANCE
    logits.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    model.zero_grad()
    labels = target.clone()
    labels[1, 4:] = labels[2:] = IGNORE
    inputs = (Rows.padded(source, [5, 0, 3, 0]), Rows.padded(target, [6, 4, 0, 0]))
    loss = model.loss(*(inputs if family == "transformer" else inputs[1:]), labels)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_batch_norm_in_training_is_exempt_from_its_neighbours_but_not_from_padding(family: str) -> None:
    """In training mode BatchNorm makes sentences see each other: a sentence alone and in a batch differ. That is what it
    is. But padding stays out of the statistics: the same sentences padded left, right, more, or packed, are the same.

    Caught: statistics over all columns (the head of BERT once forgot)."""
    model = small(family, norm="batch").train()
    with torch.no_grad():
        alone, right = scores(model, PAIRS, "alone"), scores(model, PAIRS, "right")
        assert gap(alone, right) > 1e-2
        for layout in ({"how": "right", "extra": 6, "filler": 1}, {"how": "packed", "extra": 4, "filler": 3}):
            assert gap(right, scores(model, PAIRS, **layout)) <= TOLERANCE  # type: ignore[arg-type]
