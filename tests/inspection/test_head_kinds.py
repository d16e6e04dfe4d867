"""The kinds of attention heads: patterns made by hand, each of which has its own kind and no other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glassformer.inspection.heads.importance import Importance
from glassformer.inspection.heads.kinds import KINDS, AttentionStats, add_attention, add_induction, kind_of
from glassformer.probe.seeing import Component

pytestmark = pytest.mark.slow

LENGTHS = torch.tensor([7, 5])  # two rows of seven places, the second with two of padding


def pattern(choose: Any, *, queries: torch.Tensor = LENGTHS, keys: torch.Tensor = LENGTHS, causal: bool = False) -> Any:
    """Weights of one head in which every query puts everything on the key `choose` says, or spreads it (None); what it
    cannot say goes to the key after the middle, where no kind stats. With who may be seen."""
    rows, t, s = len(queries), int(queries.max()), int(keys.max())
    weights = torch.zeros(rows, 1, t, s)
    visible = torch.zeros(rows, t, s, dtype=torch.bool)
    for b in range(rows):
        for i in range(t):
            seen = [j for j in range(int(keys[b])) if not causal or j <= i]
            visible[b, i, seen] = True
            key = choose(i, int(queries[b]), int(keys[b]))
            if key is None:
                weights[b, 0, i, seen] = 1 / len(seen)
            else:
                weights[b, 0, i, key if key in seen else seen[-1]] = 1.0
    return weights, queries, keys, visible


def scores(*made: Any, cross: bool = False) -> dict[str, float]:
    stats = AttentionStats()
    add_attention(stats, *made, cross=cross)
    return {kind: values[0] for kind, values in stats.scores().items()}


SELF = {
    "previous": lambda i, q, k: i - 1 if i else 0,
    "next": lambda i, q, k: i + 1,
    "same": lambda i, q, k: i,
    "first": lambda i, q, k: 0,
    "last": lambda i, q, k: k - 1,
    "broad": lambda i, q, k: None,
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", list(SELF))
def test_a_pattern_of_a_kind_has_score_one_of_it_and_of_no_other(kind: str, causal: bool) -> None:
    """Broken variants: padding queries counted; off by one; the first query, which has no previous, counted against it."""
    if causal and kind in ("next", "last"):
        found = scores(*pattern(SELF["same"], causal=True))
        assert kind not in found, "what no query may do is no score of zero, it is not there"
        return
    found = scores(*pattern(SELF[kind], causal=causal))
    assert found[kind] == pytest.approx(1.0)
    assert all(value < 0.5 for other, value in found.items() if other != kind)
    assert kind_of(found) == kind


@pytest.mark.parametrize(("t", "s"), [(7, 7), (4, 9), (9, 4), (2, 6), (6, 2)])
def test_the_diagonal_of_a_rectangle(t: int, s: int) -> None:
    """From corner to corner, whatever the two lengths; with padding in one row. Broken variant: a diagonal of the padded
    rectangle, or of slope one."""
    queries, keys = torch.tensor([t, max(2, t - 1)]), torch.tensor([s, max(2, s - 1)])
    made = pattern(lambda i, q, k: round(i * (k - 1) / (q - 1)) if i < q else 0, queries=queries, keys=keys)
    found = scores(*made, cross=True)
    assert found["diagonal"] == pytest.approx(1.0)
    assert "previous" not in found and "induction" not in found
    backwards = pattern(
        lambda i, q, k: k - 1 - round(i * (k - 1) / (q - 1)) if i < q else 0, queries=queries, keys=keys
    )
    assert scores(*backwards, cross=True)["diagonal"] < (0.5 if min(t, s) > 3 else 0.9), "short sides have few keys"
    assert kind_of(found) in ("diagonal", "same"), "a square's diagonal is both"


def test_induction_is_what_came_after_the_same_token_before() -> None:
    """a b c a: the second a looks at b. Broken variants: looks at the first a; queries that say something new are counted;
    a token that follows itself counts as induction where it looks at itself."""
    tokens = torch.tensor([[5, 6, 7, 5, 6, 7], [8, 8, 9, 3, 8, 0]])
    lengths = torch.tensor([6, 5])
    weights = torch.zeros(2, 2, 6, 6)
    weights[:, :, :, 0] = 1.0
    for row, query, keys in ((0, 3, [1]), (0, 4, [2]), (0, 5, [3]), (1, 4, [1, 2])):
        weights[row, 0, query] = 0.0
        weights[row, 0, query, keys] = 1 / len(keys)
    stats = AttentionStats()
    add_induction(stats, weights, tokens, lengths)
    assert stats.count["induction"] == 4, "three in the first row, one in the second"
    assert stats.scores()["induction"] == pytest.approx([1.0, 0.0])


def test_kinds_of_sums_over_batches_are_those_of_all_queries() -> None:
    """Two batches of different sizes weigh by their queries. Broken variant: a mean of means."""
    stats = AttentionStats()
    add_attention(stats, *pattern(SELF["first"]))
    add_attention(stats, *pattern(SELF["same"], queries=torch.tensor([3]), keys=torch.tensor([3])))
    # Eleven and three queries; of the first batch the two that are first tokens themselves look at "same" too.
    assert stats.scores()["same"][0] == pytest.approx((2 + 3) / 15)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"previous": 0.6, "same": 0.3, "broad": 0.9}, "previous"),
        ({"previous": 0.3, "broad": 0.6}, "broad"),
        ({"previous": 0.3, "broad": 0.4}, "mixed"),
        ({}, "mixed"),
    ],
)
def test_the_name_of_a_kind(given: dict[str, float], kind: str) -> None:
    assert kind_of(given) == kind


def test_a_head_that_works_in_a_few_rows_is_pointed_there() -> None:
    """Even in all rows but every fifth, which looks at the token before: broad by its mean, and pointed in just those rows.
    Broken variants: padding counted as rows; the first row, which has no choice, counted; the share taken of the pointed rows
    alone."""
    lengths = torch.tensor([20, 14])
    made = pattern(lambda i, q, k: i - 1 if i and i % 5 == 0 else None, queries=lengths, keys=lengths, causal=True)
    stats = AttentionStats()
    add_attention(stats, *made)
    weights, queries = made[0], made[1]
    rows = [(row, i) for row, length in enumerate(queries.tolist()) for i in range(1, length)]
    working = [(row, i) for row, i in rows if weights[row, 0, i].max() > 0.5]
    assert {i % 5 for _, i in working} == {0} and kind_of({k: v[0] for k, v in stats.scores().items()}) == "broad"
    pointed = {name: values[0] for name, values in stats.pointed().items()}
    assert pointed["all"] == pointed["previous"] == pytest.approx(len(working) / len(rows))
    assert pointed["same"] == 0 and set(stats.scores()) <= set(KINDS)
    part = Importance(Component("decoder.0.attention", 0), {}, {}, pointed)
    assert part.points == (pytest.approx(len(working) / len(rows)), "previous")
