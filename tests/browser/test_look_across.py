"""Across training: the strip, the slider, the animation and the curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.report import NARROW, WIDE, opened

pytestmark = pytest.mark.slow


def test_the_animation_runs_and_stops(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=across")
        assert report.page.locator(".strip:not(.small) .frame").count() == 3
        report.page.click(".play")
        report.page.wait_for_function("() => window.page.state.moment === 0")
        # Both at once: a moment later the next one is shown.
        told = "() => window.page.state.moment === 1 && document.querySelector('.player').innerText.includes('200')"
        report.page.wait_for_function(told)
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
