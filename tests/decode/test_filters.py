"""What may be written and what is drawn: exact sets, exact frequencies."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chi2, chisquare
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode import SpecialTokens, TokenConstraints, filters, generate_batch
from glassformer.decode.filters import warp
from tests.counts import count
from tests.laws.zoo import small
from tests.tables import Unigram

NO_CONTROLS = SpecialTokens(bos=0, eos=None, unknown=None, never=())


def kept(scores: Tensor) -> list[set[int]]:
    return [{v for v, x in enumerate(row) if x > -math.inf} for row in scores.tolist()]


def some_distributions(rows: int, vocabulary: int, seed: int) -> list[list[Fraction]]:
    """Whole numbers over their sum, small ones so that many are equal."""
    draw = random.Random(seed)
    out = []
    for _ in range(rows):
        weights = [draw.choice((1, 1, 2, 2, 3, 5, 8)) for _ in range(vocabulary)]
        out.append([Fraction(w, sum(weights)) for w in weights])
    return out


def as_scores(distributions: list[list[Fraction]], dtype: torch.dtype) -> Tensor:
    return torch.tensor([[math.log(p) for p in row] for row in distributions], dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_k_top_p_and_min_p_keep_exactly_the_right_set(dtype: torch.dtype) -> None:
    """Against exact fractions, with p exactly on a partial sum half of the time, and many ties. Caught: ties broken by the
    order of the vocabulary; a sum that has just reached p and takes one word more; a strict where a weak comparison
    belongs."""
    for seed in range(count(fast=20, soak=200)):
        draw = random.Random(seed)
        distributions = some_distributions(8, 9, seed)
        scores = as_scores(distributions, dtype)
        k = draw.randrange(1, 12)
        top_k = kept(filters.top_k(scores, k))
        for row, probabilities in enumerate(distributions):
            order = sorted(probabilities, reverse=True)
            assert top_k[row] == {v for v, p in enumerate(probabilities) if p >= order[min(k, 9) - 1]}
            sums = [sum(order[: n + 1]) for n in range(9)]
            p = draw.choice(sums[:-1]) if seed % 2 else Fraction(draw.randrange(1, 1000), 1009)
            last = order[next(n for n in range(9) if sums[n] >= p)]
            found = kept(filters.top_p(scores[row : row + 1], float(p)))[0]
            assert found == {v for v, q in enumerate(probabilities) if q >= last}
            fraction = Fraction(1, draw.randrange(1, 9))
            found = kept(filters.min_p(scores[row : row + 1], float(fraction)))[0]
            assert found == {v for v, q in enumerate(probabilities) if q >= fraction * order[0]}
    assert kept(filters.top_p(scores, 1.0)) == [set(range(9))] * 8


def test_filters_leave_the_values_of_what_stays_and_their_input_alone() -> None:
    scores = as_scores(some_distributions(4, 9, 1), torch.float64)
    before = scores.clone()
    history = torch.tensor([[1, 2, 1], [3, 3, 3], [-1, 4, 4], [-1, -1, 5]])
    for out in (
        filters.top_k(scores, 3),
        filters.top_p(scores, 0.5),
        filters.min_p(scores, 0.3),
        filters.ban_sequences(scores, history, [(1, 2), (3,)]),
        filters.no_repeat_ngram(scores, history, 2),
        filters.force(scores, torch.tensor([-1, 2, 3, 4])),
    ):
        assert torch.equal(scores, before)
        stays = out > -math.inf
        assert torch.equal(out[stays], scores[stays]) and not bool(stays.all())


def test_no_ngram_is_ever_repeated_and_nothing_else_is_banned() -> None:
    """Against a plain search through the history, prompts of different lengths included."""
    for seed in range(count(fast=30, soak=300)):
        draw = random.Random(seed)
        n, length = draw.randrange(1, 5), draw.randrange(0, 12)
        rows = []
        for _ in range(4):
            real = draw.randrange(length + 1)
            rows.append([-1] * (length - real) + [draw.randrange(3) for _ in range(real)])
        history = torch.tensor(rows, dtype=torch.long).view(4, length)
        found = kept(filters.no_repeat_ngram(torch.zeros(4, 4), history, n))
        for row, allowed in zip(rows, found):
            text = [t for t in row if t >= 0]
            grams = {tuple(text[i : i + n]) for i in range(len(text) - n + 1)}
            tail = text[len(text) - n + 1 :] if n > 1 else []
            expected = {v for v in range(4) if len(tail) < n - 1 or (*tail, v) not in grams}
            assert allowed == expected


def test_the_repetition_penalty_is_on_what_has_occurred() -> None:
    scores = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    out = filters.repetition_penalty(scores, torch.tensor([[-1, 1, 1]]), 2.0)
    assert out.exp()[0].tolist() == pytest.approx([0.5, 0.0625, 0.25])
    shifted = filters.repetition_penalty((scores + 7).log_softmax(-1), torch.tensor([[-1, 1, 1]]), 2.0)
    assert torch.allclose(out, shifted)  # a constant added to the logits changes nothing


@pytest.mark.parametrize(
    "settings", [{"beam": 4, "n_best": 4}, {"beam": 1}, {"temperature": 1.5, "num_samples": 4}], ids=str
)
def test_demands_are_met_by_every_search(settings: dict[str, object]) -> None:
    model = small("gpt", tie_output=False, seed=3)
    prompts = [[5, 6, 5, 6], [7], [8, 9, 8]]
    demands = [
        TokenConstraints(banned=((11,), (12, 13)), prefix=(14,)),
        TokenConstraints(prefix=(9, 9, 10)),
        TokenConstraints(banned=((8,),), prefix=(10,)),
    ]
    config = DecodeConfig(**settings, max_new_tokens=8, min_new_tokens=5, no_repeat_ngram=2)  # type: ignore[arg-type]
    first, second, third = generate_batch(model, prompts, config, constraints=demands)
    for h in first:
        assert 11 not in h.ids and (12, 13) not in set(zip(h.ids, h.ids[1:])) and h.ids[0] == 14
    for h in second:
        assert h.ids[:3] == [9, 9, 10]
    for h in third:
        assert 8 not in h.ids and h.ids[0] == 10
    for prompt, found in zip(prompts, (first, second, third)):
        for h in found:
            assert len(h.ids) >= 5 and not {0, 1, 2, 3, 4} & set(h.ids)
            pairs = [*itertools.pairwise(prompt), (prompt[-1], h.ids[0]), *zip(h.ids, h.ids[1:])]
            repeated = {pair for pair in pairs if pairs.count(pair) > 1}
            assert repeated <= {(5, 6)}  # the prompt's own


def test_philox_is_philox() -> None:
    """The known answers published with the generator (Random123, kat_vectors, philox4x32 10)."""
    zeros, ones = np.zeros((1, 4), dtype=np.uint64), np.full((1, 4), 0xFFFFFFFF, dtype=np.uint64)
    assert [hex(x) for x in filters.philox(zeros, (0, 0))[0]] == [
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]
    found = filters.philox(ones, (0xFFFFFFFF, 0xFFFFFFFF))[0]
    assert [hex(x) for x in found] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


def test_draws_are_uniform_and_neither_steps_nor_samples_nor_texts_know_of_each_other() -> None:
    """Caught: a counter in which two of the four meet, so that one sample is another shifted by a step."""
    by_sample = filters.uniforms(1, [7] * 400, list(range(400)), 300).numpy()
    by_text = filters.uniforms(1, list(range(400)), [0] * 400, 300).numpy()
    for draws in (by_sample, by_text):
        assert draws.min() >= 0 and draws.max() < 1
        assert chisquare(np.histogram(draws, 50, (0, 1))[0]).pvalue > 1e-4
        for a, b in ((draws[:, 1:], draws[:, :-1]), (draws[1:], draws[:-1]), (draws[1:, :-1], draws[:-1, 1:])):
            pairs = np.histogram2d(a.ravel(), b.ravel(), 10, ((0, 1), (0, 1)))[0]
            assert chisquare(pairs.ravel()).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 1.7, "top_k": 4},
        {"top_p": 0.6},
        {"min_p": 0.3, "temperature": 2.0},
        {"top_k": 6, "top_p": 0.8, "min_p": 0.05, "temperature": 0.9},
    ],
    ids=str,
)
def test_frequencies_over_100_000_draws_match_the_filtered_distribution(settings: dict[str, float]) -> None:
    """The whole path: model, filters, draw. Caught: filtering after drawing; a temperature applied twice; the first or the
    last word of the vocabulary drawn too often by an interval that is open at the wrong end."""
    probabilities = [0.3, 0.02, 0.2, 0.2, 0.08, 0.1, 0.1]
    model = Unigram(probabilities)
    config = DecodeConfig(**{"temperature": 1.0, **settings, "num_samples": 1_000, "max_new_tokens": 100})  # type: ignore[arg-type]
    (found,) = generate_batch(model, [[0]], config, special=NO_CONTROLS)
    drawn = np.bincount(np.array([h.ids for h in found]).ravel(), minlength=len(probabilities))
    assert drawn.sum() == 100_000
    expected = np.array(probabilities) ** (1 / config.temperature)
    expected /= expected.sum()
    in_order = sorted(range(len(probabilities)), key=lambda v: -expected[v])
    if config.top_k:
        keep = [v for v in in_order if expected[v] >= expected[in_order[config.top_k - 1]]]
        expected = np.where(np.isin(np.arange(7), keep), expected, 0)
        expected /= expected.sum()
    if config.top_p:
        sums = np.cumsum(expected[in_order])
        last = expected[in_order[int(np.argmax(sums >= config.top_p))]]
        expected = np.where(expected >= last - 1e-12, expected, 0)
        expected /= expected.sum()
    if config.min_p:
        expected = np.where(expected >= config.min_p * expected.max(), expected, 0)
        expected /= expected.sum()
    assert drawn[expected == 0].sum() == 0
    real = expected > 0
    statistic = float(((drawn[real] - 100_000 * expected[real]) ** 2 / (100_000 * expected[real])).sum())
    assert statistic < chi2.ppf(1 - 1e-4, real.sum() - 1)
    for h in found[:100]:
        assert h.token_logprobs == pytest.approx([math.log(probabilities[t]) for t in h.ids])


def test_a_draw_never_takes_what_was_filtered_out_even_at_the_ends() -> None:
    scores = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]])
    for u, expected in ((0.0, 1), (0.4999, 1), (0.5, 3), (1 - 2**-53, 3)):
        assert filters.sample(scores, torch.tensor([u], dtype=torch.float64)).tolist() == [expected]


def test_shape_is_in_the_documented_order() -> None:
    """Temperature first: at 100 all words are nearly equal, so top-p 0.5 keeps about half of them."""
    scores = torch.tensor([[8.0, 4, 2, 1, 0, -1, -2, -3]], dtype=torch.float64)
    flat = warp(scores, DecodeConfig(temperature=100.0, top_p=0.5))
    assert len(kept(flat)[0]) == 4
    assert len(kept(warp(scores, DecodeConfig(temperature=1.0, top_p=0.5)))[0]) == 1
