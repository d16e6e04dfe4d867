"""The documents as a site, built once and read from the disk, as people do: nothing from elsewhere, nothing beyond the edge of a
phone, and a search that finds in both languages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.report import PATIENCE

ROOT = Path(__file__).parents[2]
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a warning is an error."""
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    return folder


@pytest.mark.slow
def test_the_site_is_whole_by_itself(site: Path) -> None:
    """Both languages; nothing from elsewhere; formulas need no script; each part of the site has its own reference, and notebooks
    with what they have shown."""
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    for path, html in pages.items():
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//[^"]*"', html), path.name
    first = pages[site / "tour" / "dictionary.html"]
    assert "<math" in first and "def" in first and "\\frac" not in re.sub(r"<annotation.*?</annotation>", "", first)
    notebook = pages[site / "zh" / "notebooks" / "first-look.html"]
    assert (
        "第一眼" in notebook and "edaf" in notebook and "data:image/png" in notebook
    )  # text, what was shown, a picture
    names = ("tour/dictionary", "reference/public", "source/glassformer/nn/attention.py", "notebooks/look-inside")
    for name in names:
        assert '<html lang="en"' in pages[site / f"{name}.html"]
        assert '<html lang="zh"' in pages[site / "zh" / f"{name}.html"]
        for page in (
            site / f"{name}.html",
            site / "zh" / f"{name}.html",
        ):  # the menu of languages leads to the same page
            other = dict(re.findall(r'<a href="([^"]+)" hreflang="(\w+)"', pages[page]))
            led = {language: (page.parent / link).resolve() for link, language in other.items()}
            assert led == {"en": site / f"{name}.html", "zh": site / "zh" / f"{name}.html"}
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titles = {entry["title"].replace("\u200b", "") for entry in index["docs"]}
    assert {"A soft dictionary", "软字典"} <= titles
    boosts = {entry["location"].split("#")[0]: entry.get("boost", 1) for entry in index["docs"]}
    assert boosts["tour/heads.html"] > boosts["how-to/serve.html"] > boosts["log.html"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "words", "found"), [("index", "dictionary", "tour/"), ("zh/index", "掩码", "zh/tour/masks")]
)
def test_the_search_finds_without_a_network(site: Path, browser: Any, start: str, words: str, found: str) -> None:
    """Broken variant: a stand-in for the worker that looks for its scripts beside the page."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto((site / f"{start}.html").as_uri())
    page.focus("input.md-search__input")
    page.wait_for_function("!/nitializ|初始/.test(document.querySelector('.md-search-result__meta').textContent)")
    page.keyboard.insert_text(words)
    page.keyboard.press("Shift")
    page.wait_for_selector(".md-search-result__link", state="attached")
    assert found in page.get_attribute(".md-search-result__link", "href")
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "view", "words"), [("tour/heads", "head", "One head"), ("zh/tour/decoding", "beam", "束搜索")]
)
def test_a_report_stands_in_the_tour(site: Path, browser: Any, start: str, view: str, words: str) -> None:
    """The view that the page speaks of, in its language, live. Caught: an address that is wrong one folder down, a report of an
    older page."""
    page = browser.new_page(viewport=PHONE)
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((site / f"{start}.html").as_uri())
    page.locator("iframe.report").scroll_into_view_if_needed()
    report = page.frame_locator("iframe.report")
    report.locator(f"[role=tab][data-view={view}][aria-selected=true]").wait_for()
    assert report.locator(f"[role=tab][data-view={view}]").inner_text() == words
    report.locator("[role=tab][data-view=tokens]").click()
    report.locator("#view[data-view=tokens][aria-busy=false]").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and not complaints
    page.close()


@pytest.mark.slow
def test_no_page_is_wider_than_a_phone(site: Path, browser: Any) -> None:
    page = browser.new_page(viewport=PHONE)
    page.set_default_timeout(PATIENCE)
    for name in (
        "tour/positions",
        "zh/tour/table-1",
        "zh/tables/tutorials",
        "how-to/export",
        "reference/public",
        "zh/index",
        "zh/notebooks/first-look",
    ):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
    page.close()
