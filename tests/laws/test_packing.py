"""Several sentences a row are the same as one sentence a row: for every family, in logits, loss and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import glassformer.models.parts as parts
import glassformer.models.transformer as transformer
from glassformer.nn import IGNORE, Rows
from tests.counts import count
from tests.laws.zoo import (
    FAMILIES,
    VOCABULARY,
    How,
    Model,
    Pair,
    cases,
    gap,
    lay_out,
    loss_and_gradients,
    scores,
    small,
    some_pairs,
)

PAIRS = some_pairs([(5, 3), (2, 7), (4, 4), (7, 1), (1, 6), (3, 3)])


def results(model: Model, pairs: list[Pair], how: How, group: int) -> list[Tensor]:
    """Every position is asked for the word that stands there plus one; padding is asked for nothing."""
    source, _ = lay_out([s for s, _ in pairs], how, extra=2, group=group, filler=5)
    target, _ = lay_out([t for _, t in pairs], how, extra=2, group=group, filler=6)
    labels = torch.where(target.real, (target.tokens + 1) % VOCABULARY, IGNORE)
    return loss_and_gradients(model, source, target, labels, smoothing=0.1)


def packing_gap(model: Model, pairs: list[Pair] = PAIRS, group: int = 3) -> float:
    with torch.no_grad():
        logits = gap(scores(model, pairs, "alone"), scores(model, pairs, "packed", group=group, extra=3, filler=4))
    return max(logits, gap(results(model, pairs, "right", 1), results(model, pairs, "packed", group)))


@pytest.mark.parametrize(("family", "changes"), cases(*FAMILIES))
def test_packed_is_one_sentence_a_row(family: str, changes: dict[str, Any]) -> None:
    """Caught: segments that see each other, positions that do not restart, cross-attention to another pair's source."""
    assert packing_gap(small(family, **changes)) <= 1e-10


@settings(max_examples=count(fast=10, soak=300), deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    positions=st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]),
    window=st.sampled_from([None, 1, 3]),
    n_kv_head=st.sampled_from([1, 2, 6]),
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=8),
    group=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_packed_is_one_sentence_a_row_in_any_mixture(
    family: str, lengths: list[tuple[int, int]], group: int, seed: int, **changes: Any
) -> None:
    assert packing_gap(small(family, seed=seed, **changes), some_pairs(lengths, seed), group) <= 1e-10


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_that_do_not_restart_are_caught(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = Rows.pack

    def running(rows: Any, width: int) -> Rows:
        packed = pack(rows, width)
        return Rows(packed.tokens, packed.segments, torch.arange(width).expand_as(packed.tokens), "packed")

    monkeypatch.setattr(Rows, "pack", staticmethod(running))
    assert packing_gap(small(family)) > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_sentences_that_see_each_other_are_caught(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = parts.self_mask

    def merged(rows: Rows, **options: Any) -> Any:
        return right(Rows(rows.tokens, rows.segments.clamp(max=1), rows.positions, rows.layout), **options)

    monkeypatch.setattr(parts, "self_mask", merged)
    assert packing_gap(small(family)) > 1e-3


def test_reading_another_source_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = transformer.cross_mask

    def merged(queries: Rows, keys: Rows) -> Any:
        def one(rows: Rows) -> Rows:
            return Rows(rows.tokens, rows.segments.clamp(max=1), rows.positions, rows.layout)

        return right(one(queries), one(keys))

    monkeypatch.setattr(transformer, "cross_mask", merged)
    assert packing_gap(small("transformer")) > 1e-3


def test_packed_rows_may_be_wider_than_the_positions_a_model_has_learned() -> None:
    """As long as each sentence fits. Caught: the width of the row taken for the length of a sentence."""
    model = small("gpt", positions="learned", block_size=5)
    sentences = [[5, 6, 7], [8, 9, 5, 6, 7], [6, 8]]
    packed = model(Rows.pack([sentences], 16))
    start = 0
    for sentence in sentences:
        alone = model(Rows.from_lists([sentence]))
        assert gap(packed[:, start : start + len(sentence)], alone) <= 1e-12
        start += len(sentence)
    with pytest.raises(ValueError, match="positions this model has learned"):
        model(Rows.pack([[[5, 6, 7, 8, 9, 5]]], 16))
