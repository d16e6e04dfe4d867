"""The page of `glassformer open`, whose address holds a token: nothing is shown without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.serve.auth import Auth
from tests.serve.harness import Running, running

pytestmark = pytest.mark.slow
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def locked(paths: list[Path]) -> Iterator[Running]:
    with running(paths, auth=Auth({TOKEN: "owner"}), examples=True, watched=[paths[0].parent]) as found:
        yield found


def test_a_token_opens_the_page_and_leaves_the_address(browser: Any, locked: Running) -> None:
    """The rest of the address counts as ever; another tab of the same browser needs no token, and a stranger's sees nothing but
    the field for it. Broken variants: a token that is copied with the address; one that is kept for one tab alone."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{locked.address}/open?model=numbers&token={TOKEN}&text=eins+zwei#view=maps")
    page.wait_for_selector("html[data-ready]")
    assert TOKEN not in page.url and "text=eins+zwei" in page.url and "view=maps" in page.url
    assert page.input_value("#text") == "eins zwei" and not page.query_selector("#key")
    assert page.query_selector("#learning #curves"), "the runs are watched"
    page.goto("about:blank")
    other = context.new_page()
    other.goto(f"{locked.address}/open")
    other.wait_for_selector("#text")
    assert not other.query_selector("#key")
    context.close()
    stranger = browser.new_context()
    page = stranger.new_page()
    page.goto(f"{locked.address}/open")
    page.wait_for_selector("#key")
    assert "numbers" not in page.content()
    stranger.close()
