"""Every view of a report as a screenshot, in both languages, light and dark, on a phone and on two screens; the drawings of its
machine as SVGs, for the tour; and the few pictures that the documents show.

    python -m tests.browser.screenshots runs/dates/look/look.html shots
    python -m tests.browser.screenshots runs/dates/look/look.html shots --languages en --themes light --widths 1400
    python -m tests.browser.screenshots runs/dates/look/look.html shots --languages --documents docs/figures --name transformer

The folder of all screenshots is to be looked at and thrown away; what stands in the documents is small.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.browser.conftest import NAMES

# A drawing without its page: what the style sheet says is written into each element, on white paper.
DRAWING = """([selector, name]) => {
  const drawn = document.querySelector(selector);
  drawn.querySelectorAll('[aria-pressed=true]').forEach((box) => box.setAttribute('aria-pressed', 'false'));
  const picture = drawn.cloneNode(true);
  const own = picture.querySelectorAll('*');
  const plain = { 'stroke-dasharray': 'none', 'font-weight': '400', 'font-style': 'normal', 'stroke-width': '1px' };
  drawn.querySelectorAll('*').forEach((element, i) => {
    const style = getComputedStyle(element);
    const names = { text: ['fill', 'font-size', 'font-weight', 'font-style'], g: [], defs: [], marker: [] }[element.tagName];
    for (const one of names ?? ['fill', 'stroke', 'stroke-width', 'stroke-dasharray']) {
      const value = style.getPropertyValue(one);
      if (value !== plain[one]) own[i].setAttribute(one, value);
    }
    for (const one of ['class', 'role', 'tabindex', 'data-part', 'aria-pressed', 'aria-label']) own[i].removeAttribute(one);
  });
  const make = (tag, attributes) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  if (!picture.querySelector('defs')) {
    const defs = document.querySelector('svg.machine defs').cloneNode(true);
    defs.querySelector('path').setAttribute('fill', getComputedStyle(document.querySelector('svg.machine .tip')).fill);
    picture.prepend(defs);
  }
  picture.prepend(make('rect', { width: '100%', height: '100%', fill: '#ffffff', rx: 8 }));
  for (const one of ['class', 'style']) picture.removeAttribute(one);
  picture.setAttribute('role', 'img');
  picture.setAttribute('aria-label', name);
  picture.setAttribute('font-family', 'DejaVu Sans, Noto Sans CJK SC, sans-serif');
  picture.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  return new XMLSerializer().serializeToString(picture);
}"""

PARTS = {"block": "decoder.mlp_add", "multi-head": "decoder.attention"}
"""The small drawings beside the large one, and the part that shows each."""

PICTURES = {
    "transformer": {
        "look-machine": "view=machine",
        "look-lines": "view=lines&kind=cross",
        "look-attribution": "view=attribution",
        "readme-look": "view=maps&kind=cross&layer=1&head=1&query=read.6&key=source.2",
    },
    "beside": {"look-beside": "view=maps&kind=cross&layer=1&head=3"},
}
"""The pictures of the documents, by whose report they are, and the address of what each shows."""


@contextmanager
def a_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = next(found for name in NAMES if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


def opened_page(browser: Any, report: Path, language: str, theme: str, width: int, place: str = "") -> Any:
    """The report, drawn."""
    locale = "zh-CN" if language == "zh" else "en-US"
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, locale=locale, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(f"{report.resolve().as_uri()}#{place}")
    page.wait_for_selector("html[data-ready=yes]")
    return page


def shoot(page: Any, out: Path, name: str) -> None:
    """Each view of the page that is open."""
    for view in page.eval_on_selector_all("[role=tab]", "tabs => tabs.map(tab => tab.dataset.view)"):
        page.click(f"[role=tab][data-view={view}]")
        page.wait_for_selector(f"#view[data-view={view}][aria-busy=false]")
        page.wait_for_timeout(100)
        page.screenshot(path=out / f"{view}-{name}.png", full_page=True, animations="disabled")


def draw_machine(browser: Any, report: Path, folder: Path, name: str) -> None:
    """machine-NAME.svg, and of an encoder-decoder one block and its attention, in both languages."""
    for language, ending in (("en", ".svg"), ("zh", ".zh.svg")):
        page = opened_page(browser, report, language, "light", 1400, "view=machine")
        title = page.inner_text("[role=tab][data-view=machine]")
        drawn = page.evaluate(DRAWING, ["svg.machine", title])
        (folder / f"machine-{name}{ending}").write_text(drawn, encoding="utf-8")
        for part, chosen in PARTS.items() if name == "transformer" else ():
            page.evaluate("(part) => window.page.set({ part })", chosen)
            page.wait_for_selector(".details svg.machine")
            drawn = page.evaluate(DRAWING, [".details svg.machine", page.inner_text(".details h3")])
            (folder / f"machine-{part}{ending}").write_text(drawn, encoding="utf-8")
        page.context.close()


def picture_documents(browser: Any, report: Path, folder: Path, name: str) -> None:
    """The pictures of the documents: 1400 pixels wide, light, in 256 colours."""
    from PIL import Image

    languages = (("en", ".png"), ("zh", ".zh.png"))
    for (file, place), (language, ending) in itertools.product(PICTURES.get(name, {}).items(), languages):
        page = opened_page(browser, report, language, "light", 1400, place)
        page.wait_for_timeout(100)
        foot = page.locator("footer").bounding_box()
        clip = {"x": 0, "y": 0, "width": 1400, "height": min(1240, int(foot["y"]))}
        shot = page.screenshot(full_page=True, clip=clip)
        few = Image.open(io.BytesIO(shot)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(folder / f"{file}{ending}", optimize=True)
        page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path, help="where every screenshot goes")
    parser.add_argument("--languages", nargs="*", default=["en", "zh"])
    parser.add_argument("--themes", nargs="*", default=["light", "dark"])
    parser.add_argument("--widths", nargs="*", type=int, default=[390, 1400, 1920])
    parser.add_argument("--documents", type=Path, help="where the pictures of the documents go")
    parser.add_argument("--name", help="with --documents: what the report is of (transformer, gpt, bert, beside)")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with a_browser() as browser:
        for language in asked.languages:
            for theme in asked.themes:
                for width in asked.widths:
                    page = opened_page(browser, asked.report, language, theme, width)
                    shoot(page, asked.out, f"{language}-{theme}-{width}")
                    page.context.close()
        if asked.documents and asked.name:
            picture_documents(browser, asked.report, asked.documents, asked.name)
            if asked.name != "beside":
                draw_machine(browser, asked.report, asked.documents, asked.name)


if __name__ == "__main__":
    main()
