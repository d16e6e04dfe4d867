"""The report of `look` in a real browser: it opens offline without a word on the console, every view stands, and what it shows
are the numbers that Python computed."""

from __future__ import annotations

import copy
import functools
import http.server
import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassformer
from glassformer.studies import page as pages_of
from glassformer.studies.look import data as report_data
from glassformer.studies.look.checkpoints import look_across
from glassformer.studies.look.flow import merge
from glassformer.studies.look.inside import Inside, look_inside
from tests.talking import make_run
from tests.test_look import FAMILIES, with_checkpoints

pytestmark = pytest.mark.slow

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
VIEWS = [
    "machine",
    "maps",
    "lines",
    "tokens",
    "lens",
    "attribution",
    "patching",
    "norms",
    "rollout",
    "head",
    "beam",
    "across",
]
CHINESE = "我们去公园, café ok"


class Report:
    """A page that is open, and what went wrong with it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, address: str) -> float:
        """Seconds until the first view stands."""
        began = time.monotonic()
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready=yes]")
        self.page.wait_for_selector("#view[aria-busy=false]")
        return time.monotonic() - began

    def views(self) -> list[str]:
        return self.page.eval_on_selector_all("[role=tab]", "tabs => tabs.map(tab => tab.dataset.view)")

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.page.wait_for_selector("#view[aria-busy=false]")
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def show(self, view: str) -> None:
        self.page.click(f"[role=tab][data-view={view}]")
        self.page.wait_for_selector(f"#view[data-view={view}][aria-busy=false]")
        self.settle()

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.settle()

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def state(self, name: str) -> Any:
        return self.page.evaluate(f"() => window.page.state.{name} ?? null")


@contextmanager
def opened(browser: Any, size: dict[str, int], **how: Any) -> Iterator[Report]:
    context = browser.new_context(viewport=size, **({"locale": "en-US"} | how))
    try:
        yield Report(context.new_page())
    finally:
        context.close()


@pytest.fixture(scope="module")
def insides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inside]:
    """Every family; the encoder-decoder reads Chinese in byte pieces, and is also seen across training."""
    folder = tmp_path_factory.mktemp("runs")
    bytewise = FAMILIES["transformer"] | {"tokenizer": "bpe", "decode": {"beam": 3, "max_new_tokens": 9}}
    path = make_run(folder / "zh", **bytewise)
    run = with_checkpoints(path, [100, 200, 300])
    model = glassformer.load(path)
    found = {"transformer": look_across(run, look_inside(model, CHINESE, "a dög 猫 sat"))}
    for name, text in {
        "gpt": "the cat\nran to Paris",
        "gpt on pairs": "the cat",
        "pruned": "the cat",
        "mlm": "the [MASK] sat on",
        "classify": "Anna lives",
        "tag": "Anna lives in",
    }.items():
        found[name] = look_inside(
            glassformer.load(make_run(folder / name.replace(" ", "-"), **FAMILIES[name])), text, new=4
        )
    return found


@pytest.fixture(scope="module")
def pages(insides: dict[str, Inside], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, inside in insides.items():
        found[name] = folder / f"{name.replace(' ', '-')}.html"
        found[name].write_text(pages_of.page_html(report_data.page_data(inside, name)), encoding="utf-8")
    return found


def expected_views(inside: Inside) -> list[str]:
    missing = set()
    if inside.patching is None:
        missing.add("patching")
    if inside.search is None:
        missing.add("beam")
    if not inside.across:
        missing.add("across")
    return [view for view in VIEWS if view not in missing]


@pytest.mark.parametrize("name", ["transformer", "pruned", "gpt", "gpt on pairs", "mlm", "classify", "tag"])
def test_every_view_opens_without_a_word(
    browser: Any, pages: dict[str, Path], insides: dict[str, Inside], name: str
) -> None:
    """Each view in each unit, in both languages, light and dark; no console message, no request but for the file itself.
    Caught: a missing word, a view that a family has no data for, a font or script from elsewhere."""
    with opened(browser, WIDE) as report:
        report.open(pages[name].as_uri())
        assert report.views() == expected_views(insides[name])
        for view in report.views():
            report.show(view)
            for key in "uuldld":
                report.press(key)
            assert len(report.text("#view")) > 20
            assert report.page.locator(".failure").count() == 0, (view, report.text(".failure"))
        addresses = {address.split("#")[0] for address in report.requests if not address.startswith("data:")}
        assert addresses == {pages[name].as_uri()}
        assert report.complaints == []


def test_merging_in_the_page_is_merging_in_python(
    browser: Any, pages: dict[str, Path], insides: dict[str, Inside]
) -> None:
    """All units, of a text whose characters are split over pieces. Caught: keys averaged, a unit too many."""
    inside = insides["transformer"]
    sides = inside.readings()
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=maps&kind=cross&layer=1&head=2")
        for unit in ("pieces", "words", "characters"):
            report.page.click(f".tools [data-value={unit}]")
            report.settle()
            expected = inside.activations.weights("cross")[1][2]
            labels = [sides["written"].pieces, sides["source"].pieces]
            if unit != "pieces":
                units = [getattr(sides[side], unit) for side in ("written", "source")]
                groups = [u.group_of_tokens(n) for u, n in zip(units, expected.shape)]
                expected = merge(expected, *groups)
                labels = [u.labels for u in units]
            shown = [
                report.page.eval_on_selector_all(f".large text[data-{axis}]", "t => t.length")
                for axis in ("row", "column")
            ]
            assert shown == [len(labels[0]), len(labels[1])] == list(expected.shape)
            drawn = report.page.evaluate("() => [...document.querySelector('.large .heatmap').map.values]")
            np.testing.assert_allclose(np.reshape(drawn, expected.shape), expected, atol=1e-4)
            # Point at the strongest cell and read it.
            i, j = np.unravel_index(expected.argmax(), expected.shape)
            report.page.evaluate(
                "(share) => { const b = document.querySelector('.large canvas.cells').getBoundingClientRect();"
                " scrollTo(0, scrollY + b.top + share * b.height - innerHeight / 2); }",
                (i + 0.5) / expected.shape[0],
            )
            box = report.page.eval_on_selector(
                ".large canvas.cells",
                "c => { const b = c.getBoundingClientRect(); return [b.x, b.y, b.width, b.height] }",
            )
            x, y = box[0] + (j + 0.5) * box[2] / expected.shape[1], box[1] + (i + 0.5) * box[3] / expected.shape[0]
            report.page.mouse.move(x, y)
            read = report.text(".large .readout p:first-child")
            assert f"{expected.max():.3f}" in read, (unit, read)
            assert labels[0][i].replace(" ", "␣") in read and labels[1][j].replace(" ", "␣") in read
        assert "我们" in sides["source"].words.labels and "公" in sides["source"].characters.labels


def test_a_cell_is_held_and_released(browser: Any, pages: dict[str, Path]) -> None:
    """Hover, click, hover elsewhere, Escape. Caught: a held cell that changes under the pointer."""
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=maps&kind=encoder")
        box = report.page.locator(".large canvas.cells").bounding_box()
        assert box is not None
        first, second = (box["x"] + 10, box["y"] + 10), (box["x"] + 100, box["y"] + 100)
        report.page.mouse.move(*first)
        there = report.text(".large .readout")
        report.page.mouse.move(*second)
        assert report.text(".large .readout") != there
        report.page.mouse.click(*first)
        report.page.mouse.move(*second)
        assert report.text(".large .readout") == there and report.page.locator(".band.locked").count() == 2
        report.press("Escape")
        report.page.mouse.move(*first)
        report.page.mouse.move(*second)
        assert report.text(".large .readout") != there and report.page.locator(".band.locked").count() == 0
        assert report.complaints == []


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
        assert report.page.locator("dialog[open]").count() == 0
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


def test_one_head_computes_the_models_weights(browser: Any, pages: dict[str, Path], insides: dict[str, Inside]) -> None:
    """For every head of every family the page computes the weights from q, k, scale, mask: they are the model's. Grouped
    heads, windows, rotary and ALiBi are among them. Caught: another head's keys, a mask that lets the future in."""
    worst = "() => Number(document.querySelector('[data-gap]').dataset.gap)"
    with opened(browser, WIDE) as report:
        for name in ("transformer", "pruned", "gpt", "gpt on pairs", "mlm"):
            for kind, layers in insides[name].activations.attentions.items():
                for layer, one in enumerate(layers):
                    if not one.head_ids:
                        continue
                    report.page.goto("about:blank")
                    head = layer % len(one.head_ids)
                    report.open(pages[name].as_uri() + f"#view=head&kind={kind}&layer={layer}&head={head}")
                    assert report.page.evaluate(worst) < 0.01, (name, kind, layer)
                    axis = "source" if name in ("transformer", "pruned") and kind == "encoder" else "read"
                    held = f"{{ query: ['{axis}', 1], key: null }}"
                    report.page.evaluate(f"() => window.page.dispatch({{ type: 'hold', held: {held} }})")
                    report.settle()
                    assert report.page.evaluate(worst) < 0.01, (name, kind, layer, "an early query")
        assert report.complaints == []


