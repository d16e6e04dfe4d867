"""Nothing lies on anything else: labels, contrast, phones, long texts."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.inspection import data as report_data
from glassformer.inspection import page as pages_of
from glassformer.inspection.inspection import look_inside
from tests.browser.report import NARROW, WIDE, opened
from tests.inspection.families import FAMILIES
from tests.talking import make_run

pytestmark = pytest.mark.slow


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


def test_a_phone_is_not_outgrown_at_first_draw(browser: Any, pages: dict[str, Path]) -> None:
    """Every view, the moment it stands. Caught: a map laid out before its column has a width."""
    with opened(browser, NARROW) as report:
        report.open(pages["transformer"].as_uri() + "#view=across")
        for view in report.views():
            report.show(view)
            wide = "() => [...document.querySelectorAll('.stage')].map(s => s.getBoundingClientRect().right)"
            assert all(right <= 391 for right in report.page.evaluate(wide)), view


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
