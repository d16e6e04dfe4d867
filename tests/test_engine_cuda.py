"""The engine that decodes by itself: without a CUDA device its step runs as it is, and says what the plain model says."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from glassformer.config import DecodeConfig
from glassformer.decode import engine_cuda, generate_batch, translate_batch
from tests.counts import count
from tests.laws.test_decoding_cache import some_texts
from tests.laws.zoo import cases, small

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam": {"beam": 3, "n_best": 3},
    "sampling": {"temperature": 1.0, "num_samples": 2, "top_p": 0.9, "top_k": 9},
}


def assert_same(found: Any, plain: Any) -> None:
    for ours, reference in zip(found, plain, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in reference]
        assert [h.ended for h in ours] == [h.ended for h in reference]
        assert [h.score for h in ours] == pytest.approx([h.score for h in reference], abs=1e-5)
        for mine, other in zip(ours, reference, strict=True):
            assert mine.token_logprobs == pytest.approx(other.token_logprobs, abs=1e-5)


def searched_cases() -> list[Any]:
    """Every kind of model with every search in `make soak`; in `make test` with one of them, in turn, and every other GPT
    (an encoder-decoder has all that a GPT has)."""
    found = []
    for i, case in enumerate([*cases("transformer"), *cases("gpt")[:: count(fast=2, soak=1)]]):
        for n in range(count(fast=1, soak=len(SEARCHES))):
            search = list(SEARCHES)[(i + n) % len(SEARCHES)]
            found.append(pytest.param(*case.values, search, id=f"{case.id}, {search}"))
    return found


@pytest.mark.parametrize(("family", "changes", "search"), searched_cases())
def test_graph_writes_what_plain_writes(family: str, changes: dict[str, Any], search: str) -> None:
    if changes == {"residual": False} and search == "beam":
        changes = {
            **changes,
            "positions": "rotary",
        }  # otherwise hypotheses that are each other's permutation tie exactly
    model = small(family, seed=1, **{"tie_output": False, **changes})
    texts = some_texts([4, 7, 1, 5, 3], seed=2)
    config = DecodeConfig(**SEARCHES[search], max_new_tokens=7, min_new_tokens=3, engine="plain", batch_size=4)
    decode = translate_batch if family == "transformer" else generate_batch
    assert_same(decode(model, texts, replace(config, engine="graph")), decode(model, texts, config))


@pytest.mark.parametrize("search", SEARCHES)
def test_sentences_that_go_on_take_the_places_of_those_that_are_over(search: str) -> None:
    """Ninety sentences in three batches, each with an end of its own: at nearly every look some leave and others move."""
    model = small("transformer", seed=1, tie_output=False)
    draw = random.Random(3)
    lengths = [draw.randrange(1, 9) for _ in range(90)]
    texts = some_texts(lengths, seed=4)
    limits = [(most, most) for most in (draw.randrange(1, 24) for _ in lengths)]
    texts[17], texts[40] = [], []
    config = DecodeConfig(**SEARCHES[search], engine="plain", batch_size=37)
    found, plain = (translate_batch(model, texts, replace(config, engine=e), limits=limits) for e in ("graph", "plain"))
    assert_same(found, plain)
    assert [len(found[i][0].ids) for i in (0, 1, 2, 17)] == [limits[0][1], limits[1][1], limits[2][1], 0]


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_longer_prompt_after_a_shorter_one(positions: str) -> None:
    """Broken variant: the room of the first call, of the same size, whose table of positions ends too soon."""
    model = small("gpt", seed=1, positions=positions, block_size=16)
    config = DecodeConfig(beam=1, max_new_tokens=64, min_new_tokens=64)
    for length in (50, 64):
        texts = some_texts([length], seed=5)
        found, plain = (generate_batch(model, texts, replace(config, engine=e)) for e in ("graph", "plain"))
        assert_same(found, plain)


def test_a_source_as_long_as_learned_positions_go() -> None:
    """Broken variant: a width rounded up beyond the last position."""
    model = small("transformer", seed=1, positions="learned", block_size=20, tie_output=False)
    texts = some_texts([20, 7], seed=6)
    config = DecodeConfig(beam=2, max_new_tokens=6)
    found, plain = (translate_batch(model, texts, replace(config, engine=e)) for e in ("graph", "plain"))
    assert_same(found, plain)


def test_a_batch_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    own = engine_cuda.Batch.__init__
    monkeypatch.setattr(
        engine_cuda.Batch, "__init__", lambda self, *given: (made.append(len(given[0])), own(self, *given))[1]
    )
    model = small("transformer", seed=1, tie_output=False)
    texts = some_texts([4] * 23, seed=7)
    translate_batch(model, texts, DecodeConfig(beam=2, max_new_tokens=3, engine="graph", batch_size=5))
    assert made == [5, 5, 5, 5, 3]


@pytest.mark.slow
@pytest.mark.parametrize("stop_rule", ["exact", "first-k"])
@pytest.mark.parametrize("length_rule", ["gnmt", "power", "power-no-eos"])
def test_every_length_and_stop_rule(length_rule: str, stop_rule: str) -> None:
    """With words so few that sentences end all the time, in batches that shrink, and limits that cut. Caught: a pool that
    forgets a better ending; a search that stops a step too early or late; sentences that leave with a neighbour's words."""
    model = small("transformer", seed=4, tie_output=False, vocab_size=9)
    texts = [[5 + (i * j) % 4 for j in range(1 + i % 7)] for i in range(11)]
    in_turn = {"gnmt": 0.6, "power": 2.0, "power-no-eos": -1.0}[length_rule]
    for alpha in [in_turn, 0.0, 0.6, 2.0, -1.0][: count(fast=1, soak=5)]:
        config = DecodeConfig(
            beam=4,
            n_best=3,
            alpha=alpha,
            length_rule=length_rule,  # type: ignore[arg-type]
            stop_rule=stop_rule,  # type: ignore[arg-type]
            max_extra=count(fast=8, soak=50),
            engine="plain",
            batch_size=8,
        )
        plain = translate_batch(model, texts, config)
        assert_same(translate_batch(model, texts, replace(config, engine="graph")), plain)
        assert any(h.ended == "eos" for hs in plain for h in hs)
        limits = [(i % 3, 2 + i % 5) for i in range(len(texts))]
        plain = translate_batch(model, texts, config, limits=limits)
        assert_same(translate_batch(model, texts, replace(config, engine="graph"), limits=limits), plain)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram": 2},
        {"groups": 3, "diversity": 0.5, "n_best": 3},
        {"strict": True},
    ],
)
def test_what_a_graph_cannot_do_is_left_to_the_plain_model(options: dict[str, Any]) -> None:
    model = small("transformer", seed=1, tie_output=False)
    texts = some_texts([4, 7, 1], seed=2)
    config = DecodeConfig(beam=3, max_new_tokens=9, min_new_tokens=4, engine="plain", **options)
    assert translate_batch(model, texts, replace(config, engine="graph")) == translate_batch(model, texts, config)
