"""A text of 512 tokens in the live page: the maps of a layer come as bytes when a view draws them, and no others."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassformer
from glassformer.inspection.inspection import look_inside
from tests.browser.test_live_page import LiveTab
from tests.inspection.families import FAMILIES
from tests.serve.harness import running
from tests.talking import make_run

pytestmark = pytest.mark.slow

TEXT = ("the cat sat on the mat. a dog ran to the river; " * 12)[:511]
DRAWN = """first => live.data.arrays !== first && live.page.state.layer === 1
  && document.querySelector('#view').ariaBusy === 'false' && document.querySelector('.large .heatmap')"""


def test_the_maps_of_the_layer_in_view(browser: Any, tmp_path: Path) -> None:
    """One array for one layer; a report whose arrays the server has forgotten is asked for again; each weight within its step of
    the model's; the slow part when it is asked for. Caught: all maps with every answer, bytes read as another array's."""
    how = copy.deepcopy(FAMILIES["transformer"])
    how["model"] |= {"block_size": 520, "n_embd": 32}
    path = make_run(tmp_path / "long", tokenizer="char", decode={"max_new_tokens": 9}, **how)
    with running([path], examples=True) as server:
        tab = LiveTab(browser, server, f"/open?text={TEXT}#view=maps&kind=encoder&layer=0&head=1")
        fetched = lambda: [url for url in tab.requests if "/open/arrays/" in url]  # noqa: E731
        assert len(fetched()) == 1 and tab.page.evaluate("live.data.sides.source.pieces.length") == 512
        server.served.pages.held.clear()
        tab.page.click(".thumb[data-kind=encoder][data-layer='1'][data-head='2']")
        tab.page.wait_for_function(DRAWN, arg=fetched()[0].split("/")[-2])
        assert len(fetched()) == 3 and "404" in tab.complaints.pop() and not tab.complaints
        shown = tab.page.evaluate("() => [...document.querySelector('.large .heatmap').map.values]")
        wanted = look_inside(glassformer.load(path, device="cpu"), TEXT, explained=False).activations.weights(
            "encoder"
        )[1][2]
        steps = np.reshape(shown, (512, 512)) - wanted
        assert (np.abs(steps) <= 0.51 / 255 * wanted.max(-1, keepdims=True)).all()
        assert tab.page.locator("#explain").is_visible() and not tab.page.evaluate("live.data.saliency")
        status, _, found = server.ask("POST", "/look", {"model": path.name, "text": TEXT + " ab", "data": True})
        assert status == 400 and "512 tokens, and these are 514" in found["error"]
        tab.context.close()
