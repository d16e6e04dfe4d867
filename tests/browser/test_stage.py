"""The machine as a stage: parts chosen and cut in the drawing, and the guided walk through it, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.probe import ablate
from tests.browser.test_live_page import LiveTab
from tests.browser.test_serve_page import NARROW, TEXT
from tests.serve.harness import Running

pytestmark = pytest.mark.slow

DESKTOP = {"width": 1400, "height": 900}


@pytest.fixture
def tab(browser: Any, server: Running) -> Iterator[LiveTab]:
    found = LiveTab(browser, server, "/open?text=eins+zwei+drei", viewport=DESKTOP)
    found.wait(TEXT)
    yield found
    found.context.close()
    assert not found.complaints
    assert all(url.startswith((server.address, "data:")) for url in found.requests)


def test_a_part_opens_beside_the_drawing(tab: LiveTab) -> None:
    """The drawing stands at the left of the view, both on the first screen; what is chosen in it opens at its right."""
    left, right = (tab.page.locator(one).bounding_box() for one in ("#stage .machine", "#view"))
    assert left["x"] + left["width"] <= right["x"] and right["y"] < 300 and left["y"] + left["height"] <= 900
    for part, view in (
        ("decoder.cross", "maps"),
        ("output.softmax", "choose"),
        ("encoder.mlp", "attribution"),
        ("encoder.embedding", "machine"),
    ):
        tab.page.focus(f"#stage [data-part='{part}']")
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_selector(f"#view[data-view={view}][aria-busy=false]")
        assert tab.page.get_attribute(f"#stage [data-part='{part}']", "aria-pressed") == "true"
    assert tab.page.evaluate("live.page.state.kind") == "cross"


def test_the_way_of_the_held_token_is_lit(tab: LiveTab) -> None:
    """Through the stack that reads it and, of the source, on through cross-attention; its boxes then hold it alone, with what is
    written for it. The stage and the machine's view show the same part. Caught: a way that stays lit, another token's answer."""
    lit = "#stage .arrow.lit"
    chosen = "[aria-pressed=true]"
    assert tab.page.locator(lit).count() == 0
    assert tab.page.get_attribute(f"#stage .box{chosen}", "data-part") == "decoder.cross"
    assert "decoder.0.cross" in tab.page.inner_text("#view .details h3")
    every = tab.page.locator("#stage .arrow").count()
    data = tab.page.evaluate("live.data")
    tab.page.evaluate("live.page.dispatch({ type: 'hold', held: { query: ['read', 1], key: null } })")
    decoder = tab.page.locator(lit).count()
    assert 0 < decoder < every
    second = "#stage [data-part='{}'] text.second"
    read, written = (tab.page.text_content(second.format(part)) for part in ("decoder.tokens", "output.tokens"))
    names, outputs = data["names"], data["outputs"]
    texts = (data["sides"]["read"]["pieces"][1], names[outputs["tokens"][outputs["positions"].index(1)]])
    assert (read, written) == tuple(text.replace(" ", "␣") for text in texts)
    tab.page.evaluate("live.page.dispatch({ type: 'hold', held: { query: ['read', 1], key: ['source', 2] } })")
    assert tab.page.locator(lit).count() == every
    assert tab.page.text_content(second.format("encoder.tokens")) == "␣" + TEXT.split()[2]
    tab.page.evaluate("live.page.dispatch({ type: 'release' })")
    assert tab.page.locator(lit).count() == 0


@pytest.mark.parametrize("box", ["decoder.mlp_add", "encoder.positions", "decoder.cross"])
def test_any_box_is_cut(box: str, tab: LiveTab, paths: list[Path]) -> None:
    """The residual connection, the positions, an attention: the answer is that of `ablate`, and undo brings the whole back."""
    model = glassformer.load(paths[0], device="cpu")
    whole = tab.page.evaluate("live.data.answer")
    tab.page.click(f"#stage [data-part='{box}']")
    tab.page.click("#cut-part")
    count = tab.page.locator("#cuts .cut").count()
    cut = tab.wait(TEXT, count)
    expected = {"decoder.mlp_add": "decoder.0.mlp.residual", "encoder.positions": "positions"}.get(
        box, "decoder.0.cross"
    )
    with ablate(model.model, [expected]):
        assert cut["answer"] == model.translate(TEXT)
    assert tab.page.locator(f"#stage g.off[data-part='{box}']").count() == 1
    tab.page.click("#undo")
    assert tab.wait(TEXT)["answer"] == whole
    assert tab.page.locator("#stage g.off").count() == 0


def test_a_part_is_left_on_alone(tab: LiveTab) -> None:
    """Everything else of its kind is off: the MLPs of all other layers of the stack."""
    tab.page.click("#stage [data-part='decoder.mlp']")
    tab.page.click("#alone-part")
    assert tab.wait(TEXT, 1)["cut"]["parts"] == ["decoder.1.mlp"]
    tab.page.select_option("#stage-layer", "1")
    assert tab.page.locator("#stage g.off[data-part='decoder.mlp']").count() == 1


SENTENCE = {"en": r"[.?!](?:\s|$)", "zh": r"[。？！]"}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_walk_by_the_keyboard(language: str, browser: Any, server: Running) -> None:
    """Twelve steps with the arrow keys, each with three sentences, another address and a page of the tour that is there."""
    locale = {"en": "en-GB", "zh": "zh-CN"}[language]
    tab = LiveTab(browser, server, "/open?text=eins+zwei+drei", viewport=DESKTOP, locale=locale)
    tab.wait(TEXT)
    tab.page.focus("#walk-begin")
    tab.page.keyboard.press("Enter")
    seen = []
    for step in range(1, 13):
        tab.page.wait_for_function("n => live.walk.at === n - 1 && location.search.includes(`walk=${n}`)", arg=step)
        tab.page.wait_for_selector("#view[aria-busy=false]")
        text = tab.page.inner_text("#walk-text")
        assert len(re.findall(SENTENCE[language], text)) == 3, text
        assert "{" not in text and bool(re.search("[\u4e00-\u9fff]", text)) == (language == "zh")
        page = tab.page.get_attribute("#walk-tour", "href")
        status, _, content = server.ask("GET", page)
        assert status == 200 and content.startswith(b"#") and (".zh" in page) == (language == "zh")
        seen.append((tab.page.inner_text("#walk b"), text))
        tab.page.keyboard.press("ArrowRight")
    assert len(set(seen)) == 12 and "12 / 12" in seen[-1][0]
    tab.page.keyboard.press("ArrowLeft")
    assert "walk=11" in tab.address() and tab.page.evaluate("live.page.state.view") == "choose"
    again = LiveTab(browser, server, tab.address().removeprefix(server.address), viewport=DESKTOP, locale=locale)
    again.wait(TEXT)
    assert again.page.inner_text("#walk-text") == seen[10][1]
    assert not tab.complaints + again.complaints
    for one in (tab, again):
        one.context.close()


def test_a_gpt_walks_without_cross_attention(browser: Any, server: Running, paths: list[Path]) -> None:
    """On a phone: eleven steps, nothing wider than the screen."""
    address = f"/open?model={paths[1].name}&text=the+cat&walk=9"
    tab = LiveTab(browser, server, address, viewport=NARROW)
    tab.wait("the cat")
    assert "9 / 11" in tab.page.inner_text("#walk b")
    tab.page.click("#walk-next")
    tab.page.wait_for_selector(".pick")
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.page.click("#walk-end")
    assert "walk=" not in tab.address() and tab.page.locator("#walk-begin").count() == 1
    assert not tab.complaints
    tab.context.close()
