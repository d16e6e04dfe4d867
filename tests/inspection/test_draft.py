"""An answer found from a draft of it is the one that a search finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.inspection import search as searching
from glassformer.inspection.cuts import cut_data
from glassformer.inspection.model_input import with_special_tokens
from glassformer.inspection.search import revise, search
from glassformer.probe import ablate
from tests.inspection.families import FAMILIES
from tests.talking import make_run

pytestmark = pytest.mark.slow

TEXTS = ("the cat", "a dog ran", "a dog ra", "Anna", "Tom lives in Rome", "3 mai 1979")
TEXT = "Anna"


@pytest.fixture(scope="module", params=[4, 8])
def model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Unmodel models end seldom; of these many letters are an end."""
    how = FAMILIES["transformer"] | {"decode": {"beam": 1, "max_new_tokens": 12}, "seed": request.param}
    found = glassformer.load(make_run(tmp_path_factory.mktemp("runs") / "run", **how))
    found.special_tokens = replace(found.special_tokens, more_ends=tuple(range(6, 20)))
    return found


def greedy(model: Any, text: str) -> tuple[list[int], list[int] | None]:
    """The source, and the answer of a search; None where it was cut at the limit."""
    source = with_special_tokens(model, text, None)[0]
    found, _unused = search(model, source, beam=1, new=0, tree=False)
    assert found is not None
    return source, found.ids if found.ended == "eos" else None


def test_a_draft_leads_to_the_answer_of_a_search_or_to_nothing(model: Any) -> None:
    """From the answer to the text before, from noise, and in a model with a part cut off. Broken variants: the first pass
    taken for the answer; the draft's tail kept behind an end; the whole model asked in place of the cut one."""
    found: list[int] | None = []
    settled = 0
    for cut in ([], ["encoder.0.attention:0"]):
        for text in TEXTS[: 2 if cut else None]:
            with ablate(model.model, cut):
                source, answer = greedy(model, text)
                for draft in (found or [], [27, 30, 24], [*(answer or []), 7, 30]):
                    revised = revise(model, source, draft)
                    assert revised is None or revised == answer
                    settled += revised is not None
            found = answer
    assert settled > 3


def test_what_a_draft_cannot_tell_is_searched(model: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A close choice, settings that are not plainly greedy, a draft that does not settle. Broken variant: taken all the same."""
    source, answer = greedy(model, "a dog ran")
    assert answer and revise(model, source, answer) == answer
    with monkeypatch.context() as patch:
        patch.setattr(searching, "CLOSE", 1e6)
        assert revise(model, source, answer) is None
    with monkeypatch.context() as patch:
        patch.setattr(searching, "PASSES", 1)
        assert revise(model, source, [9, 8, 7]) is None
    settings = {"beam": 1, "min_new_tokens": 3}, {"beam": 4}, {"beam": 1, "repetition_penalty": 1.3}
    for number, how in enumerate(settings):
        other = glassformer.load(make_run(tmp_path / str(number), **FAMILIES["transformer"] | {"decode": how}))
        assert revise(other, [7, 9, 2], [7]) is None


def test_the_page_says_the_same_with_a_draft_and_without(model: Any) -> None:
    """Broken variant: the draft shown unrevised."""
    plain = cut_data(model, TEXT, None, "run", explained=False)
    ids = plain["outputs"]["ids"]
    for draft in (ids, ids[:1], [9, 9]):
        found = cut_data(model, TEXT, None, "run", explained=False, draft=draft)
        assert found["answer"] == plain["answer"] and found["outputs"]["ids"] == ids
        assert found["outputs"]["logprob"] == pytest.approx(plain["outputs"]["logprob"], abs=1e-5)
