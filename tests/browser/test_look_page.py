"""The report of `look` in a real browser: it opens offline without a word on the console, every view stands, and it can be used
by keys, printed, and handed out by a server."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path
from typing import Any

import pytest

from glassformer.inspection import data as report_data
from glassformer.inspection import page as pages_of
from glassformer.inspection.inspection import Inspection
from glassformer.inspection.page import page_json
from tests.browser.report import WIDE, expected_views, opened

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["transformer", "pruned", "gpt", "gpt on pairs", "mlm", "classify", "tag"])
def test_every_view_opens_without_a_word(
    browser: Any, pages: dict[str, Path], insides: dict[str, Inspection], name: str
) -> None:
    """Each view in pieces, English and light, then in words, Chinese and dark; no console message, no request but for the file
    itself. Caught: a missing word, a view that a family has no data for, a font or script from elsewhere."""
    with opened(browser, WIDE) as report:
        report.open(pages[name].as_uri())
        assert report.views() == expected_views(insides[name])
        for keys in ("", "uld"):
            for key in keys:
                report.press(key)
            for view in report.views():
                report.show(view)
                assert len(report.text("#view")) > 20
                assert report.page.locator(".failure").count() == 0, (view, report.text(".failure"))
        addresses = {address.split("#")[0] for address in report.requests if not address.startswith("data:")}
        assert addresses == {pages[name].as_uri()}
        assert report.complaints == []


def test_the_cell_that_the_sentence_names_is_outlined(browser: Any, pages: dict[str, Path]) -> None:
    """Its row and column are the sentence's query and key, with its weight. Caught: the outline of another cell, or none."""
    with opened(browser, WIDE) as report:
        for view, kind in (("maps", "encoder"), ("maps", "cross"), ("rollout", "decoder")):
            report.open(pages["transformer"].as_uri() + f"#view={view}&kind={kind}&layer=1&head=0")
            # The file is the same, so only the address changes, and the page follows it by itself.
            there = "([view, kind]) => window.page.state.view === view && window.page.state.kind === kind"
            report.page.wait_for_function(there, arg=[view, kind])
            report.settle()
            box = report.page.locator("#view .example").bounding_box()
            assert report.page.locator("#view .example").count() == 1 and 0 <= box["y"] < WIDE["height"]
            report.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            lit = report.page.eval_on_selector_all("#view text.lit", "all => all.map(one => one.textContent)")
            sentence = report.text("#view .howto")
            assert len(lit) == 2 and all(label in sentence.replace(" ", "␣") or label in sentence for label in lit)
            assert report.text("#view .readout p b") in sentence


def test_the_keys(browser: Any, pages: dict[str, Path]) -> None:
    """Views, heads, layers, tokens, kinds, units, theme, language, help; and one sees where the focus is."""
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=maps&kind=cross")
        for number, view in enumerate(report.views()[:9], 1):
            report.press(str(number))
            assert report.state("view") == view
        report.press("2")
        report.press("Shift+ArrowRight")
        report.press("Shift+ArrowDown")
        assert (report.state("layer"), report.state("head")) == (1, 1)
        report.press("k")
        assert report.state("kind") == "encoder"
        report.press("u")
        assert report.state("unit") == "words"
        theme = report.state("theme")
        report.press("d")
        assert report.state("theme") != theme
        report.press("l")
        assert report.text("[data-view=maps]") == "注意力图"
        report.press("l")
        report.press("?")
        assert report.page.locator("dialog[open] kbd").count() > 8
        report.press("Escape")
        report.page.wait_for_selector("dialog[open]", state="detached")
        report.page.focus(".large .stage")
        report.press("ArrowDown")
        before = report.text(".large .readout")
        report.press("ArrowDown")
        assert report.text(".large .readout") != before
        report.press("Enter")
        assert report.page.locator(".band.locked").count() == 2
        report.press("Escape")
        assert report.page.locator(".band.locked").count() == 0
        report.page.focus(".thumb[aria-pressed=true]")
        report.press("ArrowRight")
        outline = "() => getComputedStyle(document.activeElement).outlineStyle"
        assert report.page.evaluate("() => document.activeElement.className") == "thumb"
        assert report.page.evaluate(outline) == "solid"
        assert report.complaints == []


