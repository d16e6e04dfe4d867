"""A model in training mode, asked from several threads at once: every answer is the one a model at rest gives, and the mode is
as it was. The broken variant reads the mode, switches it off and back: a thread that comes between finds dropout on, and the
last one to leave may leave it off."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from glassformer.api import load
from glassformer.decode.generate import NEVER, SELDOM, full_collections_wait
from glassformer.errors import UserError
from glassformer.tasks.translate import encoded, translate_each
from tests.talking import make_run

pytestmark = pytest.mark.slow


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


def test_full_collections_wait_while_many_are_answered(tmp_path: Path) -> None:
    """Caught: a setting of the whole process that is left behind, by the end, by an error or by another thread, or that an
    iterator has changed, which may be left open; and collections that run after all, as in the public call with a list."""
    before = gc.get_threshold()
    model = load(make_run(tmp_path / "run"))
    seen = []

    def texts() -> Iterator[str]:
        for _ in range(9):
            seen.append(gc.get_threshold())
            yield "the cat sat"

    found = translate_each(model, texts())
    waiting = (SELDOM, before[1], NEVER)
    assert next(found) and set(seen) == {before}
    model.model.decoder.layers[0].register_forward_pre_hook(lambda *_: seen.append(gc.get_threshold()))
    seen.clear()
    assert model.translate(["the cat sat", "a dog"]) and set(seen) == {waiting}
    assert gc.get_threshold() == before
    leave = threading.Event()

    def stay() -> None:
        with full_collections_wait():
            leave.wait(10)

    with ThreadPoolExecutor(1) as pool:
        with full_collections_wait():
            other = pool.submit(stay)
            assert gc.get_threshold() == waiting
        leave.set()
        other.result()
    assert gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError), full_collections_wait():
        raise ZeroDivisionError
    assert gc.get_threshold() == before


def test_texts_are_encoded_ahead_and_come_in_order(tmp_path: Path) -> None:
    """A list is encoded by another thread while it is answered, anything else as it is read. Caught: a text lost where one part
    ends and the next begins, an answer in another's place, an error of the other thread that nobody hears of."""
    model = load(make_run(tmp_path / "run"))
    texts = [f"the cat sat {'and ran ' * (n % 3)}{n}" for n in range(130)]
    source = model.tokenizers.source
    assert list(encoded(source, texts)) == list(encoded(source, iter(texts)))
    assert [ids for _, ids in encoded(source, texts)] == source.encode_batch(texts)
    with pytest.raises(UserError, match="lone surrogate"):
        list(encoded(source, [*texts, "\ud800"]))