def test_tokens_lens_and_beam_show_what_was_computed(
    browser: Any, pages: dict[str, Path], insides: dict[str, Inside]
) -> None:
    inside = insides["transformer"]
    said = inside.activations.outputs
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=tokens")
        rows = report.page.locator("table.tokens tbody tr")
        assert rows.count() == len(said.tokens)
        for i in range(len(said.tokens)):
            cells = rows.nth(i).locator("td").all_inner_texts()
            p = math.exp(said.logprob[i])
            assert p < 0.0005 or f"{p:.3f}" in cells[2], cells
            assert cells[3].strip() == f"{-said.logprob[i]:.2f}"
            assert cells[4].strip() == str(said.rank[i]) and cells[5].strip() == f"{said.entropy[i]:.2f}"
        report.show("lens")
        lens = report.page.locator("table.lens tbody tr")
        assert lens.count() == len(inside.activations.lens)
        best = inside.names([int(i) for i in inside.activations.lens[-1].best[:, 0]])
        shown = lens.nth(0).locator("td").all_text_contents()
        assert len(shown) == len(best)
        report.show("beam")
        assert inside.search is not None
        steps = inside.search.trace.steps
        assert report.page.locator("g.node").count() == sum(len(step) for step in steps)
        kept = sum(candidate.fate == "kept" for step in steps for candidate in step)
        assert report.page.locator("g.node.kept").count() == kept
        score = steps[0][0].score
        assert f"{score:.2f}".replace("-", "−") in report.page.locator("g.node").first.text_content()
        report.page.locator("g.node").first.hover()
        assert f"{steps[0][0].total:.3f}".replace("-", "−") in report.text(".readout")


