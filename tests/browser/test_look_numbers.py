"""What the page of `look` shows are the numbers that Python computed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.inspection.inspection import Inspection
from tests.browser.report import WIDE, opened
from tests.grouping import group_of_tokens, merge

pytestmark = pytest.mark.slow


def test_merging_in_the_page_is_merging_in_python(
    browser: Any, pages: dict[str, Path], insides: dict[str, Inspection]
) -> None:
    """All units, of a text whose characters are split over pieces. Caught: keys averaged, a unit too many."""
    inside = insides["transformer"]
    sides = inside.readings()
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=maps&kind=cross&layer=1&head=2")
        for unit in ("pieces", "words", "characters"):
            report.page.click(f".tools [data-value={unit}]")
            report.settle()
            expected = inside.activations.weights("cross")[1][2]
            labels = [sides["written"].pieces, sides["source"].pieces]
            if unit != "pieces":
                units = [getattr(sides[side], unit) for side in ("written", "source")]
                groups = [group_of_tokens(u, n) for u, n in zip(units, expected.shape)]
                expected = merge(expected, *groups)
                labels = [u.labels for u in units]
            shown = [
                report.page.eval_on_selector_all(f".large text[data-{axis}]", "t => t.length")
                for axis in ("row", "column")
            ]
            assert shown == [len(labels[0]), len(labels[1])] == list(expected.shape)
            drawn = report.page.evaluate("() => [...document.querySelector('.large .heatmap').map.values]")
            np.testing.assert_allclose(np.reshape(drawn, expected.shape), expected, atol=1e-4)
            # Point at the strongest cell and read it.
            i, j = np.unravel_index(expected.argmax(), expected.shape)
            report.page.evaluate(
                "(share) => { const b = document.querySelector('.large canvas.cells').getBoundingClientRect();"
                " scrollTo(0, scrollY + b.top + share * b.height - innerHeight / 2); }",
                (i + 0.5) / expected.shape[0],
            )
            box = report.page.eval_on_selector(
                ".large canvas.cells",
                "c => { const b = c.getBoundingClientRect(); return [b.x, b.y, b.width, b.height] }",
            )
            x, y = box[0] + (j + 0.5) * box[2] / expected.shape[1], box[1] + (i + 0.5) * box[3] / expected.shape[0]
            report.page.mouse.move(x, y)
            read = report.text(".large .readout p:first-child")
            assert f"{expected.max():.3f}" in read, (unit, read)
            assert labels[0][i].replace(" ", "␣") in read and labels[1][j].replace(" ", "␣") in read
        assert "我们" in sides["source"].words.labels and "公" in sides["source"].characters.labels


def test_one_head_computes_the_models_weights(
    browser: Any, pages: dict[str, Path], insides: dict[str, Inspection]
) -> None:
    """For every head of every family the page computes the weights from q, k, scale, mask: they are the model's. Grouped
    heads, windows, rotary and ALiBi are among them. Caught: another head's keys, a mask that lets the future in."""
    worst = "() => Number(document.querySelector('[data-gap]').dataset.gap)"
    with opened(browser, WIDE) as report:
        for name in ("transformer", "post-norm", "pruned", "gpt", "gpt on pairs", "mlm"):
            report.page.goto("about:blank")
            report.open(pages[name].as_uri() + "#view=head")
            for kind, layers in insides[name].activations.attentions.items():
                for layer, one in enumerate(layers):
                    if not one.head_ids:
                        continue
                    place = {"kind": kind, "layer": layer, "head": layer % len(one.head_ids), "held": None}
                    report.page.evaluate("(place) => window.page.set(place)", place)
                    report.settle()
                    assert report.page.evaluate(worst) < 0.01, (name, kind, layer)
                    axis = "source" if name in ("transformer", "post-norm", "pruned") and kind == "encoder" else "read"
                    held = f"{{ query: ['{axis}', 1], key: null }}"
                    report.page.evaluate(f"() => window.page.dispatch({{ type: 'hold', held: {held} }})")
                    report.settle()
                    assert report.page.evaluate(worst) < 0.01, (name, kind, layer, "an early query")
                    # Each scale has its own legend, which ends at its largest number: here q's and the products'.
                    for row, name_ in ((1, 0), (3, 2)):
                        shown = report.page.locator(f".numbers >> nth=0 >> tr:nth-child({row}) td").all_inner_texts()
                        end = report.page.inner_text(f".legends >> nth=0 >> .legend >> nth={name_} >> span >> nth=2")
                        largest = max(abs(float(text.replace("−", "-"))) for text in shown)
                        assert float(end) == pytest.approx(largest, abs=0.06)
        assert report.complaints == []


