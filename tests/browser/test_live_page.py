"""The live page in a real browser: every key is answered, and whatever is chosen can be cut, and put back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.probe import ablate
from tests.browser.test_serve_page import NARROW, TEXT, Tab
from tests.serve.harness import Running, running
from tests.small_runs import GERMAN, small_run

pytestmark = pytest.mark.slow


class LiveTab(Tab):
    """The live page, opened at an address."""

    def __init__(self, browser: Any, server: Running, address: str = "/open", **how: Any) -> None:
        super().__init__(browser, server, address, **how)
        # What is around the views is drawn after the frame in which the answer is painted.
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def wait(self, text: str, cuts: int = 0) -> dict[str, Any]:
        """The data on the screen, once it is that of this text with so many cuts, explained, and all around it is drawn."""
        told = """([text, cuts]) => live.data?.text === text && (live.data.cut?.parts.length ?? 0) === cuts && live.data.saliency
          && live.drawn === live.data && document.querySelector('#view').ariaBusy === 'false'"""
        try:
            self.page.wait_for_function(told, arg=[text, cuts], timeout=180_000)
        except Exception as error:  # told with what the page says
            seen = "[live.state.textContent, live.text, live.model, live.data?.text, live.drawn === live.data]"
            raise AssertionError(f"{text!r} is not answered: {self.page.evaluate(seen)}") from error
        return self.page.evaluate("live.data")  # type: ignore[no-any-return]


@pytest.fixture
def tab(browser: Any, server: Running) -> Iterator[LiveTab]:
    found = LiveTab(browser, server)
    yield found
    found.context.close()
    assert not found.complaints
    assert all(url.startswith((server.address, "data:")) for url in found.requests)


def test_every_key_is_answered(tab: LiveTab, paths: list[Path]) -> None:
    """What is said is what `translate` says, also when the text was typed key by key; the views are those of the text."""
    model = glassformer.load(paths[0], device="cpu")
    tab.page.fill("#text", "")
    tab.page.type("#text", TEXT, delay=20)
    data = tab.wait(TEXT)
    assert tab.page.inner_text("#answer").split() == model.translate(TEXT).split()
    assert data["answer"] == model.translate(TEXT)
    tab.page.click("[data-view=tokens]")
    first = data["answer"].split()[0]
    tab.page.wait_for_function("word => document.querySelector('#view').innerText.includes(word)", arg=first)
    assert "text=eins+zwei+drei" in tab.address()


def test_half_a_word_is_told_and_is_no_error(tab: LiveTab) -> None:
    """Who types a word has typed half of it before. Broken variant: the browser's console has an error for each such key."""
    tab.page.fill("#text", "ei")
    tab.page.wait_for_selector("#state.failed:has-text('vocabulary')")
    tab.page.fill("#text", "eins")
    tab.wait("eins")
    assert "vocabulary" not in tab.page.inner_text("#state")


def test_the_tabs_stay_while_an_answer_is_on_its_way(tab: LiveTab) -> None:
    """The quick answer has nothing yet for some views, which keep their places. Broken variant: three tabs come and go with each
    key."""
    tab.page.fill("#text", "eins")
    tab.wait("eins")
    tab.page.evaluate("""() => {
      window.changes = 0;
      new MutationObserver(() => window.changes++).observe(document.querySelector('.tabs'), { childList: true });
    }""")
    tab.page.type("#text", " zwei")
    tab.wait("eins zwei")
    assert tab.page.evaluate("window.changes") == 0
    tab.page.wait_for_selector("[role=tab][data-view=attribution]")


def test_a_part_is_cut_and_put_back(tab: LiveTab, paths: list[Path], server: Running) -> None:
    """The answer with a part off is that of `ablate`; each token's log-probabilities are those of both models; others who ask are
    answered by the whole one; and put back it is as before. Broken variants: the cut left on; other tokens compared."""
    model = glassformer.load(paths[0], device="cpu")
    tab.page.fill("#text", TEXT)
    whole = tab.wait(TEXT)
    tab.page.click("[data-view=maps]")
    tab.page.click("#cut-layer")
    count = tab.page.locator("#cuts .cut").count()
    cut = tab.wait(TEXT, count)
    parts = cut["cut"]["parts"]
    assert len(parts) == count >= 3 and any(part.endswith(".mlp") for part in parts)
    with ablate(model.model, parts):
        assert cut["answer"] == model.translate(TEXT)
    assert cut["cut"]["answer"] == whole["answer"]
    written = [i for i, status in enumerate(whole["outputs"]["status"]) if status == "written"]
    assert cut["cut"]["before"] == pytest.approx([whole["outputs"]["logprob"][i] for i in written], abs=1e-4)
    assert cut["cut"]["after"] != pytest.approx(cut["cut"]["before"], abs=1e-3)
    assert tab.page.locator("#effect .one").count() == len(written)
    assert re.search(r"[+−]\d", tab.page.inner_text("#loss"))
    run = server.served.models.get(paths[0].name)
    asked = {"q": TEXT, "source": run.sources[0], "target": run.target}
    assert server.post("/translate", asked)["translatedText"] == whole["answer"]
    tab.page.click("#undo")
    assert tab.wait(TEXT)["outputs"] == whole["outputs"]
    assert tab.page.locator("#cuts .cut").count() == 0


