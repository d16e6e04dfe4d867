"""The machine as the page draws it is the machine of the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glassformer.inspection.inspection import Inspection
from tests.browser.report import WIDE, opened

pytestmark = pytest.mark.slow

LABELS = "boxes => boxes.map(box => box.querySelector('text').textContent)"


@pytest.mark.parametrize("name", ["transformer", "gpt", "mlm", "classify"])
def test_the_drawing_is_made_from_the_config(
    browser: Any, pages: dict[str, Path], insides: dict[str, Inspection], name: str
) -> None:
    """Blocks, heads and widths; a shape on every arrow, also within the parts; positions stand in the stream only where they
    are added to it; the tokens of this sentence enter and leave. Caught: rotary drawn as added, an arrow without a shape."""
    inside = insides[name]
    config = inside.model.model.config
    with opened(browser, WIDE) as report:
        report.open(pages[name].as_uri() + "#view=machine")
        labels = report.page.eval_on_selector_all("svg.machine:not(.inner) g.box", LABELS)
        text = report.page.text_content("svg.machine")
        stacks = 2 if config.family == "transformer" else 1
        assert f"× {config.n_layer}" in text and f"F = {config.hidden}" in text
        assert sum(f"H = {config.n_head}" in label for label in labels) == (3 if stacks == 2 else 1)
        added = [label for label in labels if label.startswith("positions")]
        assert len(added) == (stacks if config.positions in ("sinusoidal", "learned") else 0)
        assert labels.count("+") == (5 if stacks == 2 else 2)
        first = inside.readings()["source" if stacks == 2 else "read"].pieces[1].strip() or "␣"
        assert first in report.page.text_content("g.box[data-part$='.tokens'] .second")
        last = "decoder" if hasattr(inside.model.model, "decoder") else "encoder"
        for part in ("attention", "mlp", "mlp_add"):
            report.page.click(f"g.box[data-part='{last}.{part}']")
            report.settle()
            for drawing in report.page.locator("svg.machine").all():
                assert drawing.locator("path.arrow").count() <= drawing.locator("text.shape").count()
        block = report.page.eval_on_selector_all(".details svg.machine g.box", LABELS)
        assert block.count("+") == (3 if stacks == 2 else 2) and set(block) <= set(labels)
        assert "Block.forward" in report.text(".details") and report.complaints == []
