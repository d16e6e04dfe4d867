"""A real browser: the Chromium that the system has (Debian's package `chromium`), driven by playwright's Python package; and
reports to open in it, made once for all tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.inspection import data as report_data
from glassformer.inspection import page as pages_of
from glassformer.inspection.inspection import Inspection, look_across, look_inside
from tests.inspection.families import FAMILIES, with_checkpoints
from tests.serve.harness import Running, make_runs, running
from tests.small_runs import small_run
from tests.talking import make_run

CHINESE = "我们去公园, café ok"

# A second is spent at every page's window on the list below an address bar that nobody sees: two features of its (as of 156).
# The flag takes the place of playwright's own, whose features come first.
OFF = (
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,LensOverlay,"
    "MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,"
    "NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch,WebUIOmniboxPopup,WebUIOmniboxAimPopup"
)
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
    arguments = [f"--disable-features={OFF}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="session")
def insides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inspection]:
    """Every family; the encoder-decoder reads Chinese in byte pieces, and is also seen across training."""
    folder = tmp_path_factory.mktemp("runs")
    bytewise = FAMILIES["transformer"] | {"tokenizer": "bpe", "decode": {"beam": 3, "max_new_tokens": 9}}
    path = make_run(folder / "zh", **bytewise)
    run = with_checkpoints(path, [100, 200, 300])
    model = glassformer.load(path)
    found = {"transformer": look_across(run, look_inside(model, CHINESE, "a dög 猫 sat"))}
    for name, text in {
        "gpt": "the cat\nran to Paris",
        "gpt on pairs": "the cat",
        "pruned": "the cat",
        "post-norm": "the cat ran",
        "mlm": "the [MASK] sat on",
        "classify": "Anna lives",
        "tag": "Anna lives in",
    }.items():
        found[name] = look_inside(
            glassformer.load(make_run(folder / name.replace(" ", "-"), **FAMILIES[name])), text, new=4
        )
    return found


@pytest.fixture(scope="session")
def pages(insides: dict[str, Inspection], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, inside in insides.items():
        found[name] = folder / f"{name.replace(' ', '-')}.html"
        found[name].write_text(pages_of.page_html(report_data.page_data(inside, name)), encoding="utf-8")
    return found


LEARNED = {"steps": 120, "validate_every": 120, "save_every": 120, "learning_rate": 2e-2}  # so that cuts are felt


@pytest.fixture(scope="session")
def learned_paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An encoder-decoder that has learned its numbers, and a GPT that says things at random."""
    folder = tmp_path_factory.mktemp("learned")
    return [small_run(folder / "pairs", "pairs", name="numbers", **LEARNED).path, *make_runs(folder, "writer")]


@pytest.fixture(scope="session")
def learned_server(learned_paths: list[Path]) -> Iterator[Running]:
    """Their owner's; no test changes anything of it."""
    with running(learned_paths, examples=True) as found:
        yield found


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs of the same data, `numbers` and `steeper`, one at a higher rate, with what they were on the way."""
    found = tmp_path_factory.mktemp("two")
    how = {"steps": 24, "validate_every": 8, "save_every": 8, "log_every": 2, "history": True, "keep_last": 9}
    small_run(found, "pairs", name="numbers", **how)
    small_run(found, "pairs", name="steeper", **how | {"learning_rate": 3e-2})
    return found


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs for a server: an encoder-decoder that has begun to learn numbers, and a GPT that says things at random."""
    folder = tmp_path_factory.mktemp("served")
    return [small_run(folder / "pairs", "pairs", name="numbers").path, *make_runs(folder, "writer")]


@pytest.fixture(scope="session")
def server(paths: list[Path]) -> Iterator[Running]:
    """Their owner's, as `glassformer open` has it. Cuts and forced tokens end with their requests, so all tests may share it."""
    with running(paths, examples=True) as found:
        yield found
