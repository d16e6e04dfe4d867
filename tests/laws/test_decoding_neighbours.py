"""An answer is the sentence's own: decoded one at a time to the last bit, and a draw in any batch."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode import generate_batch, translate_batch
from glassformer.models import build_model
from tests.counts import count
from tests.laws.zoo import VOCABULARY, small

WORDS = 211


def float_model(family: str, **changes: Any) -> Any:
    """In float32, and wide enough for matrix products to differ in their last digits with the number of rows."""
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "n_embd": 96, "n_head": 4, "n_layer": 2, "n_hidden": 160, "block_size": 64}
    model = build_model(ModelConfig(**{"family": family, "tie_output": False, **sizes, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    return model


def some_text(draw: random.Random) -> list[int]:
    return [draw.randrange(5, WORDS) for _ in range(draw.randrange(1, 16))]


@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_one_at_a_time_no_neighbour_matters(family: str) -> None:
    """With `batch_size=1` the same tokens and the same bits alone and among others. Caught: memory of the one before that is
    still seen. Decoded together, the last bits do depend on neighbours, or this test would see nothing."""
    model = float_model(family, positions="learned" if family == "gpt" else "sinusoidal", n_layer=1)
    decode = translate_batch if family == "transformer" else generate_batch
    draw = random.Random(1)
    other_bits = 0
    for number in range(count(fast=4, soak=200)):
        search = {"beam": 3} if number % 3 else {"temperature": 1.0}
        how = {**search, "max_new_tokens": 4, "min_new_tokens": draw.randrange(4)}
        needle = some_text(draw)
        texts = [some_text(draw) for _ in range(7)]
        place = draw.randrange(8)
        texts.insert(place, needle)
        alone = decode(model, [needle], DecodeConfig(**how))[0]
        assert decode(model, texts, DecodeConfig(**how, batch_size=1))[place] == alone
        together = decode(model, texts, DecodeConfig(**how))[place][0]
        other_bits += together.token_logprobs != alone[0].token_logprobs
    assert other_bits > 0


def test_a_sample_can_be_repeated_in_any_batch() -> None:
    """Caught: draws from a generator that the neighbours advance, or numbered by the row of the batch."""
    model = small("gpt", tie_output=False)
    draw = random.Random(4)
    config = DecodeConfig(temperature=1.2, num_samples=3, max_new_tokens=10, seed=9)
    prompts = [[draw.randrange(5, VOCABULARY) for _ in range(1 + n % 5)] for n in range(9)]
    together = generate_batch(model, prompts, config)
    torch.manual_seed(1)
    for n in (0, 4, 8):
        alone = generate_batch(model, [prompts[n]], config)[0]
        assert [h.ids for h in alone] == [h.ids for h in together[n]]
    backwards = generate_batch(model, prompts[::-1], DecodeConfig(**{**vars(config), "batch_size": 2}))[::-1]
    assert [[h.ids for h in hs] for hs in backwards] == [[h.ids for h in hs] for hs in together]
    first = [tuple(hs[0].ids) for hs in together]
    assert len(set(first)) == len(first) and all(hs[0].ids != hs[1].ids for hs in together)
    other = generate_batch(model, prompts, DecodeConfig(**{**vars(config), "seed": 10}))
    assert [hs[0].ids for hs in other] != [hs[0].ids for hs in together]
