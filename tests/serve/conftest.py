"""Runs that no test changes, as models and behind a server that answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glassformer
from tests.serve.harness import Running, make_runs, running


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A translator and a writer."""
    return make_runs(tmp_path_factory.mktemp("runs"), "translator", "writer")


@pytest.fixture(scope="session")
def translator(paths: list[Path]) -> Any:
    return glassformer.load(paths[0], device="cpu")


@pytest.fixture(scope="session")
def writer(paths: list[Path]) -> Any:
    return glassformer.load(paths[1], device="cpu")


@pytest.fixture(scope="module")
def server(paths: list[Path]) -> Iterator[Running]:
    with running(paths) as found:
        yield found
