"""Decoders alone: what `generate`, `stream` and the answers of a GPT on pairs promise, against models read by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

import glassformer
from glassformer import tasks
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, EOS
from tests.api.by_hand import continued_by_hand
from tests.talking import SENTENCES

pytestmark = pytest.mark.slow


def test_a_gpt_goes_on_after_the_prompt_and_begins_after_the_end_of_a_document(runs: dict[str, Any]) -> None:
    """Caught: a BOS that training on plain text has never shown."""
    model = runs["gpt"]
    prompt = model.tokenizers.source.encode("the cat")
    assert model.generate("the cat", temperature=0, max_new_tokens=9) == continued_by_hand(model, prompt, 9)
    assert model.generate(temperature=0, max_new_tokens=9) == continued_by_hand(model, [EOS], 9)


def test_a_gpt_draws_unless_it_is_told_to_search(runs: dict[str, Any]) -> None:
    model = runs["gpt"]
    assert model.settings().temperature > 0
    assert model.settings(top_k=3).temperature > 0
    assert model.settings(temperature=0).beams == 1
    assert model.settings(beam=3).temperature == 0 == model.settings(n_best=2).temperature
    three = model.generate("a", num_samples=3, max_new_tokens=12, seed=4).texts
    assert len(set(three)) == 3
    assert model.generate("a", num_samples=3, max_new_tokens=12, seed=4).texts == three
    assert model.generate("a", num_samples=3, max_new_tokens=12, seed=5).texts != three


def test_what_is_streamed_is_what_is_generated(runs: dict[str, Any]) -> None:
    model = runs["gpt"]
    for options in ({"temperature": 0}, {"seed": 3}, {"seed": 8, "stops": ["e"]}, {"prefix": "mat"}):
        pieces = list(model.stream("the ", max_new_tokens=20, **options))
        assert "".join(pieces) == model.generate("the ", max_new_tokens=20, **options)
        assert len(pieces) > 1 or "stops" in options


def test_a_gpt_on_pairs_answers(runs: dict[str, Any]) -> None:
    """The prompt is closed by EOS, as in training; a blank text has no answer."""
    model = runs["pairs"]
    texts = ["the cat", "", "Anna"]
    expected = [
        continued_by_hand(model, [BOS, *model.tokenizers.source.encode(text), EOS], 9) if text else "" for text in texts
    ]
    assert model.translate(texts, beam=1, max_new_tokens=9) == expected
    assert [a.text for a in tasks.generate(model, ["Anna"], temperature=0, beam=1, max_new_tokens=9)[0]] == expected[2:]
    assert len(model.translate(" ".join(SENTENCES), max_new_tokens=3).best.parts) > 3


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt", "transformer"])
def test_any_number_of_texts_is_read_as_it_is_needed(kind: str, runs: dict[str, Any]) -> None:
    """In order, and the same as a list. Caught: all prompts held before the first answer, answers to a neighbour."""
    model, taken = runs[kind], []
    each, whole = (tasks.generate_each, tasks.generate) if kind == "gpt" else (tasks.translate_each, tasks.translate)
    texts = ["the cat", "a dog", "Anna", "the"] * 100
    options: dict[str, Any] = {"beam": 1, "max_new_tokens": 3, "batch_size": 2}

    def given() -> Iterator[str]:
        for text in texts:
            taken.append(text)
            yield text

    found = each(model, given(), **options)
    first = next(found)
    assert len(taken) < 100
    answers = [first[0].text, *(own[0].text for own in islice(found, 11))]
    assert answers == [own[0].text for own in whole(model, texts[:12], **options)]


def test_a_gpts_alignment_is_its_attention_to_the_prompt(runs: dict[str, Any]) -> None:
    """Against the weights recorded by hand, one place before each token. Caught: rows of the token just read."""
    model = runs["pairs"]
    found, empty = model.translate(["Anna", ""], beam=2, n_best=2, align=True, max_new_tokens=6)
    assert empty == "" and not empty.alignment
    for answer in found.answers:
        (part,) = answer.parts
        prompt = [BOS, *model.tokenizers.source.encode("Anna"), EOS]
        _, cache = glassformer.run_with_cache(model.model, Rows.from_lists([[*prompt, *answer.ids]]), names="*.weights")
        weights = cache["decoder.0.attention.weights"][0].mean(0)
        assert len(part.hypothesis.alignment) == len(answer.ids) and len(part.source_tokens) == len(prompt)
        for place, row in enumerate(part.hypothesis.alignment):
            own = weights[len(prompt) - 1 + place, : len(prompt)].clone()
            own[0] = 0
            assert row == pytest.approx((own / own.sum()).tolist(), abs=1e-5)
