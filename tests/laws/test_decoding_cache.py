"""A cache and an engine change how long an answer takes, never the answer: each writes what is written without a cache."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import pytest

from glassformer.config import DecodeConfig
from glassformer.decode import Hypothesis, generate_batch, translate_batch
from glassformer.decode.stepper import context_start
from tests.counts import SOAK
from tests.laws.zoo import CAUSAL, MIXTURES, POSITIONS, SMALL, VOCABULARY, cases, small, without_ties
from tests.uncached import uncached_batch

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam": {"beam": 3, "n_best": 3},
    "sampling": {"temperature": 1.0, "num_samples": 2, "top_p": 0.9},
}
NEW = 9


def some_texts(lengths: list[int], seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(5, VOCABULARY) for _ in range(length)] for length in lengths]


def same(cached: list[list[Hypothesis]], uncached: list[list[Hypothesis]]) -> bool:
    for ours, reference in zip(cached, uncached, strict=True):
        if [h.ids for h in ours] != [h.ids for h in reference]:
            return False
        assert [h.score for h in ours] == pytest.approx([h.score for h in reference], rel=1e-9, abs=1e-6)
    return True


@pytest.mark.parametrize(("family", "changes", "search"), cases(*CAUSAL, also=tuple(SEARCHES)))
def test_cached_equals_uncached(family: str, changes: dict[str, Any], search: str) -> None:
    """By the plain model and by the copy with decoding blocks; in double precision, so that no tie is decided by rounding.

    Caught: rows that are not moved with their hypotheses; a prompt's padding that is seen; a position counted from the padded
    width; a window counted off by one; sentences that leave and take a neighbour's row; a beam that sees another's past; heads
    grouped the wrong way; the bias or norm of another layer; a scale left out."""
    model = small(family, seed=1, **(changes if search == "greedy" else without_ties(changes)))
    texts = some_texts([4, 7, 1, 5], seed=2)
    config = DecodeConfig(**SEARCHES[search], max_new_tokens=NEW, min_new_tokens=4, no_repeat_ngram=2)
    decode = translate_batch if family == "transformer" else generate_batch
    expected = uncached_batch(model, texts, config)
    assert len({token for hs in expected for h in hs for token in h.ids}) > 1  # or the test would see little
    for engine in ("plain", "fast"):
        assert same(decode(model, texts, replace(config, engine=engine)), expected)


PAST = [{"positions": scheme} for scheme in POSITIONS]
PAST += [MIXTURES["rotary, window, grouped"], MIXTURES["learned, window, grouped"]]


@pytest.mark.parametrize(("changes", "search"), product(PAST, SEARCHES) if SOAK else zip(PAST, cycle(SEARCHES)))
def test_a_gpt_goes_on_past_its_block(changes: dict[str, Any], search: str) -> None:
    """Twice past it, from prompts shorter and longer than the block. Caught: all rows moved when one of them is full; the
    half kept that is not the last; positions that do not begin again at 0."""
    model = small("gpt", seed=3, tie_output=False, **{**changes, "block_size": 8})
    texts = some_texts([3, 11, 8, 1], seed=4)
    config = DecodeConfig(**SEARCHES[search], max_new_tokens=16, min_new_tokens=16, no_repeat_ngram=2)
    found = generate_batch(model, texts, config)
    assert same(found, uncached_batch(model, texts, config))
    assert len({token for hs in found for h in hs for token in h.ids}) > 2  # or the test would see little


def test_a_full_context_keeps_its_last_half() -> None:
    config = small("gpt", positions="learned", block_size=8).config
    starts = [context_start(length, config) for length in range(1, 22)]
    start = 0
    for length, found in zip(range(1, 22), starts):
        if length - start > 8:
            start = length - 4
        assert found == start
    assert context_start(500, small("gpt", positions="rotary", block_size=8).config) == 0


def test_neighbours_that_leave_do_not_matter() -> None:
    """Sentences of very different limits: each leaves at its own step, the others must not notice."""
    model = small("transformer", seed=1, tie_output=False, positions="rotary")
    texts = some_texts([1, 2, 3, 5, 8, 13], seed=5)
    config = DecodeConfig(beam=3, max_ratio=1.0, max_extra=1, min_ratio=1.0)
    together = translate_batch(model, texts, config)
    assert same(together, [translate_batch(model, [text], config)[0] for text in texts])
    assert [len(hs[0].ids) for hs in together] == pytest.approx([1, 2, 3, 5, 8, 13], abs=1)


@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_the_source_is_read_once_a_sentence_whatever_the_beam(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small("transformer", **SMALL | {"n_layer": 1})
    seen: list[int] = []
    block_inputs = type(model).block_inputs

    def seen_inputs(self: Any, rows: Any, *, causal: bool, **how: Any) -> Any:
        if not causal:
            seen.append(rows.shape[0])
        return block_inputs(self, rows, causal=causal, **how)

    monkeypatch.setattr(type(model), "block_inputs", seen_inputs)
    translate_batch(model, some_texts([3, 4, 5]), DecodeConfig(beam=5, max_new_tokens=6, engine=engine))
    assert seen == [3]