def test_the_address_is_the_view(browser: Any, server: Running) -> None:
    """Text and cuts come back from the address; a cut of a part that there is not is told in a sentence."""
    first = LiveTab(browser, server, "/open?text=eins&cut=decoder.0.cross:0#view=maps")
    assert first.wait("eins", 1)["cut"]["parts"] == ["decoder.0.cross:0"]
    assert first.page.get_attribute("[role=tab][aria-selected=true]", "data-view") == "maps"
    first.context.close()
    wrong = LiveTab(browser, server, "/open?text=eins&cut=decoder.9.cross:0")
    wrong.page.wait_for_selector("#state.failed")
    assert "decoder.9" in wrong.page.inner_text("#state")
    wrong.context.close()


def test_back_goes_back(browser: Any, server: Running) -> None:
    """Among views and among cuts, and never off the page; an address that is changed by hand is gone to."""
    tab = LiveTab(browser, server, "/open?text=eins#view=maps")
    whole = tab.wait("eins")
    selected = "[role=tab][aria-selected=true]"
    tab.page.click("[data-view=tokens]")
    tab.page.click("#cut-layer")
    count = tab.page.locator("#cuts .cut").count()
    assert tab.wait("eins", count)["outputs"] != whole["outputs"]
    tab.page.go_back()
    assert tab.wait("eins")["outputs"] == whole["outputs"]
    assert tab.page.get_attribute(selected, "data-view") == "tokens"
    tab.page.go_back()
    tab.page.wait_for_selector("[role=tab][aria-selected=true][data-view=maps]")
    tab.page.evaluate("() => { location.hash = location.hash.replace('view=maps', 'view=lens'); }")
    tab.page.wait_for_selector("[role=tab][aria-selected=true][data-view=lens]")
    tab.page.keyboard.press("]")
    tab.page.wait_for_selector("[role=tab][aria-selected=true][data-view=attribution]")
    assert not tab.complaints
    tab.context.close()


def test_a_text_of_its_own_data(tab: LiveTab, paths: list[Path]) -> None:
    """One click, and it is read; the last of them is unlike the data, of the same words."""
    example, first = (tab.page.get_attribute(f".example >> nth={n}", "title") for n in (1, 0))
    tab.page.click(".example >> nth=1")
    assert tab.wait(example)["title"] == paths[0].name
    tab.page.click(".example >> nth=-1")
    tab.wait(" ".join(reversed(first.split())))


def test_a_gpt_goes_on(browser: Any, server: Running, paths: list[Path]) -> None:
    """Another run of the same server, named in the address; its prompt is no part of the answer that a cut is measured on."""
    address = f"/open?model={paths[1].name}&text=the+cat&cut=decoder.0.mlp"
    found = LiveTab(browser, server, address)
    data = found.wait("the cat", 1)
    assert data["title"] == paths[1].name and data["kind"] == "gpt"
    assert 0 < len(data["cut"]["tokens"]) < len(data["outputs"]["tokens"])
    assert not found.complaints
    found.context.close()


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """BERTs of every head."""
    kinds = ("masked", "classify", "tag")
    folder = tmp_path_factory.mktemp("readers")
    with running([small_run(folder / kind, kind, name=kind).path for kind in kinds], examples=True) as found:
        yield found


@pytest.mark.parametrize("kind", ["masked", "classify", "tag"])
def test_a_bert_is_opened(kind: str, browser: Any, readers: Running) -> None:
    """It says what it reads in a text of its own data, is walked through, and is cut; what it cannot is refused in a sentence."""
    tab = LiveTab(browser, readers, f"/open?model={kind}")
    text = tab.page.evaluate("live.text")
    assert text and set(text.split()) <= set(GERMAN)
    whole = tab.wait(text)
    assert whole["title"] == kind and tab.page.inner_text("#answer").split() == whole["says"].split()
    tab.page.click("#walk-begin")
    assert "1 / 9" in tab.page.inner_text("#walk b")
    tab.page.click("#cut-layer")
    cut = tab.wait(text, tab.page.locator("#cuts .cut").count())["cut"]
    assert cut["answer"] == whole["says"] and cut["before"] == pytest.approx(whole["outputs"]["logprob"], abs=1e-4)
    assert len(cut["after"]) == len(whole["outputs"]["tokens"]) and cut["after"] != cut["before"]
    assert not tab.complaints
    tab.context.close()
    for path, body in (
        ("/next", {"text": text}),
        ("/v1/completions", {"prompt": text}),
        ("/look", {"text": text, "prefix": [5]}),
    ):
        status, _, told = readers.ask("POST", path, body | {"model": kind})
        assert status == 400 and told["error"]


@pytest.mark.parametrize(
    "how", [{"viewport": NARROW}, {"color_scheme": "dark"}, {"locale": "zh-CN"}], ids=["narrow", "dark", "zh"]
)
def test_on_every_screen(how: dict[str, Any], browser: Any, server: Running) -> None:
    """Nothing wider than the screen; the reader's language and light."""
    found = LiveTab(browser, server, "/open?text=eins&cut=decoder.0.cross:0", **how)
    found.wait("eins", 1)
    assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if "locale" in how:
        assert re.search("[\u4e00-\u9fff]", found.page.inner_text("#cut-head"))
        assert not re.search("Cut|Undo|Loss", found.page.inner_text("#live"))
    if "color_scheme" in how:
        assert found.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert not found.complaints
    found.context.close()


def test_examples_are_the_owners_alone(paths: list[Path]) -> None:
    """A server for others shows nothing of the data a run was trained on."""
    with running(paths[:1]) as server:
        assert server.ask("GET", f"/open/{paths[0].name}/examples")[2]["examples"] == []
