"""The page of the server in a real browser: one types and sees it written, every word with its shade and what it looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.serve.auth import Auth
from tests.browser.report import PATIENCE
from tests.serve.harness import Running, running
from tests.small_runs import small_run

pytestmark = pytest.mark.slow

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
TEXT = "eins zwei drei"
DRAWN = "live.drawn === live.data && document.querySelector('#view').ariaBusy === 'false'"


@pytest.fixture(scope="module")
def server(paths: list[Path]) -> Iterator[Running]:
    """For others, too: it shows nothing of the data."""
    with running(paths) as found:
        yield found


class Tab:
    """A page that is open, what it complained of and what it asked for."""

    def __init__(self, browser: Any, server: Running, address: str = "/", **how: Any) -> None:
        self.context = browser.new_context(**({"viewport": WIDE, "locale": "en-GB"} | how))
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(server.address + address)
        self.page.wait_for_selector("html[data-ready=yes]")

    def address(self) -> str:
        """As the page has it now; what `page.url` says of it comes by another way, and later."""
        return str(self.page.evaluate("location.href"))

    def translate(self, text: str) -> str:
        """Type, and wait for the answer with its shades."""
        self.page.fill("#text", text)
        self.page.wait_for_selector(".said[data-side=target] .sure")
        return str(self.page.inner_text(".said[data-side=target]"))


@pytest.fixture
def tab(browser: Any, server: Running) -> Iterator[Tab]:
    found = Tab(browser, server)
    yield found
    found.context.close()
    assert not found.complaints
    assert all(url.startswith((server.address, "data:")) for url in found.requests)


def test_type_and_read(tab: Tab, paths: list[Path]) -> None:
    """The answer is the model's, with a mark where it doubts, alternatives, and links that are its attention."""
    model = glassformer.load(paths[0], device="cpu")
    wanted = model.translate(TEXT, n_best=4, align=True)
    assert tab.translate(TEXT).split() == wanted.texts[0].split()
    chances = tab.page.eval_on_selector_all(".sure", "all => all.map(one => Number(one.dataset.chance))")
    assert len(chances) == len(wanted.texts[0].split()) and all(0 <= c <= 1 for c in chances)
    assert max(chances) > min(chances)
    colours = tab.page.eval_on_selector_all(".sure", "all => all.map(one => getComputedStyle(one).backgroundColor)")
    marked = [float(colour.rstrip(")").split("/")[-1]) for colour in colours]  # how opaque the mark is
    assert [marked.index(max(marked)), marked.index(min(marked))] == [chances.index(f(chances)) for f in (min, max)]
    others = tab.page.eval_on_selector_all("#alternatives li", "all => all.map(one => one.textContent)")
    assert set(others) <= set(wanted.texts[1:]) and others
    tab.page.hover(".sure >> nth=0")
    assert tab.page.locator(".said[data-side=source] .lit").count() >= 1
    assert "% sure" in tab.page.inner_text(".readout")


def test_what_is_not_in_the_vocabulary_is_told(tab: Tab) -> None:
    tab.translate("eins Zanzibar drei")
    assert "Zanzibar" in tab.page.inner_text("#unknown")
    tab.page.fill("#text", "eins zwei")
    tab.page.wait_for_selector("#unknown", state="hidden")


def test_it_is_written_as_it_comes(tab: Tab) -> None:
    """What is seen before the end is a beginning of what is seen later: the stream is used."""
    tab.translate(TEXT)
    streams = [url for url in tab.requests if url.endswith("/translate")]
    assert len(streams) == 2  # the stream, and the answer with all there is to know


def test_by_keyboard_alone(tab: Tab) -> None:
    tab.page.focus("#text")
    tab.page.keyboard.type(TEXT)
    tab.page.keyboard.press("Control+Enter")
    # An answer to the beginning of it, typed slowly, is gone when what was asked for now is begun: by a timer, as this one is.
    tab.page.evaluate("() => new Promise((done) => setTimeout(done))")
    tab.page.wait_for_selector(".said[data-side=target] .sure")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.dataset.side") == "target"
    tab.page.keyboard.press("ArrowRight")
    assert tab.page.locator(".sure.held").count() == 1 and tab.page.locator(".lit").count() >= 1
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.id") == "look"


def test_the_lenses_open_below(tab: Tab, paths: list[Path]) -> None:
    """One page: what is typed in the translator is seen inside, cut and put back, and the translator's answer stays that of the
    whole model. Caught: two elements of one name, lenses that stay behind the text."""
    assert (
        tab.page.locator("main select").count() == 1
    )  # the model's: one pair of languages without names shows no row of them
    answer = tab.translate(TEXT)
    assert tab.page.is_hidden("#both") and not [url for url in tab.requests if url.endswith("live.js")]
    tab.page.click("#look")
    tab.page.wait_for_function(f"() => window.live?.data?.saliency && {DRAWN}")
    tab.page.wait_for_selector("#look[aria-expanded=true]")
    assert tab.page.evaluate("live.data.answer").split() == answer.split()
    assert tab.page.evaluate("live.data.forced") is False
    tab.page.click("#cut-layer")
    tab.page.wait_for_function(f"() => live.data.cut && live.data.saliency && {DRAWN}")
    assert tab.page.inner_text("#home .said[data-side=target]") == answer
    tab.page.click("#restore")
    tab.page.fill("#text", "drei")
    tab.page.wait_for_function(f"() => live.data.text === 'drei' && !live.data.cut && live.data.saliency && {DRAWN}")
    named = tab.page.eval_on_selector_all("[id]:not(svg *)", "all => all.map(one => one.id)")
    assert len(named) == len(set(named))
    assert tab.page.locator("[data-to=learning], [data-to=sentences]").count() == 0  # those are the owner's
    tab.page.click("#look")
    assert tab.page.is_hidden("#both") and tab.address().endswith("/")


