"""The trees of `reproduce treebank` and their score."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from glassformer.data.builtin.treebank import Tree, clause, in_one_line, treebank, words_of
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


def test_a_constituent_that_is_there_twice_is_matched_once_for_each() -> None:
    """Broken variant: sets of spans, which would give all."""
    assert bracket_f1(["(NP (NP XX )NP )NP"], ["(NP XX )NP"])["precision"] == pytest.approx(50)


@pytest.mark.parametrize(
    "line", ["", "XX", "(S XX", "(S XX )NP", "(S XX )S (S XX )S", ")S", "(S (NP XX )S )NP", "(S XX )S XX"]
)
def test_what_is_no_tree_is_none(line: str) -> None:
    assert constituents(line) is None
    assert bracket_f1([line], ["(S XX )S"])["f1"] == 0


def test_sentences_are_distinct_and_no_split_shares_one() -> None:
    parts = [[sentence for sentence, _ in treebank(split, 300)] for split in ("test", "val", "train")]
    parts = [part[:300] for part in parts]
    everything = [sentence for part in parts for sentence in part]
    assert len(set(everything)) == len(everything) == 900
    assert treebank("train", 50) == treebank("train", 60)[:50]


def test_a_tool_belongs_to_the_verb_and_a_feature_to_the_noun() -> None:
    """So the same words before `with` have two trees."""
    draw, kinds = Random(0), set()
    for _ in range(3000):
        tree = clause(draw)
        if tree[2][1] == "sees" and len(words_of(tree[2])) == 6:
            kinds.add(tuple(part if isinstance(part, str) else part[0] for part in tree[2][1:]))
    assert {("sees", "NP", "PP"), ("sees", "NP")} <= kinds