def test_paper_is_white(browser: Any, pages: dict[str, Path]) -> None:
    """A dark page is printed light. Caught: maps that keep their black ground."""
    corner = "() => [...document.querySelector('.large canvas.cells').getContext('2d').getImageData(0, 0, 40, 1).data]"
    with opened(browser, WIDE, color_scheme="dark") as report:
        report.open(pages["gpt"].as_uri() + "#view=maps&kind=decoder")
        hidden = slice(4 * 5, 4 * 5 + 3)  # the first token may not see the sixth: masked, a grey of its own
        assert max(report.page.evaluate(corner)[hidden]) < 80
        report.page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
        assert min(report.page.evaluate(corner)[hidden]) > 200
        report.page.evaluate("() => window.dispatchEvent(new Event('afterprint'))")
        report.settle()
        assert max(report.page.evaluate(corner)[hidden]) < 80


def test_a_view_that_fails_says_so_and_an_unknown_word_does_not_matter(browser: Any, pages: dict[str, Path]) -> None:
    """Caught: the old view left under the new tab, a page that stands still for the lack of one word."""
    with opened(browser, WIDE) as report:
        report.open(pages["gpt"].as_uri() + "#view=maps")
        report.page.evaluate("() => (window.page.data.lens = [{}])")
        report.page.click("[role=tab][data-view=lens]")
        report.settle()
        assert report.page.locator(".failure").count() == 1 and report.page.locator(".thumb").count() == 0
        report.show("tokens")
        assert report.page.locator(".failure").count() == 0 and report.page.locator("table.tokens").count() == 1
        assert report.page.evaluate("() => window.page.words.noSuchWord") == "noSuchWord"


def test_the_modules_are_modules(browser: Any, insides: dict[str, Inspection], tmp_path: Path) -> None:
    """Handed out by a plain server as they are, with the data in a file of its own: the same page. Caught: an import that
    only works when all modules are in one file."""
    for name, text in pages_of.page_files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "data.json").write_text(page_json(report_data.page_data(insides["gpt"], "served")), encoding="utf-8")
    (tmp_path / "index.html").write_text(
        '<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" href="style.css"><div id="here"></div>'
        '<script type="module">import { show } from "./page.js";'
        'const data = await (await fetch("data.json")).json();'
        'window.page = await show(data, document.getElementById("here"));'
        'document.documentElement.dataset.ready = "yes";</script>',
        encoding="utf-8",
    )

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with opened(browser, WIDE) as report:
            report.open(f"http://127.0.0.1:{server.server_port}/index.html")
            for view in report.views():
                report.show(view)
            assert report.views() == expected_views(insides["gpt"]) and report.complaints == []
    finally:
        server.shutdown()
        server.server_close()


def test_heads_that_join_the_same_tokens_do_not_hide_each_other(browser: Any, pages: dict[str, Path]) -> None:
    """Lines of several heads between two tokens stand beside one another; one head's begin where its token stands."""
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=lines&kind=encoder")
        for head in ("0.0", "0.1", "0.2"):
            report.page.click(f".headchip[data-head='{head}']")
            report.page.wait_for_selector(f".headchip[data-head='{head}'][aria-pressed=true]")
        report.settle()  # the lines are drawn again where the view has become higher
        report.page.focus(".links text.word[data-side=row][data-at='0']")
        drawn = "lines => lines.map(line => [line.getAttribute('stroke'), line.getAttribute('d')])"
        lines = report.page.eval_on_selector_all(".links g path", drawn)
        assert len({colour for colour, _ in lines}) == 3 and len({path for _, path in lines}) == len(lines)
