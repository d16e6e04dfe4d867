"""Two reports in one page: two texts, two runs, two checkpoints, made by the command; what differs is marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassformer
from glassformer.inspection.inspection import look_inside
from glassformer.runs.folder import RunFolder
from tests.browser.report import NARROW, WIDE, opened
from tests.commands import call
from tests.inspection.families import FAMILIES, with_checkpoints
from tests.talking import make_run

pytestmark = pytest.mark.slow

TEXT = "the cat ran to Paris"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with kept weights of steps 100 and 200, and a GPT."""
    folder = tmp_path_factory.mktemp("runs")
    found = {"a": make_run(folder / "a", **FAMILIES["transformer"]), "gpt": make_run(folder / "gpt", **FAMILIES["gpt"])}
    run = with_checkpoints(found["a"], [100, 200])
    run.checkpoints.path(100).rename(run.path / "moving")
    run.history.folder.mkdir()
    (run.path / "moving").rename(run.history.path(100))  # weights that are kept to look at, as training leaves them
    heads = {
        "whole": {"loss": 1.0},
        "parts": [{"part": "decoder.0.cross:1", "kind": "broad", "without": {"zero": {"loss": 1.5}}}],
    }
    (found["a"] / "heads").mkdir()
    (found["a"] / "heads" / "heads.json").write_text(json.dumps(heads), encoding="utf-8")
    return found


def report_of(run: Path, out: Path, *arguments: str) -> Path:
    result = call("look", run, TEXT, "--no-pictures", "--out", out, *arguments)
    assert result.returncode == 0, result.stderr
    return out / "look.html"


def test_two_checkpoints(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    """The distance of two heads and their difference are those of the weights in Python; Tokens says by how much the
    probabilities changed; what `heads` found of the final weights stands on their maps alone. Caught: weights of a step that
    are kept but not found, a difference the wrong way round."""
    page = report_of(runs["a"], tmp_path / "out", "--beside-step", "100", "--target", "a dog sat")
    final, early = (
        look_inside(glassformer.load(runs["a"], step=step), TEXT, "a dog sat").activations for step in (None, 100)
    )
    with opened(browser, WIDE) as report:
        report.open(page.as_uri() + "#view=maps&kind=cross&layer=1&head=2")
        assert report.page.locator(".panel h2").all_inner_texts() == ["a", "a, step 100"]
        expected = early.weights("cross")[1][2] - final.weights("cross")[1][2]
        drawn = report.page.evaluate("() => [...document.querySelectorAll('.panel .heatmap')].at(-1).map.values")
        np.testing.assert_allclose(np.reshape(drawn, expected.shape), expected, atol=1e-4)
        thumb = report.page.locator(".panel").nth(1).locator(".thumb[data-kind=cross][data-layer='1'][data-head='2']")
        apart = float(np.abs(expected).sum(-1).mean() / 2)
        assert f"Δ {apart:.2f}" in thumb.inner_text()
        worth = report.page.locator(".thumb[data-kind=cross][data-layer='0'][data-head='1'] .badge:first-of-type")
        assert "+0.50" in worth.nth(0).inner_text() and "+0.50" not in worth.nth(1).inner_text()
        report.show("tokens")
        change = np.exp(early.outputs.logprob[0]) - np.exp(final.outputs.logprob[0])
        shown = report.page.locator(".panel").nth(1).locator("td.change").first.inner_text()
        assert float(shown.replace("−", "-")) == pytest.approx(change, abs=2e-3)
        for view in report.views():
            report.show(view)
            assert report.page.locator(".failure").count() == 0, view
        assert report.complaints == []


def test_two_texts_of_different_lengths(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    """What the other text does not have is marked, and heads are compared where both have the same tokens. A token that is held
    and that the other does not have is held in one. Caught: the last token held in the place of a missing one."""
    page = report_of(runs["a"], tmp_path / "out", "--beside", "the dog ran", "--target", "a dog sat")
    with opened(browser, WIDE) as report:
        report.open(page.as_uri() + "#view=maps&kind=encoder")
        assert report.page.locator(".panel mark").all_inner_texts() == ["cat", " ", "to", " ", "Paris", "dog"]
        assert "both texts have" in report.text(".panel:nth-child(2)")
        last = report.page.evaluate("() => window.page.data.sides.source.pieces.length - 1")
        held = {"query": ["source", last], "key": ["source", 0]}
        report.page.evaluate("(held) => window.page.dispatch({ type: 'hold', held })", held)
        report.settle()
        locked = [
            report.page.locator(".panel").nth(i).locator(".large > .heatmap .band.locked").count() for i in (0, 1)
        ]
        assert locked[0] == 2 and locked[1] == 0
        assert report.complaints == []


def test_two_runs_of_different_families(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    """An encoder-decoder beside a GPT: each shows the attentions it has, and a view that one lacks says so. On a phone they
    stand one above the other. Caught: a view that fails for an attention that the other has."""
    page = report_of(runs["gpt"], tmp_path / "out", "--beside-run", str(runs["a"]), "--against", "the dog ran to Paris")
    for size in (WIDE, NARROW):
        with opened(browser, size) as report:
            report.open(page.as_uri())
            assert "patching" in report.views()
            for view in report.views():
                report.show(view)
                assert report.page.locator(".failure").count() == 0, (view, report.text(".failure"))
                wide = report.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, view
            report.show("patching")
            assert "does not have this view" in report.text(".panel:nth-child(2)")
            report.page.evaluate("() => window.page.set({ view: 'head', kind: 'decoder', layer: 2, head: 3 })")
            report.settle()
            assert report.page.locator("[data-gap]").count() == 2 and report.complaints == []


def test_a_step_that_is_kept_to_look_at_can_be_loaded(runs: dict[str, Path]) -> None:
    """Of a step that no checkpoint is left of, the history may have the weights; others are named."""
    early, final = (glassformer.load(runs["a"], step=step).model.state_dict() for step in (100, None))
    assert any(not np.array_equal(early[name], final[name]) for name in final)
    assert RunFolder.open(runs["a"]).checkpoints.steps() == [200]
    result = call("look", runs["a"], TEXT, "--step", "150")
    assert result.returncode == 2 and "no checkpoint of step 150; there are: 100, 200" in result.stderr
