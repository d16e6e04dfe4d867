"""Every view of a report as a screenshot, in both languages, light and dark, on a phone and on two screens; and the drawing of
the machine as an SVG of its own, for the tour.

    python -m tests.browser.screenshots runs/dates/look/look.html shots
    python -m tests.browser.screenshots runs/dates/look/look.html shots --languages en --themes light --widths 1400
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

from tests.browser.conftest import NAMES

MACHINE = """() => {
  const drawn = document.querySelector('svg.machine');
  const picture = drawn.cloneNode(true);
  const shown = drawn.querySelectorAll('*');
  const own = picture.querySelectorAll('*');
  shown.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'font-size', 'font-weight', 'font-style'])
      own[i].setAttribute(name, style.getPropertyValue(name));
  });
  picture.setAttribute('font-family', 'DejaVu Sans, sans-serif');
  picture.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  return new XMLSerializer().serializeToString(picture);
}"""


def shoot(page: Any, out: Path, name: str) -> None:
    """Each view of the page that is open."""
    for view in page.eval_on_selector_all("[role=tab]", "tabs => tabs.map(tab => tab.dataset.view)"):
        page.click(f"[role=tab][data-view={view}]")
        page.wait_for_selector(f"#view[data-view={view}][aria-busy=false]")
        page.wait_for_timeout(100)
        page.screenshot(path=out / f"{view}-{name}.png", full_page=True, animations="disabled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--languages", nargs="+", default=["en", "zh"])
    parser.add_argument("--themes", nargs="+", default=["light", "dark"])
    parser.add_argument("--widths", nargs="+", type=int, default=[390, 1400, 1920])
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    asked.out.mkdir(parents=True, exist_ok=True)
    path = next(found for name in NAMES if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        for language in asked.languages:
            for theme in asked.themes:
                for width in asked.widths:
                    locale = "zh-CN" if language == "zh" else "en-US"
                    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme, locale=locale)
                    page.goto(asked.report.resolve().as_uri())
                    page.wait_for_selector("html[data-ready=yes]")
                    shoot(page, asked.out, f"{language}-{theme}-{width}")
                    if (language, theme, width) == (asked.languages[0], asked.themes[0], asked.widths[-1]):
                        page.click("[role=tab][data-view=machine]")
                        page.wait_for_selector("#view[data-view=machine][aria-busy=false]")
                        (asked.out / "machine.svg").write_text(page.evaluate(MACHINE), encoding="utf-8")
                    page.close()
        browser.close()


if __name__ == "__main__":
    main()
