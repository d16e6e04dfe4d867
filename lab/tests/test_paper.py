"""`reproduce paper`: the trees and their score, and every piece in small, kept and gone on with."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import torch

from glassformer.data.builtin.treebank import Tree, clause, in_one_line, treebank, words_of
from glassformer.errors import UserError
from glassformer.evaluation.metrics import bracket_f1, constituents
from glassformer_lab.reproduce import paper

pytestmark = pytest.mark.usefixtures("as_in_production")  # whole trainings: the rooms below hold models to their shapes


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


def test_the_paper_s_rows_are_those_of_both_ablations() -> None:
    """Each row of Table 3 has one of ours beside it, in either set. Broken variant: a row left out of one of them."""
    from glassformer_lab.sweep.ready import find_ready

    rows = paper.printed()["variations"]
    for name in ("table3", "table3-multi30k"):
        found = find_ready(name)
        assert found is not None
        groups = Counter(one.group.split()[0] for one in found.variants if not one.name.startswith("(B) d_v"))
        assert groups == {group: len(theirs) for group, theirs in rows.items() if group != "base"}


def test_a_piece_that_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that was broken off is. Broken variants: made anew each time; one made in small shown as whole."""
    made: list[str] = []

    def piece(name: str) -> paper.PaperPiece:
        made.append(name)
        if len(made) == 2:
            raise KeyboardInterrupt
        return paper.PaperPiece(name, "Table", ("a",), ((name,),), "c", "m", "d")

    pieces = {name: lambda asked, name=name: piece(name) for name in ("table1", "table2")}
    monkeypatch.setattr(paper, "PIECES", pieces)
    with pytest.raises(KeyboardInterrupt):
        paper.reproduce_paper(tmp_path, quick=True, device=torch.device("cpu"))
    found = paper.reproduce_paper(tmp_path, quick=True, device=torch.device("cpu"))
    assert made == ["table1", "table2", "table2"] and [one.name for one in found] == ["table1", "table2"]
    assert json.loads((tmp_path / "paper.json").read_text())["pieces"][1]["rows"] == [["table2"]]
    assert "| table2 |" in (tmp_path / "paper.md").read_text() and (tmp_path / "paper.zh.md").is_file()
    paper.reproduce_paper(tmp_path, quick=False, device=torch.device("cpu"))
    assert made[3:] == ["table1", "table2"]
    with pytest.raises(UserError, match="did you mean 'table"):
        paper.reproduce_paper(tmp_path, only=["table"], device=torch.device("cpu"))


@pytest.mark.slow
def test_parsing_and_its_figures_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As small as it can be with two layers of four heads. Broken variants: a table without the row that was made here; pictures
    of other heads than there are."""
    smaller = (
        "model.n_embd=16",
        "model.n_hidden=16",
        "decode.max_new_tokens=16",
        "train.steps=4",
        "train.save_every=4",
    )
    smaller += ("train.validate_every=4", "train.validate_examples=10")
    monkeypatch.setattr(paper, "FEW_STEPS", (*paper.FEW_STEPS, *smaller))
    found = paper.reproduce_paper(tmp_path, quick=True, only=["table4", "figures"], device=torch.device("cpu"))
    assert [one.name for one in found] == ["table4", "figures"]
    assert found[0].rows[-1][2].endswith("F1") and len(found[1].rows) == 8
    assert all((tmp_path / name).stat().st_size > 3000 for name in found[1].figures)
