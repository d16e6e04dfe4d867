"""Settings that cannot be, ids and rows that a model cannot read: each refused in one sentence, before anything is built."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glassformer.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig
from glassformer.errors import ConfigError, UserError
from glassformer.models import BERT, build_model
from glassformer.nn import Rows
from tests.sentences import one_sentence

pytestmark = pytest.mark.usefixtures("as_in_production")

MISTAKES: dict[str, tuple[Any, ...]] = {
    "width and heads": ({"n_embd": 10, "n_head": 4}, "n_embd 10 is not divisible by model.n_head 4"),
    "heads and key heads": ({"n_head": 8, "n_kv_head": 3}, "n_head 8 is not divisible by model.n_kv_head 3"),
    "more key heads than heads": ({"n_head": 4, "n_kv_head": 8}, "n_head 4 is not divisible by model.n_kv_head 8"),
    "odd rotary": ({"positions": "rotary", "head_size": 7}, "the head size must be even, not 7"),
    "odd sinusoids": ({"n_embd": 9, "n_head": 3}, "n_embd must be even, not 9"),
    "an encoder in a gpt": ({"family": "gpt", "n_encoder_layer": 2}, "gpt has n_layer alone"),
    "a source in a bert": ({"family": "bert", "source_vocab_size": 9}, "bert has one vocabulary"),
    "two vocabularies, one table": ({"source_vocab_size": 9}, "cannot share an embedding table"),
    "a tagging gpt": ({"family": "gpt", "head": "tag"}, "belong to family bert"),
    "labels in a transformer": ({"n_label": 3}, "belong to family bert"),
    "no norm, but one": ({"norm": "none", "embedding_norm": True}, 'model.norm="none" rules out'),
    "no layer": ({"n_layer": 0}, "model.n_layer must be at least 1, not 0"),
    "all dropped": ({"dropout": 1.0}, "model.dropout must be at least 0 and below 1, not 1.0"),
    "fewer than no words": ({"vocab_size": -1}, "model.vocab_size cannot be negative"),
    "an unknown family": ({"family": "gtp"}, "did you mean 'gpt'?"),
    "an unknown activation": ({"activation": "swigl"}, "did you mean 'swiglu'?"),
    "an unknown norm": ({"norm": "layernorm"}, "must be one of layer, rms,"),
    "two sources of data": ({"builtin": "dates", "train": "x.tsv"}, "both set", DataConfig),
    "everything masked": ({"mask_fraction": 1.0}, "mask_fraction must lie between 0 and 1", DataConfig),
    "clipped to nothing": ({"clip": 0.0}, "clip must be above 0", TrainConfig),
    "an unknown schedule": ({"schedule": "cosin"}, "did you mean 'cosine'?", TrainConfig),
    "below absolute zero": ({"temperature": -1.0}, "temperature cannot be negative", DecodeConfig),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_settings_that_cannot_be(mistake: tuple[Any, ...]) -> None:
    """Of a model, where no other config is named. The bounds of every setting: test_settings.py."""
    settings, words, config = mistake if len(mistake) == 3 else (*mistake, ModelConfig)
    with pytest.raises(ConfigError) as error:
        config(**settings)
    assert words in one_sentence(error)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_embd": 10, "n_head": 4, "head_size": 3},
        {"n_embd": 9, "n_head": 3, "positions": "learned"},
        {"source_vocab_size": 9, "share_source_target": False},
        {"positions": "rotary", "head_size": 6, "value_size": 7},
        {"window": 1},
        {"family": "bert", "head": "tag", "n_label": 3, "n_token_type": 2},
    ],
)
def test_what_the_sentence_advises_is_accepted(settings: dict[str, Any]) -> None:
    """So that the refusals above are not merely strict; and the model of it builds."""
    build_model(ModelConfig(vocab_size=11, n_layer=1, **settings))


@pytest.mark.parametrize("family", ["transformer", "gpt", "bert"])
@pytest.mark.parametrize("wrong", [11, 999, -1])
def test_ids_out_of_range(family: str, wrong: int) -> None:
    model: Any = build_model(ModelConfig(family=family, vocab_size=11, n_layer=1, n_head=2, n_embd=8))  # type: ignore[arg-type]
    good, bad = Rows.whole(torch.tensor([[1, 10]])), Rows.whole(torch.tensor([[1, wrong]]))
    calls = [(good, bad), (bad, good)] if family == "transformer" else [(bad,)]
    for call in calls:
        with pytest.raises(
            ValueError, match=f"token id {wrong} is not in the vocabulary, whose ids run from 0 to 10"
        ) as error:
            model(*call)
        one_sentence(error)


@pytest.mark.parametrize("family", ["transformer", "gpt", "bert"])
def test_rows_past_the_learned_positions(family: str) -> None:
    """A row of block_size runs; one token more is refused; so is a cached step past the end."""
    config = ModelConfig(family=family, vocab_size=11, n_layer=1, n_head=2, n_embd=8, block_size=5, positions="learned")  # type: ignore[arg-type]
    model: Any = build_model(config)
    fits, too_long = Rows.whole(torch.ones(1, 5, dtype=torch.long)), Rows.whole(torch.ones(1, 6, dtype=torch.long))
    model(*([fits, fits] if family == "transformer" else [fits]))
    for call in [(fits, too_long), (too_long, fits)] if family == "transformer" else [(too_long,)]:
        with pytest.raises(ValueError, match="a row of 6 tokens is longer than the 5 positions this model has learned"):
            model(*call)
    if family != "bert":
        state = model.start(fits, 9) if family == "transformer" else model.start(1, 9)
        model.step(torch.ones(1, 5, dtype=torch.long), state)
        with pytest.raises(ValueError, match="a row of 6 tokens"):
            model.step(torch.ones(1, 1, dtype=torch.long), state)


def test_what_only_the_builder_can_refuse() -> None:
    with pytest.raises(ValueError, match="vocab_size is not known yet"):
        build_model(ModelConfig())
    with pytest.raises(ConfigError, match=r"needs model\.n_label of at least 2"):
        BERT(ModelConfig(family="bert", vocab_size=9, head="classify"))
    assert issubclass(ConfigError, UserError) and issubclass(UserError, ValueError)


def test_lengths_that_cannot_be() -> None:
    tokens = torch.ones(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match="2 rows came with 1 lengths"):
        Rows.padded(tokens, [3])
    with pytest.raises(ValueError, match="lengths must lie between 0 and the row width 3"):
        Rows.padded(tokens, [3, 4])
    with pytest.raises(ValueError, match="row 0 holds more than its 3 tokens"):
        Rows.pack([[[1, 2], [3, 4]]], 3)
