"""A real browser: the Chromium that the system has (Debian's package `chromium`), driven by playwright's Python package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.fail(
            "there is no Chromium on this machine, and the page is tested in a real browser; install it with "
            "`sudo apt-get install chromium fonts-noto-cjk` (or see `make browser`)",
            pytrace=False,
        )
    # Root has no sandbox to put a browser into.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        yield started
        started.close()
