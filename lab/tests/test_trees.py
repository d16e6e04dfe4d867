"""The trees of `reproduce treebank` and their score."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from glassformer.data.builtin.treebank import Tree, clause, in_one_line, words_of
from glassformer.evaluation.metrics import bracket_f1, constituents


def spans(tree: Tree, first: int = 0) -> list[tuple[str, int, int]]:
    """The constituents of a tree, from the tree itself and not from its line."""
    found, place = [], first
    for part in tree[1:]:
        if isinstance(part, str):
            place += 1
        else:
            inner = spans(part, place)
            found += inner
            place = inner[-1][2]
    return [*found, (tree[0], first, place)]


def test_a_line_has_the_constituents_of_its_tree() -> None:
    """Of two hundred sentences. Broken variants: words counted outside brackets; a span that ends a word early."""
    draw = Random(3)
    for _ in range(200):
        tree = clause(draw)
        found = constituents(in_one_line(tree))
        assert found is not None
        assert found == (Counter(spans(tree)), len(words_of(tree)))


def test_f1_by_hand() -> None:
    """Gold S NP VP NP (0-5, 0-2, 2-5, 3-5) against S NP VP PP (0-5, 0-2, 2-5, 4-5): 3 of 4 both ways; and a sentence whose tree
    does not close, 0 of 3. So 3 matched, 4 given, 7 wanted."""
    gold = "(S (NP XX XX )NP (VP XX (NP XX XX )NP )VP )S"
    ours = "(S (NP XX XX )NP (VP XX XX (PP XX )PP )VP )S"
    second = "(S (NP XX )NP (VP XX )VP )S"
    found = bracket_f1([ours, "(S (NP XX )NP"], [gold, second])
    assert found["precision"] == pytest.approx(75) and found["recall"] == pytest.approx(100 * 3 / 7)
    assert found["f1"] == pytest.approx(100 * 2 * 3 / 11) and found["exact_match"] == 0
    assert bracket_f1([gold, second], [gold, second])["f1"] == 100


@pytest.mark.parametrize(
    "line", ["", "XX", "(S XX", "(S XX )NP", "(S XX )S (S XX )S", ")S", "(S (NP XX )S )NP", "(S XX )S XX"]
)
def test_what_is_no_tree_is_none(line: str) -> None:
    assert constituents(line) is None
    assert bracket_f1([line], ["(S XX )S"])["f1"] == 0
