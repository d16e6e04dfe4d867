"""What is held is held everywhere, until it is released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.report import WIDE, opened

pytestmark = pytest.mark.slow


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
