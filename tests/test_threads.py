"""A model in training mode, asked from several threads at once: every answer is the one a model at rest gives, and the mode is
as it was. The broken variant reads the mode, switches it off and back: a thread that comes between finds dropout on, and the
last one to leave may leave it off."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from glassformer.api import load
from tests.talking import make_run


@pytest.mark.parametrize("head", ["classify", "tag"])
def test_answers_from_four_threads(head: str, tmp_path: Path) -> None:
    sizes = {"family": "bert", "head": head, "dropout": 0.5}
    run = make_run(tmp_path / "run", labels=["a", "b", "c"], model=sizes, data={"task": head})
    model = load(run)
    texts = ["the cat sat", "a dog ran to the river"]

    def ask(_: int = 0) -> str:
        return repr(model.classify(texts) if head == "classify" else model.tag(texts))

    expected = ask()
    net = model.model
    net.train()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(100)))
    assert set(found) == {expected}
    assert net.training and all(module.training for module in net.modules())
