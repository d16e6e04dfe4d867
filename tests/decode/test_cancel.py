"""Requests that are given up cost nothing from the next step on, and nobody notices. And draws by a seed of one's own."""

from __future__ import annotations

import random
from typing import Any

import pytest

from glassformer.accel.decoding.block import decoding_copy
from glassformer.accel.decoding.operations import TorchOps
from glassformer.config import DecodeConfig
from glassformer.decode import Driver, Request, answer, captured
from tests.laws.test_decoding_cache import same, some_texts
from tests.laws.zoo import small

SEARCHES: dict[str, dict[str, Any]] = {
    "beam": {"beam": 3, "n_best": 2},
    "greedy": {"beam": 1},
    "drawn": {"temperature": 0.9, "num_samples": 3},
}


def run_and_give_up(driver: Driver, requests: list[Request], given_up: dict[int, set[int]]) -> dict[int, Any]:
    """Every request added at once; before step s the requests of given_up[s] are cancelled."""
    found: dict[int, Any] = {}
    for number, request in enumerate(requests):
        found.update(driver.add(number, request))
    step = 0
    while driver.busy:
        driver.cancel(given_up.get(step, set()))
        found.update(driver.step())
        step += 1
        assert step < 500
    return found


@pytest.mark.parametrize("kind", ["plain", "captured"])
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_who_gives_up_is_gone_and_nobody_else_notices(
    family: str, search: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caught: the slot of another freed in its place; an answer that comes all the same; a batch that never ends because its
    last one was given up."""
    model = small(family, seed=2, tie_output=False, positions="rotary", block_size=24)
    kept = decoding_copy(model, TorchOps())
    monkeypatch.setattr(captured, "decoding_model", lambda *_: kept)
    draw = random.Random(7)
    texts = some_texts([draw.randrange(1, 14) for _ in range(12)], seed=3)
    requests = [Request(text, limits=(0, draw.randrange(3, 12))) for text in texts]
    config = DecodeConfig(**SEARCHES[search], batch_size=5)
    make = captured.CapturedDriver if kind == "captured" else Driver
    alone = [next(iter(answer(model, [request], config)))[1] for request in requests]
    given_up = {0: {4}, 1: {0, 1}, 2: {9, 2}, 5: {7}, 6: {11, 10}}
    found = run_and_give_up(make(model, config), requests, given_up)
    gone = set().union(*given_up.values())
    assert set(range(12)) - gone <= set(found)
    assert not {0, 1, 2, 4} & set(found)  # these were decoded nowhere to their end when they were given up
    numbers = sorted(found)
    assert same([found[n] for n in numbers], [alone[n] for n in numbers])
    everybody = run_and_give_up(make(model, config), requests, {1: set(range(12))})
    assert set(everybody) <= {n for n, request in enumerate(requests) if request.limits and request.limits[1] < 3}


def test_rows_are_free_at_once() -> None:
    model = small("transformer", seed=2, tie_output=False)
    driver = Driver(model, DecodeConfig(beam=2, batch_size=8, max_ratio=0.0, max_extra=20, min_new_tokens=20))
    for number, text in enumerate(some_texts([5] * 8, seed=1)):
        driver.add(number, Request(text))
    driver.step()
    assert (driver.n, driver.free_capacity) == (8, 0)
    driver.cancel({1, 2, 5})
    assert (driver.n, driver.free_capacity) == (5, 3)


def test_a_seed_of_ones_own() -> None:
    """Side by side, each request draws as it would if its seed were that of all. Caught: the seed of the first for everybody."""
    model = small("gpt", seed=2, tie_output=False, positions="rotary")
    texts = some_texts([3, 5, 4, 6], seed=1)
    config = DecodeConfig(temperature=1.0, num_samples=2, max_new_tokens=8, seed=1)
    seeds = [None, 7, 7, 2**40]
    together = dict(answer(model, [Request(t, seed=s) for t, s in zip(texts, seeds, strict=True)], config))
    for number, (text, seed) in enumerate(zip(texts, seeds, strict=True)):
        own = DecodeConfig(temperature=1.0, num_samples=2, max_new_tokens=8, seed=seed or 1)
        assert same([together[number]], [next(iter(answer(model, [Request(text)], own)))[1]])
    other = next(iter(answer(model, [Request(texts[1], seed=8)], config)))[1]
    assert [h.ids for h in other] != [h.ids for h in together[1]]
