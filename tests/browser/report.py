"""A report that is open in a real browser, and what is done with it there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from glassformer.inspection.inspection import Inspection

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
PATIENCE = 120_000  # ms that a page may take for anything: a busy machine is no failure


VIEWS = [
    "machine",
    "maps",
    "lines",
    "head",
    "tokens",
    "lens",
    "attribution",
    "beam",
    "across",
    "patching",
    "norms",
    "rollout",
]


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
        self.settle()
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
    context.set_default_timeout(PATIENCE)
    try:
        yield Report(context.new_page())
    finally:
        context.close()


def expected_views(inside: Inspection) -> list[str]:
    missing = set()
    if inside.patching is None:
        missing.add("patching")
    if inside.search is None:
        missing.add("beam")
    if not inside.across:
        missing.add("across")
    return [view for view in VIEWS if view not in missing]
