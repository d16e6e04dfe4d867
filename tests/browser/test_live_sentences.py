"""Sentences of a run's own data on the live page, in a real browser: by their loss, and by what a head is worth to each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
from glassformer.data.store import run_examples
from glassformer.inspection.inspection import look_inside
from glassformer.probe import ablate
from glassformer.runs.folder import RunFolder
from tests.browser.test_live_page import LiveTab
from tests.browser.test_serve_page import NARROW
from tests.inspection.families import logits_of
from tests.serve.harness import Running, running

pytestmark = pytest.mark.slow


@pytest.fixture
def path(learned_paths: list[Path]) -> Path:
    return learned_paths[0]


def loss(model: Any, text: str, target: str) -> float:
    """Teacher-forced, the end of the answer included, from the logits themselves."""
    inside = look_inside(model, text, target, explained=False)
    right = torch.tensor([token for token in inside.input.labels if token is not None])
    return float(torch.nn.functional.cross_entropy(logits_of(inside)[inside.input.positions], right))


def rows(tab: LiveTab, columns: int) -> list[list[str]]:
    told = "n => document.querySelectorAll('#sentences details[open] th').length === n"
    tab.page.wait_for_function(told, arg=columns)
    return [
        [cell.strip().replace("−", "-") for cell in row.split("\t")]
        for row in tab.page.locator("#sentences tbody tr").all_inner_texts()
    ]


def test_sentences_by_loss_and_by_a_head(browser: Any, learned_server: Running, path: Path) -> None:
    """Every sentence of the test split once, with the loss of its right answer and that without the head, the hardest first and
    then the one that loses most; a click reads it. Broken variants: the head left cut; the loss of the model's own answer."""
    tab = LiveTab(browser, learned_server, "/open?model=numbers&text=eins#view=maps&kind=decoder&layer=0&head=0")
    tab.wait("eins")
    tab.page.click("#sentences summary")
    tab.page.click("#by-loss")
    shown = rows(tab, 3)
    model = glassformer.load(path, device="cpu")
    data = RunFolder.open(path).recipe.data
    examples = dict(run_examples(data, "test", path / "data"))
    assert {source: target for source, target, _ in shown} == examples
    losses = [float(value) for *_, value in shown]
    assert losses == sorted(losses, reverse=True)
    for source, target, value in shown[:3] + shown[-2:]:
        assert float(value) == pytest.approx(loss(model, source, target), abs=2e-3)
    tab.page.click("#by-part")
    shown = rows(tab, 5)
    rises = [float(row[-1]) for row in shown]
    assert rises == sorted(rises, reverse=True) and rises[0] > 0.1, "a cut that is felt"
    assert {row[0] for row in shown} == set(examples)
    for source, target, before, without, _rise in shown[:2] + shown[-2:]:
        assert float(before) == pytest.approx(loss(model, source, target), abs=2e-3)
        with ablate(model.model, ["decoder.0.attention:0"]):
            assert float(without) == pytest.approx(loss(model, source, target), abs=2e-3)
    tab.page.click("#sentences tbody button >> nth=0")
    assert tab.wait(shown[0][0])["answer"] == model.translate(shown[0][0])
    assert not tab.complaints
    tab.context.close()


@pytest.mark.parametrize("how", [{"viewport": NARROW}, {"locale": "zh-CN"}], ids=["narrow", "zh"])
def test_on_every_screen(how: dict[str, Any], browser: Any, learned_server: Running) -> None:
    tab = LiveTab(browser, learned_server, "/open?model=numbers&text=eins", **how)
    tab.page.click("#sentences summary")
    tab.page.click("#by-part")
    assert rows(tab, 5)
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if "locale" in how:
        assert not re.search("Across|hardest|loss|rise", tab.page.inner_text("#sentences"))
    assert not tab.complaints
    tab.context.close()


def test_the_owners_alone(path: Path) -> None:
    """A server for others shows nothing of the data a run was trained on."""
    with running([path]) as server:
        assert server.post("/open/sentences", {"model": path.name}) == {"split": "", "sentences": []}
