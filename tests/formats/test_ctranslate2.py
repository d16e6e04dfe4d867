"""Our models in CTranslate2's hands: the same log-probabilities in float32, and a sentence where it has no word for a part."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.formats.ctranslate2 import spec as conversion
from glassformer.nn.rows import Rows
from tests.laws.zoo import SMALL, small, variants

VOCABULARIES = conversion.Vocabularies(bos=1, eos=2, unknown=3)
EXTRA = [
    pytest.param("transformer", {"norm_eps": 0.01, "scaled_attention": False}, id="transformer: epsilon, no scale"),
    pytest.param("transformer", {"pre_norm": False, "final_norm": True}, id="transformer: post-norm and a last norm"),
    pytest.param(
        "gpt", {"qk_norm": True, "positions": "rotary", "rotary_base": 500.0}, id="gpt: norm of queries, rotary"
    ),
]


def lively(family: str, changes: dict[str, Any]) -> Any:
    """A small model whose norms and biases are not what they begin with, so that leaving one out shows."""
    model = small(family, seed=1, **changes)
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=draw) * 0.2)
    return model.eval()


@torch.no_grad()
def by_the_model(model: Any, source: list[int], target: list[int]) -> list[float]:
    if model.config.family == "transformer":
        logits = model(Rows.whole(torch.tensor([source])), Rows.whole(torch.tensor([[VOCABULARIES.bos, *target]])))
        wanted = [*target, VOCABULARIES.eos]
    else:
        logits = model(Rows.whole(torch.tensor([target])))
        wanted = target[1:]
    chances = logits[0].log_softmax(-1)
    return [float(chances[i, token]) for i, token in enumerate(wanted)]


@pytest.mark.parametrize(("family", "changes"), [*variants("transformer", "gpt"), *EXTRA])
def test_converted_models_say_what_ours_say(family: str, changes: dict[str, Any]) -> None:
    """Every kind of model of the zoo. Caught: sines before cosines, a last norm left out behind post-norm, keys and values
    exchanged, an epsilon that is the library's own."""
    model = lively(family, changes)
    if (unsupported := conversion.unsupported_setting(model.config)) is not None:
        with pytest.raises(ConfigError, match="CTranslate2 has nothing for"):
            conversion.make_spec(model, VOCABULARIES, n_positions=32)
        assert unsupported
        return
    runner = conversion.load(model, VOCABULARIES, n_positions=32, compute="float32", threads=1)
    pairs = [([5, 6, 7, 8, 2], [5, 9, 6, 7]), ([8, 7, 2], [6, 5])]
    targets = conversion.as_tokens(target for _, target in pairs)
    sources = conversion.as_tokens(source for source, _ in pairs)
    found = runner.score_batch(sources, targets) if family == "transformer" else runner.score_batch(targets)
    for (source, target), got in zip(pairs, found, strict=True):
        assert list(got.log_probs) == pytest.approx(by_the_model(model, source, target), abs=2e-4)


def test_most_of_the_zoo_can_be_converted() -> None:
    """Or the test above would hold for nothing."""
    every = [
        ModelConfig(**{**SMALL, "family": case.values[0], **case.values[1]}) for case in variants("transformer", "gpt")
    ]
    assert sum(conversion.unsupported_setting(config) is None for config in every) > 0.5 * len(every)
