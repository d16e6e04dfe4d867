"""The driver: requests come and go at any time, and nobody notices."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from glassformer.config import DecodeConfig
from glassformer.decode import Request, TokenConstraints, answer, driver, engines, generate_batch, translate_batch
from glassformer.errors import ConfigError, UserError
from glassformer.models.weights import weight_checksum
from glassformer.text.tokenizer import Tokenizer
from tests.laws.test_decoding_cache import SEARCHES, same, some_texts
from tests.laws.test_decoding_neighbours import float_model
from tests.laws.zoo import VOCABULARY, small
from tests.uncached import uncached_batch


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("family", ["transformer", "gpt"])
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_who_joins_and_who_leaves_does_not_matter(family: str, search: str, positions: str) -> None:
    """Texts of very different lengths in few slots, so that they join while others are in the middle. Caught: a column of the
    one who had the slot before that is still seen; positions counted from the neighbour's; limits of another."""
    model = small(family, seed=1, tie_output=False, positions=positions, block_size=24)
    draw = random.Random(5)
    texts = some_texts([draw.randrange(1, 14) for _ in range(11)], seed=3)
    config = DecodeConfig(**SEARCHES[search], batch_size=4)
    limits = [(draw.randrange(3), draw.randrange(4, 12)) for _ in texts]
    requests = [Request(text, limits=own) for text, own in zip(texts, limits)]
    together = dict(answer(model, requests, config, in_order=False))
    alone = [next(iter(answer(model, [request], config)))[1] for request in requests]
    assert same([together[n] for n in range(len(texts))], alone)


def test_requests_are_taken_as_they_are_needed_and_answered_in_order() -> None:
    model = small("transformer", tie_output=False)
    taken = 0

    def requests() -> Iterator[Request]:
        nonlocal taken
        draw = random.Random(1)
        while True:
            taken += 1
            yield Request([draw.randrange(5, VOCABULARY) for _ in range(draw.randrange(6))])

    config = DecodeConfig(beam=1, batch_size=2, max_ratio=0.0, max_extra=3)
    numbers = []
    for number, _ in answer(model, requests(), config):
        numbers.append(number)
        assert taken - number <= 2 * 4 * 4 + 1
        if number == 150:
            break
    assert numbers == list(range(151))


