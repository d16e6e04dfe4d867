"""Taking things away from the live page, in a real browser: each file holds what was on the screen."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import glassformer
from glassformer.inspection.inspection import look_inside
from tests.browser.test_live_page import LiveTab
from tests.browser.test_serve_page import TEXT
from tests.serve.harness import Running

pytestmark = pytest.mark.slow


@pytest.fixture
def path(paths: list[Path]) -> Path:
    return paths[0]


def taken(tab: LiveTab, what: str) -> tuple[str, bytes]:
    """A file's name and what is in it."""
    with tab.page.expect_download() as waiting:
        tab.page.click(f"#take-{what}")
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_each_file_holds_what_was_seen(browser: Any, server: Running, path: Path) -> None:
    """The numbers are the model's; the drawing is a drawing by itself; the report opens without a server, with the cut in it;
    and the address shows the same again. Broken variant: the report of the whole model."""
    words = TEXT.replace(" ", "+")
    tab = LiveTab(browser, server, f"/open?text={words}&cut=decoder.0.mlp#view=maps&kind=encoder&layer=1&head=1")
    data = tab.wait(TEXT, 1)
    name, content = taken(tab, "csv")
    head, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig")))
    inside = look_inside(glassformer.load(path, device="cpu"), TEXT, explained=False)
    weights = inside.activations.attentions["encoder"][1].weights[1]
    assert name == "maps.csv" and head == ["encoder.1.attention:1", *inside.readings()["source"].pieces]
    assert [[float(cell) for cell in row[1:]] for row in rows] == [
        pytest.approx(row, abs=2e-5) for row in weights.tolist()
    ]
    name, content = taken(tab, "png")
    assert name == "maps.png" and content.startswith(b"\x89PNG\r\n")
    name, content = taken(tab, "page")
    report = path.parent / name
    report.write_bytes(content)
    other = tab.context.new_page()
    other.goto(report.as_uri())
    other.wait_for_selector("#view[aria-busy=false]")
    assert data["answer"] in other.inner_text("header")
    other.close()
    tab.page.click("[data-view=tokens]")
    tab.page.wait_for_selector("#view[data-view=tokens][aria-busy=false]")
    _, content = taken(tab, "csv")
    lines = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    assert [float(line["logprob"]) for line in lines] == pytest.approx(data["outputs"]["logprob"])
    tab.page.click("#take-svg")
    # There is no drawing of tokens, and that is said.
    tab.page.wait_for_function("() => document.querySelector('#take [role=status]').textContent")
    tab.page.click("[data-view=machine]")
    tab.page.wait_for_selector("#view[data-view=machine][aria-busy=false]")
    name, content = taken(tab, "svg")
    assert name == "machine.svg" and len(list(ElementTree.fromstring(content).iter())) > 10
    assert taken(tab, "png")[1].startswith(b"\x89PNG\r\n")
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.page.click("#take-address")
    tab.page.wait_for_function("() => document.querySelector('#take [role=status]').textContent === 'copied'")
    again = LiveTab(
        browser, server, str(tab.page.evaluate("navigator.clipboard.readText()")).removeprefix(server.address)
    )
    assert again.wait(TEXT, 1)["answer"] == data["answer"]
    assert again.page.get_attribute("[role=tab][aria-selected=true]", "data-view") == "machine"
    assert not tab.complaints and not again.complaints
    tab.context.close()
    again.context.close()


def test_in_chinese(browser: Any, server: Running) -> None:
    tab = LiveTab(browser, server, "/open?text=eins", locale="zh-CN")
    tab.wait("eins")
    assert not re.search("Take|Copy|Numbers|Drawing|Picture|views", tab.page.inner_text("#take"))
    tab.context.close()