def test_tokens_lens_and_beam_show_what_was_computed(
    browser: Any, pages: dict[str, Path], insides: dict[str, Inspection]
) -> None:
    inside = insides["transformer"]
    said = inside.activations.outputs
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=tokens")
        rows = report.page.locator("table.tokens tbody tr")
        assert rows.count() == len(said.tokens)
        for i in range(len(said.tokens)):
            cells = rows.nth(i).locator("td").all_inner_texts()
            p = math.exp(said.logprob[i])
            assert p < 0.0005 or f"{p:.3f}" in cells[2], cells
            assert cells[3].strip() == f"{-said.logprob[i]:.2f}"
            assert cells[4].strip() == str(said.rank[i]) and cells[5].strip() == f"{said.entropy[i]:.2f}"
        report.show("lens")
        lens = report.page.locator("table.lens tbody tr")
        assert lens.count() == len(inside.activations.lens)
        best = inside.names([int(i) for i in inside.activations.lens[-1].best[:, 0]])
        shown = lens.nth(0).locator("td").all_text_contents()
        assert len(shown) == len(best)
        report.show("beam")
        assert inside.search is not None
        steps = inside.search.trace.steps
        assert report.page.locator("g.node").count() == sum(len(step) for step in steps)
        kept = sum(candidate.fate == "kept" for step in steps for candidate in step)
        assert report.page.locator("g.node.kept").count() == kept
        score = steps[0][0].score
        assert f"{score:.2f}".replace("-", "−") in report.page.locator("g.node").first.text_content()
        report.page.locator("g.node").first.hover()
        assert f"{steps[0][0].total:.3f}".replace("-", "−") in report.text(".readout")


def test_terms_in_the_page_add_up_and_actions_are_told(browser: Any, pages: dict[str, Path]) -> None:
    """The sum of the terms as the page has them is the difference of the logits, to 1e-3 of what is shown; what a
    reader does is told to whoever listens; another report in the same page keeps what still fits."""
    with opened(browser, WIDE) as report:
        report.open(pages["transformer"].as_uri() + "#view=attribution")
        facts = report.page.eval_on_selector(".sum", "p => [Number(p.dataset.sum), Number(p.dataset.logits)]")
        assert facts[0] == pytest.approx(facts[1], abs=1e-3)
        report.page.evaluate("() => { window.told = []; window.page.listen((a) => window.told.push(a.type)); }")
        report.show("machine")
        report.page.click("g.box[data-part='decoder.mlp']")
        report.settle()
        assert "decoder.0.mlp" in report.text(".details") and "def forward" in report.text(".details")
        assert report.page.evaluate("() => window.told").count("set") == 2
        report.page.evaluate(
            "() => window.page.update({ ...window.page.data, title: 'another', beside: window.page.data })"
        )
        report.settle()
        assert report.page.locator(".panel").count() == 2 and report.state("part") == "decoder.mlp"
        report.show("maps")
        assert report.page.locator(".heatmap").count() == 3, "two maps and their difference"
        report.page.evaluate("() => window.page.destroy()")
        assert report.page.inner_text("#page") == "" and report.complaints == []
