"""Choosing the next token in a real browser: bars that follow the sliders, tokens that are forced, and the beam's own choices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
from glassformer.config import DecodeConfig
from glassformer.decode.filters import warp
from glassformer.decode.lengths import LengthRule
from tests.browser.test_live_page import LiveTab
from tests.browser.test_serve_page import NARROW, TEXT
from tests.serve.harness import Running

pytestmark = pytest.mark.slow


@pytest.fixture
def path(paths: list[Path]) -> Path:
    return paths[0]


@pytest.fixture
def tab(browser: Any, server: Running) -> Iterator[LiveTab]:
    found = LiveTab(browser, server, "/open?text=eins+zwei+drei#view=choose")
    found.wait(TEXT)
    found.page.wait_for_selector(".pick")
    yield found
    found.context.close()
    assert not found.complaints
    assert all(url.startswith((server.address, "data:")) for url in found.requests)


def drag(tab: LiveTab, name: str, value: float) -> None:
    """As a hand does: the slider's value changes, and the page hears of it at once."""
    tab.page.eval_on_selector(f"#{name}", "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", str(value))


def forced(tab: LiveTab, ids: list[int]) -> dict[str, Any]:
    """The data on the screen, once the answer is made to begin so, explained, and all around it is drawn."""
    told = """ids => JSON.stringify(live.data?.prefix) === JSON.stringify(ids) && live.data.saliency
      && live.drawn === live.data && document.querySelector('#view').ariaBusy === 'false'"""
    tab.page.wait_for_function(told, arg=ids)
    return tab.page.evaluate("live.data")  # type: ignore[no-any-return]


SETTINGS = [(1.0, 51, 1.0), (0.4, 51, 1.0), (1.7, 3, 1.0), (1.0, 51, 0.6), (1.5, 8, 0.35), (0.7, 1, 0.05)]


def test_the_bars_are_what_is_sampled_from(tab: LiveTab) -> None:
    """With any of the sliders anywhere the bars are those of `warp`, and nothing is asked of the server for it. Broken variants:
    top-p before the temperature; the last token that reaches p left out."""
    asked = len(tab.requests)
    logprobs = tab.page.evaluate(
        "import('/page/data.js').then(async m => [...(await m.unpack(live.nextFound.logprobs)).values])"
    )
    for temperature, k, p in SETTINGS:
        for name, value in (("choose-temperature", temperature), ("choose-topK", k), ("choose-topP", p)):
            drag(tab, name, value)
        how = DecodeConfig(beam=None, temperature=temperature, top_k=k if k <= 50 else None, top_p=p)
        law = warp(torch.tensor([logprobs]), how).double().softmax(-1)[0]
        shown = tab.page.eval_on_selector_all(".pick .now", "bars => bars.map(b => parseFloat(b.style.width) / 100)")
        assert shown == pytest.approx(law[: len(shown)].tolist(), abs=1e-5)
        assert tab.page.locator(".pick.out").count() == int((law[: len(shown)] == 0).sum())
        assert re.match(rf"{int((law > 0).sum())}\D", tab.page.inner_text("#choose-left"))
    drag(tab, "choose-temperature", 0)
    assert tab.page.locator(".pick:not(.out)").count() == 1
    assert [url for url in tab.requests[asked:] if "/page/" not in url] == []


def test_a_click_forces_a_token(tab: LiveTab, path: Path, server: Running) -> None:
    """The model goes on from it; what greedy would have said stays in sight; no other answer changes; undo brings all back."""
    model = glassformer.load(path, device="cpu")
    whole = tab.page.evaluate("live.data")
    pick = tab.page.locator(".pick:not(.said)").nth(1)
    chosen = int(pick.get_attribute("data-id"))
    pick.click()
    data = forced(tab, [chosen])
    assert data["outputs"]["ids"][0] == chosen and data["outputs"]["status"][0] == "forced"
    assert data["answer"] != whole["answer"] == model.translate(TEXT)
    assert tab.page.inner_text("#greedy").endswith(model.translate(TEXT, beam=1))
    assert tab.page.locator("#tokens .pinned").count() == 1 and f"prefix={chosen}" in tab.address()
    run = server.served.models.get(path.name)
    asked = {"q": TEXT, "source": run.sources[0], "target": run.target}
    assert server.post("/translate", asked)["translatedText"] == whole["answer"]
    # The choice goes on at the next token; one more is forced.
    tab.page.wait_for_function("() => live.nextFound.prefix.length === 1")
    second = int(tab.page.locator(".pick").nth(2).get_attribute("data-id"))
    tab.page.locator(".pick").nth(2).click()
    assert forced(tab, [chosen, second])["outputs"]["ids"][:2] == [chosen, second]
    tab.page.click("#undo")
    assert forced(tab, [chosen])["outputs"] == data["outputs"]
    tab.page.click("#free")
    assert forced(tab, [])["outputs"] == whole["outputs"]
    assert tab.page.locator("#free").count() == 0