def test_a_fused_optimizer_step_is_seen() -> None:
    """A fused step raises no version of what it writes to. Caught: packed weights of before the step."""
    model = float_model("transformer")
    texts = some_texts([5, 3, 4])
    config = DecodeConfig(beam=3, max_new_tokens=8)
    for engine in ("fast", "plain"):
        translate_batch(model, texts, replace(config, engine=engine))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=True)
    versions = [p._version for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    for write in (lambda: None, lambda: model.decoder.layers[0].mlp.up.weight.data[3].zero_()):
        write()
        fast, plain = (translate_batch(model, texts, replace(config, engine=engine)) for engine in ("fast", "plain"))
        for ours, reference in zip(fast, plain, strict=True):
            assert ours[0].ids == reference[0].ids and ours[0].logprob == pytest.approx(reference[0].logprob, abs=1e-3)
    record = [p._version for p in model.parameters()]
    assert versions == record  # or this test would not see what it is for


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(512, 96), (300, 77), (5, 8191), (7,)])
def test_what_packed_weights_are_compared_by_sees_every_change(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """A bit, two rows or two columns that change places. Caught: sums of whole rows, of whole columns, of whole tensors."""
    model = torch.nn.Linear(1, 1).to(dtype)
    model.weight.data = weight = torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    before, kept = weight_checksum(model), weight.clone()
    changes = [lambda: weight.view(-1)[3].mul_(1.01), lambda: weight.view(-1)[-1].neg_()]
    for dim, size in enumerate(shape):
        for a, b in ((0, 1), (1, size - 1)):
            order = torch.arange(size)
            order[a], order[b] = b, a
            changes.append(lambda dim=dim, order=order: weight.copy_(kept.index_select(dim, order)))
    for change in changes:
        change()
        assert not torch.equal(weight, kept) and not torch.equal(weight_checksum(model), before)
        weight.copy_(kept)
        assert torch.equal(weight_checksum(model), before)


def test_weights_may_be_views_of_one_vector() -> None:
    """As torch.nn.utils.vector_to_parameters leaves them: some begin in the middle of a word of 64 bits."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 1, bias=False), torch.nn.Linear(2, 2))
    before = weight_checksum(model)
    vector = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.nn.utils.vector_to_parameters(vector, model.parameters())
    assert [p.storage_offset() % 2 for p in model.parameters()] == [0, 1, 1]
    views = weight_checksum(model)
    vector[4] += 1
    assert before.numel() and not torch.equal(weight_checksum(model), views)


def test_four_threads_with_one_model_get_what_they_would_get_alone() -> None:
    """The model in training mode, so that a thread which ends would switch dropout on for the others."""
    model = small("transformer", tie_output=False, dropout=0.5, positions="rotary", block_size=4).train()
    jobs = [some_texts([random.Random(n).randrange(1, 9) for _ in range(6)], seed=n) for n in range(4)]
    configs = [
        DecodeConfig(beam=n + 1, max_new_tokens=6 + 3 * n, engine="plain" if n % 2 else "auto") for n in range(4)
    ]
    alone = [translate_batch(model, texts, config) for texts, config in zip(jobs, configs)]
    found: dict[int, Any] = {}

    def work(n: int) -> None:
        found[n] = [translate_batch(model, jobs[n], configs[n]) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(again, alone[n]) for n in range(4) for again in found[n]) and model.training


def test_a_prompt_longer_than_the_block_is_cropped_and_it_is_said() -> None:
    """The crop is the context that generation would have come to."""
    for positions in ("learned", "sinusoidal"):
        model = float_model("gpt", positions=positions, block_size=24)
        prompts = some_texts([61, 30, 5])
        config = DecodeConfig(beam=2, max_new_tokens=4, batch_size=4)
        with pytest.warns(UserWarning, match="reads 24 at once"):
            found = generate_batch(model, prompts, config)
        reference = uncached_batch(model, prompts, replace(config, engine="plain"))
        assert [h[0].ids for h in found] == [h[0].ids for h in reference]


def test_a_quote_in_a_stop_string_of_a_word_tokenizer() -> None:
    """A quote opens or closes by what came before it. Caught: looking at the last few tokens alone."""
    words = Tokenizer.train("word", ['he said " yes " and " no " again', "and so on and on"] * 3, 40)
    model = small("gpt", vocab_size=words.vocab_size, tie_output=False, seed=2)
    quote = words.encode('"')[0]
    config = DecodeConfig(temperature=1.5, max_new_tokens=60, num_samples=8, min_new_tokens=60)
    stop = ' "'
    demands = TokenConstraints(stops=(stop,))
    for h in generate_batch(model, [[quote, 6]], config, text=words.decode, constraints=demands)[0]:
        assert h.text is not None and stop not in h.text
        shortest = next((n for n in range(1, len(h.ids) + 1) if stop in words.decode(h.ids[:n])), None)
        assert len(h.ids) == (shortest or 60)


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({"beam": 10_000, "n_best": 10_000}, (0, 1000)),
        ({"temperature": 1.0, "num_samples": 100_000}, (0, 1_000)),
        ({"beam": 1}, (0, 10**9)),
    ],
)
def test_what_cannot_fit_is_refused_before_anything_is_allocated(
    settings: dict[str, Any], limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with 100 MB: the sentence has the numbers, and no cache and no search was made. What fits is answered."""
    model = small("transformer", tie_output=False, positions="rotary")
    monkeypatch.setattr(engines.machine, "available_memory", lambda device: 100 << 20)
    made: list[Any] = []
    monkeypatch.setattr(driver, "SearchState", lambda *given, **more: made.append(given))
    monkeypatch.setattr(driver, "ModelStepper", lambda *given, **more: made.append(given))
    with pytest.raises(ConfigError, match=r"may need [\d,]+\.\d GB, and 0\.1 GB can be had"):
        next(iter(answer(model, [Request([5, 6], limits=limits)], DecodeConfig(**settings))))
    assert not made
    monkeypatch.undo()
    monkeypatch.setattr(engines.machine, "available_memory", lambda device: 100 << 20)
    assert next(iter(answer(model, [Request([5, 6], limits=(0, 4))], DecodeConfig(beam=20))))[1]


def test_a_gpt_whose_positions_end_may_write_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks back no further than its positions go, so a million tokens need no more than that. Caught: a refusal by the
    length that was asked for."""
    monkeypatch.setattr(engines.machine, "available_memory", lambda device: 100 << 20)
    model = small("gpt", tie_output=False, positions="learned", block_size=24)
    assert engines.slots_that_fit(model, DecodeConfig(beam=1), 10**6, 5) >= 1


@pytest.mark.parametrize("engine", ["auto", "plain"])
@pytest.mark.parametrize("beam", [1, 3])
def test_scores_that_are_not_numbers_are_told(beam: int, engine: str) -> None:
    """Caught: an answer without a single hypothesis, which whoever asks for the best of them trips over."""
    model = small("transformer")
    with torch.no_grad():
        model.decoder.layers[-1].mlp.up.weight.fill_(math.nan)
    with pytest.raises(UserError, match="not numbers"):
        translate_batch(model, [[3, 4], [5]], DecodeConfig(beam=beam, engine=engine, max_new_tokens=4))
