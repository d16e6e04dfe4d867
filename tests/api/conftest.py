"""A run of each kind, made on the spot and loaded once."""

from __future__ import annotations

from typing import Any

import pytest

import glassformer
from tests.talking import make_run

LABELS = ["NAME", "OTHER", "PLACE"]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    made = {
        "transformer": make_run(folder / "transformer"),
        "gpt": make_run(folder / "gpt", model={"family": "gpt"}, data={"task": "text"}),
        "pairs": make_run(folder / "pairs", model={"family": "gpt"}, data={"prompt_answer": True}),
        "mlm": make_run(folder / "mlm", tokenizer="bpe", model={"family": "bert"}, data={"task": "text"}),
        "classify": make_run(
            folder / "classify", labels=LABELS, model={"family": "bert", "head": "classify"}, data={"task": "classify"}
        ),
        "tag": make_run(folder / "tag", labels=LABELS, model={"family": "bert", "head": "tag"}, data={"task": "tag"}),
    }
    return {name: glassformer.load(path) for name, path in made.items()}
