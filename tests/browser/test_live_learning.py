"""Runs that are watched while they learn, in a real browser: curves, samples, the slider over kept weights, a run begun."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.inspection.inspection import look_inside
from glassformer.runs.folder import RunFolder
from tests.browser.test_live_page import LiveTab
from tests.browser.test_serve_page import NARROW, TEXT
from tests.inspection.families import logits_of
from tests.serve.harness import Running, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(two_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies, since logs grow and a run is begun."""
    return Path(shutil.copytree(two_runs, tmp_path_factory.mktemp("learning") / "runs"))


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with running([folder / "numbers", folder / "steeper"], examples=True, watched=[folder]) as found:
        yield found


@pytest.fixture
def tab(browser: Any, server: Running) -> Iterator[LiveTab]:
    found = LiveTab(browser, server, "/open?model=numbers&text=eins+zwei+drei")
    yield found
    found.context.close()
    assert not found.complaints
    assert all(url.startswith((server.address, "data:")) for url in found.requests)


def at_step(tab: LiveTab, step: int | None) -> dict[str, Any]:
    """The data on the screen, once the weights of this step have answered, with all kept weights beside."""
    told = (
        "step => live.data?.step === step && live.data.across.length && live.data.saliency && live.drawn === live.data"
    )
    tab.page.wait_for_function(told, arg=step)
    tab.page.wait_for_function("() => live.state.textContent === ''")
    return tab.page.evaluate("live.data")  # type: ignore[no-any-return]


def test_the_curves_are_the_logs(tab: LiveTab, folder: Path) -> None:
    """A point for each line of each run; what another process appends is there a moment later; a run can be hidden."""
    tab.page.click("#curves summary")
    points = (
        "name => [...document.querySelectorAll(`[data-chart^=${name}] polyline.raw`)].map(line => line.points.length)"
    )
    logged = [sum("loss" in line for line in RunFolder(folder / name).metrics()) for name in ("numbers", "steeper")]
    tab.page.wait_for_function(f"() => ({points})('Loss').length === 2")  # the logs are asked for when the curves open
    assert tab.page.evaluate(points, "Loss") == logged == [12, 12]
    validated = sum(
        "val_loss" in line for name in ("numbers", "steeper") for line in RunFolder(folder / name).metrics()
    )
    assert tab.page.locator("[data-chart^=Loss] circle").count() == validated == 6
    assert tab.page.locator("#curves .charts figure").count() == 4
    log = folder / "steeper" / "metrics.jsonl"
    before = log.read_bytes()
    try:
        with log.open("a") as file:
            file.write('{"step": 26, "loss": 1.25, "lr": 0.001, "tokens": 99999, "clock": 99.0}\n')
        tab.page.wait_for_function(f"() => ({points})('Loss')[1] === 13")
        assert "step 26 of 24" in tab.page.inner_text("[data-run=steeper]")
    finally:
        log.write_bytes(before)
    tab.page.wait_for_function(f"() => ({points})('Loss')[1] === 12")
    tab.page.click("[data-run=steeper]")
    assert tab.page.evaluate(points, "Loss") == [12]


def test_samples_fill_a_table(tab: LiveTab, folder: Path) -> None:
    """Each cell is what samples.jsonl has; a click reads the text."""
    tab.page.click("#curves summary")
    lines = [json.loads(line) for line in (folder / "numbers" / "samples.jsonl").read_text().splitlines()]
    tab.page.wait_for_selector("#learning thead th >> nth=2")  # the samples are asked for when the curves open
    head = tab.page.locator("#learning thead th").all_inner_texts()
    assert head[2:] == [f"step {step}" for step in sorted({line["step"] for line in lines}, reverse=True)]
    cells = {
        row[0]: row[1:] for row in (r.split("\t") for r in tab.page.locator("#learning tbody tr").all_inner_texts())
    }
    for line in lines:
        row = [cell.strip() for cell in cells[line["source"]]]
        assert row[0] == line["wanted"] and row[head.index(f"step {line['step']}") - 1] == line["written"].strip()
    tab.page.click("#learning tbody button >> nth=1")
    tab.wait(lines[1]["source"])