def test_the_address_of_a_lens_at_the_root(browser: Any, server: Running, paths: list[Path]) -> None:
    """Text, model, cuts and view come back from the address; the words of both halves change together, from either."""
    address = f"/?model={paths[0].name}&text=eins&cut=decoder.0.cross:0#view=maps"
    tab = Tab(browser, server, address, viewport=NARROW, locale="zh-CN")
    tab.page.wait_for_function(f"() => window.live?.data?.cut?.parts.length === 1 && live.data.saliency && {DRAWN}")
    assert tab.page.input_value("#text") == "eins"
    assert tab.page.get_attribute("[role=tab][aria-selected=true]", "data-view") == "maps"
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for press in (
        lambda: tab.page.click("#language"),
        lambda: (tab.page.focus("[role=tab]"), tab.page.keyboard.press("l")),
    ):
        before = "译文" in tab.page.inner_text("#home")
        press()
        tab.page.wait_for_function(
            "before => document.querySelector('#home').innerText.includes('译文') !== before", arg=before
        )
        wanted = "撤销|放回" if not before else "Put all back"
        tab.page.wait_for_function(
            "words => new RegExp(words).test(document.querySelector('aside').innerText)", arg=wanted
        )
    assert not tab.complaints
    tab.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_languages_themes_and_a_phone(browser: Any, server: Running, theme: str, locale: str) -> None:
    tab = Tab(browser, server, viewport=NARROW, locale=locale, color_scheme=theme)
    tab.translate(TEXT)
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.page.evaluate("document.documentElement.dataset.theme") == theme
    chinese = locale.startswith("zh")
    assert ("译文" in tab.page.inner_text("main")) == chinese
    tab.page.click("#language")
    assert ("译文" in tab.page.inner_text("main")) != chinese
    tab.page.click("#theme")
    assert tab.page.evaluate("document.documentElement.dataset.theme") != theme
    assert tab.page.locator(".sure").count() and not tab.complaints  # what was answered stays
    tab.context.close()


def test_a_writer_goes_on(tab: Tab) -> None:
    tab.page.select_option("select[aria-label=Model]", "writer")
    tab.page.fill("#text", "the cat")
    tab.page.click("#go")
    tab.page.wait_for_selector(".said[data-side=target]:not(:empty)")


def test_a_key_and_a_mistake(browser: Any, paths: list[Path]) -> None:
    with running(paths[:1], auth=Auth({"a-key-of-some-length": "owner"})) as locked:
        tab = Tab(browser, locked)
        assert tab.page.locator("#key").count() == 1
        tab.page.fill("#key", "a-key-of-some-length")
        tab.page.evaluate("() => (document.querySelector('#text').former = true)")
        with tab.page.expect_response(lambda response: response.url.endswith("/v1/models") and response.ok):
            tab.page.keyboard.press("Tab")
        # Drawn anew, with what may be asked now.
        tab.page.wait_for_function("() => !document.querySelector('#text').former")
        assert tab.translate(TEXT)
        tab.context.close()


def test_the_page_of_the_routes(tab: Tab, server: Running) -> None:
    tab.page.goto(server.address + "/docs")
    tab.page.wait_for_selector("main[aria-busy=false]")
    assert tab.page.locator("details.route").count() >= 10
    tab.page.click("summary >> nth=0")
    assert tab.page.locator("table.fields >> nth=0").is_visible()


def test_an_answer_is_corrected_and_the_correction_undone(browser: Any, tmp_path: Path) -> None:
    run = small_run(tmp_path / "pairs", "pairs", name="numbers").path
    with running([run], corrections=True) as server:
        tab = Tab(browser, server)
        former = tab.translate(TEXT)
        tab.page.click("#correct")
        tab.page.fill("#correction", "one two")
        tab.page.press("#correction", "Enter")
        tab.page.wait_for_selector("#undo-correction:visible:enabled")
        assert tab.page.inner_text(".said[data-side=target]") == "one two" != former
        assert tab.page.is_hidden("#correction") and "Kept" in tab.page.inner_text("#state")
        tab.page.click("#undo-correction")
        tab.page.wait_for_selector("#undo-correction", state="hidden")
        tab.page.wait_for_selector(".said[data-side=target] .sure")
        assert tab.page.inner_text(".said[data-side=target]").split() == former.split()
        assert not tab.complaints
        tab.context.close()
