"""Translations: what `translate` and `stream` promise, against models read by hand."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from glassformer import tasks
from glassformer.config import DecodeConfig
from glassformer.decode import Hypothesis
from glassformer.errors import UserError
from glassformer.tasks.settings import occurs
from glassformer.tasks.translate import combinations
from tests.api.by_hand import greedy_by_hand
from tests.talking import SENTENCES

pytestmark = pytest.mark.slow


def test_a_translation_is_what_the_model_says_to_the_text_laid_as_in_training(runs: dict[str, Any]) -> None:
    """Caught: a source without its EOS, a target without BOS, answers out of order."""
    model = runs["transformer"]
    texts = ["the cat", "Anna lives in Rome", "a", "3 mai 1979"]
    expected = [greedy_by_hand(model, text, 12) for text in texts]
    assert len(set(expected)) > 1
    assert model.translate(texts, beam=1, max_new_tokens=12) == expected


def test_blank_texts_stay_as_they_are_and_spacing_is_kept(runs: dict[str, Any]) -> None:
    model = runs["transformer"]
    cat, dog = model.translate(["the cat", "a dog"])
    assert model.translate(["", "  ", " the cat\n\n  a dog \n"]) == [
        "",
        "  ",
        f" {cat}\n\n  {dog} \n",
    ]


def test_a_text_longer_than_the_block_is_the_answers_to_its_sentences(runs: dict[str, Any]) -> None:
    """Caught: a long text cut off, or read at a length the model was never built for."""
    model = runs["transformer"]
    long = " ".join(SENTENCES)
    answer = tasks.translate(model, [long], align=True)[0][0]
    assert len(answer.parts) > 3
    assert all(len(part.source_tokens) <= model.model.config.block_size for part in answer.parts)
    sources = ["".join(part.source_tokens[:-1]) for part in answer.parts]
    assert "".join(sources).replace(" ", "") == long.replace(" ", "")
    assert answer.text == " ".join(model.translate(sources))
    assert answer.ids == [token for part in answer.parts for token in part.hypothesis.ids]
    last = answer.parts[-1]
    before = sum(len(part.source_tokens) for part in answer.parts[:-1])
    assert answer.links[-len(last.links) :] == [
        (s + before, t + len(answer.ids) - len(last.tokens)) for s, t in last.links
    ]


def test_the_n_best_of_a_cut_text_are_the_best_choices_of_one_from_each_part() -> None:
    """Against all choices. Caught: pairing the second best of each part with one another."""
    torch.manual_seed(1)

    def part(size: int) -> list[Hypothesis]:
        scores = sorted((-torch.rand(size) * 5).tolist(), reverse=True)
        return [Hypothesis([i], s, s, [s], "eos" if i < size - 1 else "length") for i, s in enumerate(scores)]

    for n_best, sizes in product((1, 2, 3, 4), ([4], [4, 4], [4, 1, 3], [2, 4, 4, 2])):
        parts = [part(size) for size in sizes]
        everything = sorted(
            product(*parts),
            key=lambda choice: (sum(h.ended == "length" for h in choice), -sum(h.score for h in choice)),
        )
        found = combinations(parts, DecodeConfig(n_best=n_best))
        wanted = everything[:n_best]
        assert [[h.ids for h in choice] for choice in found] == [[h.ids for h in choice] for choice in wanted]


def test_full_answers_agree_with_themselves(runs: dict[str, Any]) -> None:
    model = runs["transformer"]
    texts = ["the cat", "Anna"]
    for text, answers in zip(
        texts, tasks.translate(model, texts, beam=4, n_best=3, align=True, trace=True), strict=True
    ):
        assert len(answers) == 3 == len({tuple(a.ids) for a in answers})
        assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
        for answer in answers:
            (part,) = answer.parts
            assert answer.text == model.tokenizers.target.decode(answer.ids) == "".join(part.tokens)
            assert answer.logprob == pytest.approx(sum(answer.token_logprobs))
            assert part.source_tokens == [*text, "<eos>"]
            alignment = part.hypothesis.alignment
            assert alignment is not None and len(alignment) == len(answer.ids)
            for row in alignment:
                assert len(row) == len(text) + 1 and sum(row) == pytest.approx(1, abs=1e-4)
            assert answer.traces
    best = [found.best.text for found in model.translate(texts, beam=4, n_best=3)]
    assert model.translate(texts, beam=4) == best


def test_wishes_are_met(runs: dict[str, Any]) -> None:
    model = runs["transformer"]
    texts = ["the cat", "a dog ran", "Anna lives in Rome"]
    free = model.translate(texts)
    for answer in model.translate(texts, terms=["river", "79"]):
        assert "river" in answer and "79" in answer
    for answer in model.translate(texts, prefix="3 mai"):
        assert answer.startswith("3 mai")
    frequent = free[0][:2]
    assert all(frequent not in answer for answer in model.translate(texts, banned=[frequent]))
    stopped = [found.answers for found in model.translate(texts, stops=[frequent], beam=1)]
    assert stopped[0][0].text == "" and stopped[0][0].ended == "stop"


def test_glossary_terms_appear_where_their_word_does(runs: dict[str, Any]) -> None:
    """Also in the right part of a text that is cut. Caught: terms for all texts, or for none."""
    model = runs["transformer"]
    long = " ".join(SENTENCES)
    texts = ["The Cat", "a category", long]
    with_cat, without, cut = (found.answers for found in model.translate(texts, glossary={"cat": "1979"}, beam=2))
    assert "1979" not in without[0].text
    assert with_cat[0].text.count("1979") == 1
    holding = [i for i, part in enumerate(cut[0].parts) if "1979" in "".join(part.tokens)]
    assert holding == [i for i, part in enumerate(cut[0].parts) if "cat" in "".join(part.source_tokens)]


def test_where_a_word_occurs() -> None:
    assert occurs("cat", "The Cat.") and not occurs("cat", "category") and not occurs("cat", "a bobcat")
    assert occurs("猫", "小猫在") and occurs("C++", "in C++, of course") and not occurs(" ", "a b")


def test_what_cannot_be_written_is_refused(runs: dict[str, Any]) -> None:
    model = runs["transformer"]
    for wishes in (
        {"terms": ["丂"]},
        {"terms": [" "]},
        {"glossary": {"cat": "丂"}},
        {"prefix": "丂"},
        {"banned": [""]},
        {"stops": [""]},
        {"terms": ["cat"], "banned": ["at"]},
        {"terms": ["cat"], "temperature": 0.5},
        {"terms": ["cat"], "stops": ["."]},
        {"glossary": {"cat": "dog"}, "temperature": 0.5},
    ):
        with pytest.raises(UserError) as error:
            model.translate(["the cat"], **wishes)
        assert "\n" not in str(error.value)


def test_a_streamed_translation_is_the_greedy_one(runs: dict[str, Any]) -> None:
    """Also of a text that is read in pieces, with its spacing, its stop strings and its blank lines."""
    long = " ".join(SENTENCES)
    for model in (runs["transformer"], runs["pairs"]):
        for text in ("the cat", "", "  ", " the cat\n\n  a dog \n", long):
            assert "".join(model.stream(text)) == model.translate(text, beam=1)
            drawn = {"temperature": 0.9, "seed": 3, "max_new_tokens": 9}
            assert "".join(model.stream(text, **drawn)) == model.translate(text, **drawn)
        drawing = copy.copy(model)  # of a run whose recipe draws
        drawing.recipe = replace(model.recipe, decode=replace(model.recipe.decode, temperature=1.5, beam=None))
        assert len({"".join(drawing.stream(long, seed=seed)) for seed in (1, 2)}) == 2
        letter = max(model.translate(long, beam=1).replace(" ", ""), key=model.translate(long, beam=1).count)
        assert "".join(model.stream(long, stops=[letter])) == model.translate(long, beam=1, stops=[letter])
