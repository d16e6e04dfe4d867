"""A token read with the cache gets the logits it would get if everything were read again from the start.

The test is a script of steps and reorders, run by the model with its cache, while a plain Python list keeps what each row
has read. After every step all positions are computed afresh, without a cache, from that list."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.models import GPT, Transformer
from glassformer.nn import KVCache, Rows
from tests.counts import count
from tests.laws.zoo import CAUSAL, POSITIONS, VOCABULARY, Sentence, cases, gap, small

TOLERANCE = 1e-10
CAPACITY = 40


class Decoding:
    """A model reading through its cache, beside what it has read."""

    def __init__(
        self, model: Transformer | GPT, sentences: int, *, beams: int = 1, seed: int = 0, late: int = 0
    ) -> None:
        self.model, self.beams, self.draw = model, beams, random.Random(seed)
        self.largest_gap = 0.0
        self.texts: list[Sentence] = [[] for _ in range(sentences * beams)]
        self.sources = [self.words(self.draw.randrange(1, 7)) for _ in range(sentences)]
        if isinstance(model, Transformer):
            self.cache = model.make_cache(sentences + late, CAPACITY * beams, beams=beams, source=6)
            model.prefill(Rows.from_lists(self.sources), self.cache)
        else:
            self.cache = model.start(sentences + late, CAPACITY, beams=beams)

    def words(self, n: int) -> Sentence:
        return [self.draw.randrange(VOCABULARY) for _ in range(n)]

    def afresh(self) -> Tensor:
        """Every row's whole text, read at once (that padding changes nothing is a law of its own)."""
        target = Rows.from_lists(self.texts)
        if isinstance(self.model, Transformer):
            return self.model(Rows.from_lists([self.sources[r // self.beams] for r in range(len(self.texts))]), target)
        return self.model(target)

    def step(self, count: int) -> None:
        """Every row reads so many new words."""
        new = [self.words(count) for _ in self.texts]
        logits = self.model.step(torch.tensor(new), self.cache)
        self.texts = [text + words for text, words in zip(self.texts, new, strict=True)]
        afresh = self.afresh()
        ends = [(row, len(text)) for row, text in enumerate(self.texts)]
        read = [afresh[row, end - count : end] for row, end in ends]
        self.largest_gap = max(self.largest_gap, gap(read, list(logits)))

    def begin_late(self, sentences: int) -> None:
        """So many sentences more, which join the others at the end."""
        n = len(self.texts) // self.beams
        sources = [self.words(self.draw.randrange(1, 7)) for _ in range(sentences)]
        prompts = [self.words(self.draw.randrange(1, 5)) for _ in range(sentences)]
        slots = range(n, n + sentences)
        if isinstance(self.model, Transformer):
            self.model.prefill(Rows.from_lists(sources), self.cache, n)
            prompts = [[] for _ in slots]
        else:
            self.cache.begin(n, n + sentences)
            self.model.prefill(Rows.from_lists(prompts).tokens, [len(prompt) for prompt in prompts], self.cache, slots)
        self.sources += sources
        self.texts += [list(prompt) for prompt in prompts for _ in range(self.beams)]

    def reorder(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was, within its sentence; sentences of which no row is named leave."""
        for slot, row in enumerate(rows[:: self.beams]):
            if row // self.beams != slot:
                self.cache.move([row // self.beams], [slot])
        self.cache.reorder(torch.tensor([row % self.beams for row in rows]).view(-1, self.beams))
        self.texts = [self.texts[r] for r in rows]
        self.sources = [self.sources[r // self.beams] for r in rows[:: self.beams]]


def cache_gap(model: Transformer | GPT) -> float:
    """A fixed script that meets every verb: a prompt, single words, a chunk, beams that change places, sentences that leave, and
    that come later."""
    with torch.no_grad():
        plain = Decoding(model, 2)
        for n in (3, 1, 1, 2, 1):
            plain.step(n)
        ragged = Decoding(model, 1, seed=1, late=2)
        ragged.step(2)
        ragged.begin_late(2)
        ragged.step(1)
        ragged.step(3)
        ragged.reorder([2, 1])
        ragged.step(1)
        ragged.step(2)
        beams = Decoding(model, 2, beams=2, seed=2, late=1)
        beams.step(1)
        beams.step(2)
        beams.reorder([1, 1, 2, 3])
        beams.begin_late(1)
        beams.step(1)
        beams.reorder([1, 0, 4, 4])
        beams.step(1)
        beams.step(2)
        return max(plain.largest_gap, ragged.largest_gap, beams.largest_gap)


@pytest.mark.parametrize(("family", "changes"), cases(*CAUSAL))
def test_cached_is_computed_afresh(family: str, changes: dict[str, Any]) -> None:
    """Caught: see the broken caches below."""
    assert cache_gap(small(family, **changes)) <= TOLERANCE


@settings(max_examples=count(fast=20, soak=500), deadline=None)
@given(
    family=st.sampled_from(CAUSAL),
    positions=st.sampled_from(POSITIONS),
    n_kv_head=st.sampled_from([1, 2, 6]),
    window=st.sampled_from([None, 1, 2, 4]),
    pre_norm=st.booleans(),
    sentences=st.integers(1, 3),
    beams=st.integers(1, 3),
    script=st.data(),
)
def test_any_script_of_steps_and_reorders(
    family: str, sentences: int, beams: int, script: st.DataObject, **changes: Any
) -> None:
    """Positions that have no end also go past block_size here."""
    block_size = CAPACITY if changes["positions"] == "learned" else 5
    with torch.no_grad():
        decoding = Decoding(small(family, block_size=block_size, **changes), sentences, beams=beams, late=2)
        for _ in range(script.draw(st.integers(1, 5))):
            rows = len(decoding.texts)
            action = script.draw(st.sampled_from(["step", "late", "beams", "leave"]))
            if action == "step" or rows == 1:
                decoding.step(script.draw(st.integers(1, 4)))
            elif action == "late" and rows // beams < sentences + 2:
                decoding.begin_late(1)
            elif action in ("beams", "late"):
                own = [r // beams * beams for r in range(rows)]
                decoding.reorder([first + script.draw(st.integers(0, beams - 1)) for first in own])
            else:
                n = rows // beams
                stay = sorted(script.draw(st.sets(st.integers(0, n - 1), min_size=1)))
                decoding.reorder([s * beams + b for s in stay for b in range(beams)])
    assert decoding.largest_gap <= TOLERANCE


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("positions", [p for p in POSITIONS if p != "none"])
def test_positions_taken_from_the_column_are_caught(
    family: str, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of different lengths that all think they are at the same place."""

    def same_for_all(cache: KVCache) -> Tensor:
        step = cache.under_way
        return (cache.filled(step.n) // cache.beams + torch.arange(step.new)).expand(step.n * cache.beams, -1)

    monkeypatch.setattr(KVCache, "query_positions", same_for_all)
    assert cache_gap(small(family, positions=positions)) > 1e-3


@pytest.mark.parametrize("family", CAUSAL)
def test_a_cache_that_is_not_reordered_is_caught(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVCache, "reorder", lambda cache, parents: None)
    assert cache_gap(small(family)) > 1e-3


@pytest.mark.parametrize("family", CAUSAL)
def test_a_step_that_forgets_the_window_is_caught(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = KVCache.set_biases
    monkeypatch.setattr(KVCache, "set_biases", lambda cache, window=None, bias=None: right(cache, None, bias))
    assert cache_gap(small(family, window=2)) > 1e-3


def test_sources_that_do_not_leave_with_their_sentences_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = KVCache.move

    def without_source(cache: KVCache, from_slots: list[int], to_slots: list[int]) -> None:
        source, cache.source = cache.source, []
        right(cache, from_slots, to_slots)
        cache.source = source

    monkeypatch.setattr(KVCache, "move", without_source)
    assert cache_gap(small("transformer")) > 1e-3


def test_the_source_is_held_once_a_sentence() -> None:
    """Not once a beam: its keys and values are the largest thing a translating decoder holds."""
    model = small("transformer", n_kv_head=2)
    cache = model.start(Rows.from_lists([[1, 2, 3], [4]]), 10, beams=5)
    assert cache.capacity == 50
    assert all(k.size(0) == v.size(0) == 2 for k, v in cache.source)


@pytest.mark.parametrize("family", CAUSAL)
def test_a_full_cache_says_so(family: str) -> None:
    model = small(family)
    cache = model.start(Rows.whole(torch.tensor([[1, 2]])), 3) if family == "transformer" else model.start(1, 3)
    model.step(torch.tensor([[1, 2]]), cache)
    with pytest.raises(ValueError, match="the cache holds 3 tokens a row; 4 were asked of it"):
        model.step(torch.tensor([[1, 2]]), cache)