def test_the_slider_drives_all_views(tab: LiveTab, server: Running, folder: Path) -> None:
    """At each end of it the answer and its numbers are those of the weights of that step, while others are answered by the
    latest. The step under a token is the first whose weights, on the answer so far, put it first. Broken variants: the latest
    weights under an earlier step's name; ranks counted from 0."""
    run = RunFolder.open(folder / "numbers")
    kept = sorted({*run.history.steps(), *run.checkpoints.steps()})
    latest = at_step(tab, None)
    assert tab.page.evaluate("live.learning.run.kept") == kept and len(kept) >= 5
    models = {step: glassformer.load(run.path, device="cpu", step=step) for step in kept}
    inside = look_inside(models[kept[-1]], TEXT, latest["answer"], explained=False)
    chosen = inside.activations.outputs.tokens.tolist()
    first: list[str] = []
    for place, token in enumerate(chosen):
        found = [
            s for s in kept if int(logits_of(inside, models[s].model)[inside.input.positions[place]].argmax()) == token
        ]
        first.append(str(found[0]) if found else "")
    assert tab.page.eval_on_selector_all("#learned .mark", "all => all.map(one => one.dataset.first)") == first
    tab.page.focus("#step")
    tab.page.keyboard.press("Home")
    data = at_step(tab, kept[0])
    expected = look_inside(models[kept[0]], TEXT, explained=False)
    assert data["answer"] == expected.answer
    assert data["outputs"]["logprob"] == pytest.approx(expected.activations.outputs.logprob.tolist(), abs=1e-3)
    served = server.served.models.get("numbers")
    asked = {"q": TEXT, "source": served.sources[0], "target": served.target, "model": "numbers"}
    assert server.post("/translate", asked)["translatedText"] == latest["answer"]
    assert f"step={kept[0]}" in tab.address()
    tab.page.keyboard.press("End")
    assert at_step(tab, None)["outputs"] == latest["outputs"] and "step=" not in tab.address()


def test_the_address_holds_the_step(browser: Any, server: Running) -> None:
    found = LiveTab(browser, server, "/open?model=numbers&text=eins&step=10#view=across")
    at_step(found, 10)
    assert found.page.get_attribute("[role=tab][aria-selected=true]", "data-view") == "across"
    found.context.close()
    wrong = LiveTab(browser, server, "/open?model=numbers&text=eins&step=11")
    wrong.page.wait_for_selector("#state.failed")
    assert "11" in wrong.page.inner_text("#state")
    wrong.context.close()


def test_a_run_is_begun_from_the_page(tab: LiveTab, folder: Path) -> None:
    """A name that is taken is told; another is trained, its curve grows, and in the end it answers."""
    tab.page.click("#curves summary")
    tab.page.click("#begin summary")
    tab.page.select_option("#recipe", "dates")
    changes = (
        "train.steps=6 train.log_every=1 train.validate_every=6 train.save_every=6 train.warmup=1 train.device=cpu"
    )
    tab.page.fill("#changes", f"{changes} model.n_layer=1 model.n_embd=16 model.n_hidden=16 data.batch_tokens=256")
    tab.page.fill("#name", "numbers")
    tab.page.click("#start")
    tab.page.wait_for_selector("#begun.failed")
    assert "already" in tab.page.inner_text("#begun")
    tab.complaints.clear()  # the browser notes the refusal
    tab.page.fill("#name", "mine")
    tab.page.click("#start")
    tab.page.wait_for_function(
        "() => live.learning.runs.get('mine')?.ended && live.models.includes('mine')", timeout=180_000
    )
    tab.page.wait_for_selector("[data-run=mine]:has-text('step 6 of 6')")  # what is known is drawn a moment later
    tab.page.select_option("#live select", "mine")
    tab.page.fill("#text", "3 mai 1979")
    assert tab.wait("3 mai 1979")["title"] == "mine"
    assert RunFolder.open(folder / "mine").finished() == 6


@pytest.mark.parametrize(
    "how", [{"viewport": NARROW}, {"locale": "zh-CN", "color_scheme": "dark"}], ids=["narrow", "zh"]
)
def test_on_every_screen(how: dict[str, Any], browser: Any, server: Running) -> None:
    found = LiveTab(browser, server, "/open?model=numbers&text=eins", **how)
    found.page.click("#curves summary")
    found.page.wait_for_selector("#learned .mark")
    found.page.wait_for_selector("#curves .charts figure")
    assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if "locale" in how:
        assert not re.search("Watch|Weights|Loss|Samples|wanted|Begin", found.page.inner_text("#learning"))
    assert not found.complaints
    found.context.close()
