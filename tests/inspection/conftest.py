"""A run of each family, loaded once, and one sentence looked at in each."""

from __future__ import annotations

from pathlib import Path

import pytest

import glassformer
from glassformer.inspection.inspection import Inspection, look_inside
from glassformer.tasks import TextModel
from tests.inspection.families import FAMILIES, TEXT
from tests.talking import make_run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: make_run(folder / name.replace(" ", "-"), **how) for name, how in FAMILIES.items()}


@pytest.fixture(scope="session")
def models(runs: dict[str, Path]) -> dict[str, TextModel]:
    return {name: glassformer.load(path) for name, path in runs.items()}


@pytest.fixture(scope="session")
def insides(models: dict[str, TextModel]) -> dict[str, Inspection]:
    """One sentence in each; those that answer are given an answer, since untrained ones may have none."""
    answers = {"transformer": "a dog ran", "post-norm": "a dog ran", "pruned": "a dog ran", "gpt on pairs": "a dog ran"}
    return {name: look_inside(model, TEXT, answers.get(name), new=5) for name, model in models.items()}