def test_any_token_of_the_answer_is_chosen_anew(tab: LiveTab) -> None:
    """By the keyboard alone: the third token of the answer, and another in its place; what stands before it is kept."""
    ids = tab.page.evaluate("live.answerIds()")
    tab.page.focus("#tokens [data-place='2']")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_function("() => live.nextFound.prefix.length === 2")
    tab.page.wait_for_selector("#view[aria-busy=false]")
    assert "at=2" in tab.address()
    other = tab.page.locator(".pick:not(.said)").first
    chosen = int(other.get_attribute("data-id"))
    other.focus()
    tab.page.keyboard.press("Enter")
    assert forced(tab, [*ids[:2], chosen])["outputs"]["ids"][:3] == [*ids[:2], chosen]


def test_another_text_is_answered_freely(tab: LiveTab) -> None:
    tab.page.locator(".pick:not(.said)").first.click()
    tab.page.wait_for_function("() => live.data.prefix.length === 1")
    tab.page.fill("#text", "vier")
    assert tab.wait("vier")["prefix"] == []


def test_a_node_of_the_beam_is_forced(tab: LiveTab) -> None:
    """All of its path; the tree that is drawn then begins with it."""
    tab.page.click("[data-view=beam]")
    tab.page.wait_for_selector(".tree .node")
    path = tab.page.evaluate("""() => {
      const { steps } = live.data.beam;
      const found = steps[1].findIndex((one) => one.fate === "kept" && !one.best);
      return [found, steps[0].find((one) => one.slot === steps[1][found].parent).id, steps[1][found].id];
    }""")
    tab.page.click(f".tree .node[data-step='1'][data-rank='{path[0]}']")
    data = forced(tab, path[1:])
    assert [[one["id"] for one in step] for step in data["beam"]["steps"][:2]] == [[path[1]], [path[2]]]


def test_the_length_penalty_ranks_anew(tab: LiveTab) -> None:
    """At once, and by the rule of the search. Broken variant: EOS not counted."""
    tab.page.click("[data-view=beam]")
    tab.page.wait_for_selector("#beam-alpha")
    beam = tab.page.evaluate("live.data.beam")
    for alpha in (-1.0, 0.0, 0.6, 2.0):
        drag(tab, "beam-alpha", alpha)
        own, rule = LengthRule(beam["rule"], beam["alpha"]), LengthRule(beam["rule"], alpha)
        scores = []
        for one in beam["answers"]:
            length, ended = one["length"], one["ended"] == "eos"
            total = one["score"] * own.divisor(length, ended)
            scores.append((one["ended"] == "length", -rule.score(total, length, ended)))
        shown = tab.page.locator(".answers tbody td:last-child").all_inner_texts()
        assert [float(text.replace("−", "-")) for text in shown] == pytest.approx(
            [-score for _, score in sorted(scores)], abs=6e-4
        )


def test_the_beam_grows_step_by_step(tab: LiveTab) -> None:
    """Step, play, pause: the candidates of a step are seen from that step on."""
    tab.page.click("[data-view=beam]")
    tab.page.wait_for_selector("#beam-next")
    sizes = [len(step) for step in tab.page.evaluate("live.data.beam.steps")]
    seen = "() => [...document.querySelectorAll('.tree .node')].filter(n => n.style.display !== 'none').length"
    assert tab.page.evaluate(seen) == sum(sizes)
    for n in (1, 2):
        tab.page.click("#beam-next")
        assert tab.page.evaluate(seen) == sum(sizes[:n])
    # Paused at the very step: a hand could come after the end, and then it would begin anew.
    assert len(sizes) > 3
    tab.page.evaluate("""() => live.page.store.subscribe((changed) => {
      if (changed.has('beamStep') && live.page.state.beamStep === 3) document.querySelector('#beam-play').click();
    })""")
    tab.page.click("#beam-play")
    tab.page.wait_for_function("() => live.page.state.beamStep === 3")
    tab.page.wait_for_timeout(1000)
    assert tab.page.evaluate("live.page.state.beamStep") == 3
    assert tab.page.evaluate(seen) == sum(sizes[:3])


@pytest.mark.parametrize(
    "how", [{"viewport": NARROW}, {"locale": "zh-CN", "color_scheme": "dark"}], ids=["narrow", "zh"]
)
def test_on_every_screen(how: dict[str, Any], browser: Any, server: Running) -> None:
    found = LiveTab(browser, server, "/open?text=eins&at=1#view=choose", **how)
    found.wait("eins")
    found.page.wait_for_selector(".pick")
    assert found.page.evaluate("live.nextFound.prefix.length") == 1
    assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if "locale" in how:
        told = found.page.inner_text("#view") + found.page.inner_text("#live")
        assert not re.search("Token|Greedy|Temperature|greedy", told)
    assert not found.complaints
    found.context.close()
