"""The few cases of the laws leave out no two choices."""

from __future__ import annotations

from itertools import combinations, product

from tests.covering import Row, covering
from tests.laws.zoo import CHOICES, FAMILIES, cases, is_model


def test_every_two_levels_meet_that_may() -> None:
    """By enumeration. Broken variants: a pair that is struck off and in no row; a row that is not allowed."""
    factors = {"a": range(4), "b": range(3), "c": range(2), "d": range(2)}

    def allowed(row: Row) -> bool:
        return not (row.get("a") == 1 and row.get("c") == 1) and not (row.get("b") == 2 and row.get("d") == 0)

    rows = covering(factors, allowed)
    assert all(row.keys() == factors.keys() and allowed(row) for row in rows)
    for one, other in combinations(factors, 2):
        for first, second in product(factors[one], factors[other]):
            met = any(row[one] == first and row[other] == second for row in rows)
            assert met == allowed({one: first, other: second})
    assert len(rows) < 4 * 3 * 2 * 2 / 2


def test_the_zoo_is_covered() -> None:
    """Every variant in every family, and every two of different lines. Broken variant: a line that is not among the factors."""
    seen = [(family, changes) for family, changes in (case.values for case in cases(*FAMILIES))]
    levels = [(line, changes) for line, how in CHOICES.items() for changes in how.values()]
    for line, changes in levels:
        for family in FAMILIES:
            assert any(f == family and changes.items() <= made.items() for f, made in seen), (family, changes)
        for other, more in levels:
            if line != other and is_model(changes | more):
                assert any((changes | more).items() <= made.items() for _, made in seen), (changes, more)