def test_the_animation_runs_and_stops(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=across")
        assert report.page.locator(".strip:not(.small) .frame").count() == 3
        report.page.click(".play")
        report.page.wait_for_function("() => window.page.state.moment === 0", timeout=15000)
        report.page.wait_for_function("() => window.page.state.moment === 1", timeout=15000)
        assert "200" in report.text(".player")
        report.press("p")
        stopped = report.state("moment")
        report.page.wait_for_timeout(1000)
        assert report.state("moment") == stopped
        assert report.complaints == []


def test_small_losses_are_written_whole(browser: Any, pages: dict[str, Path]) -> None:
    """Caught: `0.000258` cut off at the left of the curve."""
    outside = """() => { const frame = document.querySelector('svg.curve').getBoundingClientRect();
      return [...document.querySelectorAll('svg.curve text')].filter((t) => { const box = t.getBoundingClientRect();
        return box.left < frame.left || box.right > frame.right; }).map((t) => t.textContent); }"""
    for size in (WIDE, NARROW):
        with opened(browser, size) as report:
            report.open(pages["transformer"].as_uri())
            report.page.evaluate("() => window.page.data.across.forEach((m, i) => (m.loss = 0.000258123 * (i + 1)))")
            report.show("across")
            assert "2.6e−4" in report.page.text_content("svg.curve")
            assert report.page.evaluate(outside) == []


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


OVERLAPS = """
() => {
  const found = [];
  for (const stage of document.querySelectorAll('.stage')) {
    for (const axis of ['row', 'column']) {
      const boxes = [...stage.querySelectorAll(`text[data-${axis}]`)].map((t) => t.getBoundingClientRect());
      boxes.forEach((a, i) => {
        const b = boxes[i + 1];
        if (!b) return;
        const over = axis === 'row' ? a.bottom - b.top : a.right - b.left;
        if (over > 3) found.push(`${axis} ${i}: ${over}`);
      });
    }
  }
  for (const node of document.querySelectorAll('g.node')) {
    const frame = node.querySelector('rect').getBoundingClientRect();
    for (const text of node.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1) found.push(`node ${text.textContent}`);
    }
  }
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) found.push(`the page is ${wide} wider than the window`);
  return found;
}
"""
CONTRAST = """
() => {
  const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const numbers = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const behind = (e) => { for (; e; e = e.parentElement) { const b = getComputedStyle(e).backgroundColor;
    if (b !== 'rgba(0, 0, 0, 0)') return numbers(b); } return [255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll('p, td, th, button, .caption, .note, h1, h3, small, label')) {
    if (!e.textContent.trim() || e.closest('[hidden]') || e.closest('tr.hidden')) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${e.tagName} ${e.className} ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return [...new Set(found)].slice(0, 5);
}
"""


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["desk", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_labels_do_not_overlap_and_text_is_readable(
    browser: Any, pages: dict[str, Path], size: dict[str, int], theme: str
) -> None:
    """At a desk and on a phone: labels beside each other, nothing wider than the window, every text at a contrast of 4.5 or
    more (WCAG AA). The theme is the system's. Caught: pieces too long for their cells, grey on grey."""
    with opened(browser, size, color_scheme=theme, locale="zh-CN" if theme == "dark" else "en-US") as report:
        report.open(pages["transformer"].as_uri())
        assert report.state("theme") == theme and report.state("language") == ("zh" if theme == "dark" else "en")
        assert ("编码器" if theme == "dark" else "encoder-decoder") in report.page.inner_text("h1")
        for view in report.views():
            report.show(view)
            assert report.page.evaluate(OVERLAPS) == [], view
            assert report.page.evaluate(CONTRAST) == [], view
        assert report.complaints == []


def test_five_hundred_tokens_open_and_have_an_overview(browser: Any, tmp_path: Path) -> None:
    """An encoder-decoder with 512 tokens on each side. Caught: all maps unpacked before the first is shown, a cell an
    element."""
    how = copy.deepcopy(FAMILIES["transformer"])
    how["model"] |= {"block_size": 520, "n_embd": 32}
    model = glassformer.load(make_run(tmp_path / "long", tokenizer="char", **how))
    text = ("the cat sat on the mat. a dog ran to the river; " * 12)[:511]
    inside = look_inside(model, text, text, beam=1)
    assert len(inside.input.source) == len(inside.input.row) == 512
    page = tmp_path / "long.html"
    page.write_text(pages_of.page_html(report_data.page_data(inside, "long")), encoding="utf-8")
    with opened(browser, WIDE) as report:
        print(f"512 tokens opened in {report.open(page.as_uri() + '#view=maps'):.2f} s")
        # Of 512 x 512 cells a map; what makes a page slow to open is their number.
        assert report.page.evaluate("() => document.querySelectorAll('*').length") < 5000
        assert report.page.locator(".overview .window").count() == 1
        box = report.page.locator(".overview .whole").bounding_box()
        assert box is not None
        report.page.mouse.click(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.7)
        number = "() => Number(document.querySelector('.large text[data-row]').dataset.row)"
        assert report.page.evaluate(number) > 100
        before = report.page.locator(".large text[data-row]").count()
        report.page.click(".zoom button:first-child")
        assert report.page.locator(".large text[data-row]").count() < before
        for view in report.views():
            report.show(view)
        assert report.complaints == []


def test_the_slider_is_dragged_and_steps_stand_where_they_belong(browser: Any, pages: dict[str, Path]) -> None:
    """Pressed at the right end and moved to the left in one go: the same slider follows all the way. The dots of the
    curve stand by their steps, not by their numbers. Caught: a slider that is replaced by each input, dots at even distances."""
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=across")
        report.page.evaluate("() => (document.querySelector('.player input').mine = true)")
        box = report.page.locator(".player input").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        report.page.mouse.move(box["x"] + box["width"] - 8, middle)
        report.page.mouse.down()
        for share in (0.6, 0.5, 0.3, 0.02):
            report.page.mouse.move(box["x"] + box["width"] * share, middle)
            report.settle()
        report.page.mouse.up()
        assert report.state("moment") == 0 and "100" in report.text(".player")
        assert report.page.evaluate("() => document.querySelector('.player input').mine") is True
        places = report.page.eval_on_selector_all(
            "svg.curve circle", "dots => dots.map(d => Number(d.getAttribute('cx')))"
        )
        assert places[1] - places[0] > 1.3 * (places[2] - places[1]), "100, 200, 300 on a logarithmic scale"


def test_a_phone_is_not_outgrown_at_first_draw(browser: Any, pages: dict[str, Path]) -> None:
    """Every view, the moment it stands. Caught: a map laid out before its column has a width."""
    with opened(browser, NARROW) as report:
        report.open(pages["transformer"].as_uri() + "#view=across")
        for view in report.views():
            report.show(view)
            wide = "() => [...document.querySelectorAll('.stage')].map(s => s.getBoundingClientRect().right)"
            assert all(right <= 391 for right in report.page.evaluate(wide)), view


def test_one_hold_in_all_views_and_in_the_address(browser: Any, pages: dict[str, Path]) -> None:
    """A cell held in Maps is held in Lines, Tokens, Lens, One head and Attribution; the address brings it back; picking another
    head by mouse keeps it; Esc releases it from any view. Caught: views that do not know of each other."""
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=maps&kind=cross")
        box = report.page.locator(".large canvas.cells").bounding_box()
        assert box is not None
        report.page.mouse.click(box["x"] + 10, box["y"] + 10)
        report.settle()
        held = report.state("held")
        assert held == {"query": ["read", 0], "key": ["source", 0]}
        report.page.click(".thumb[data-kind=cross][data-layer='1'][data-head='1']")
        report.settle()
        assert report.state("held") == held and report.page.locator(".band.locked").count() == 2
        marks = {"lines": ".links text.lit", "tokens": "tr.lit[data-at='0']", "lens": "td.locked[data-at='0']"}
        for view, mark in marks.items():
            report.show(view)
            assert report.page.locator(mark).count() >= 1, view
        report.show("attribution")
        assert report.page.locator(".controls select").first.input_value() == "0"
        for view in ("lens", "lines", "beam", "head"):
            report.page.evaluate("(held) => window.page.dispatch({ type: 'hold', held })", held)
            report.show(view)
            report.press("Escape")
            assert report.state("held") is None, view
        report.page.goto("about:blank")
        report.open(pages["transformer"].as_uri() + "#view=maps&kind=cross&query=read.1&key=source.2")
        assert report.page.locator(".band.locked").count() == 2 and "key=source.2" in report.page.url
        report.page.goto("about:blank")
        report.open(pages["transformer"].as_uri() + "#view=maps&kind=cross&query=read.9999&layer=77")
        assert report.state("held") is None and report.complaints == []


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


def test_terms_in_the_page_add_up_and_actions_are_told(browser: Any, pages: dict[str, Path]) -> None:
    """The sum of the terms as the page has them is the difference of the logits, to 1e-3 of what is shown; what a
    reader does is told to whoever listens; another report in the same page keeps what still fits."""
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=attribution")
        facts = report.page.eval_on_selector(".sum", "p => [Number(p.dataset.sum), Number(p.dataset.logits)]")
        assert facts[0] == pytest.approx(facts[1], abs=1e-3)
        report.page.evaluate("() => { window.told = []; window.page.listen((a) => window.told.push(a.type)); }")
        report.show("machine")
        report.page.click("g.box[data-part='decoder.mlp']")
        report.settle()
        assert "decoder.0.mlp" in report.text(".details") and "def forward" in report.text(".details")
        assert report.page.evaluate("() => window.told").count("set") == 2
        report.page.evaluate(
            "() => window.page.update({ ...window.page.data, title: 'another', beside: window.page.data })"
        )
        report.settle()
        assert report.page.locator(".panel").count() == 2 and report.state("part") == "decoder.mlp"
        report.show("maps")
        assert report.page.locator(".heatmap").count() == 3, "two maps and their difference"
        report.page.evaluate("() => window.page.destroy()")
        assert report.page.inner_text("#page") == "" and report.complaints == []


def test_the_modules_are_modules(browser: Any, insides: dict[str, Inside], tmp_path: Path) -> None:
    """Handed out by a plain server as they are, with the data in a file of its own: the same page. Caught: an import that
    only works when all modules are in one file."""
    for name, text in pages_of.page_files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "data.json").write_text(json.dumps(report_data.page_data(insides["gpt"], "served")), encoding="utf-8")
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
