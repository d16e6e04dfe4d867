"""Whole models, drawn from every setting, against NumPy from the formulas."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models import BERT, GPT, PRESETS, Transformer, preset
from glassformer.nn.rows import Rows
from tests import reference, reference_models
from tests.counts import count
from tests.scrambled import EXACT, VOCABULARY, arrays, difference, small

seeds = st.integers(0, 10**6)


COMMON: dict[str, st.SearchStrategy[Any]] = {
    "block_size": st.integers(8, 12),
    "n_layer": st.integers(1, 3),
    "n_head": st.sampled_from([1, 2, 4, 6, 12]),
    "n_kv_head": st.sampled_from([None, 1, 2, 3]),
    "n_embd": st.sampled_from([12, 24]),
    "n_hidden": st.sampled_from([None, 7]),
    "head_size": st.sampled_from([None, None, 4, 5]),
    "value_size": st.sampled_from([None, None, 3]),
    "activation": st.sampled_from(["relu", "gelu", "gelu_tanh", "relu2", "silu", "swiglu", "geglu", "geglu_tanh"]),
    "bias": st.booleans(),
    "norm": st.sampled_from(["layer", "rms", "layer", "rms", "batch", "none"]),
    "norm_eps": st.sampled_from([1e-5, 1e-2]),
    "pre_norm": st.booleans(),
    "final_norm": st.booleans(),
    "embedding_norm": st.booleans(),
    "positions": st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]),
    "rotary_base": st.sampled_from([10000.0, 50.0]),
    "rotary_scaling": st.sampled_from(["none", "none", "linear", "ntk", "llama3"]),
    "rotary_factor": st.sampled_from([1.0, 4.0]),
    "rotary_length": st.sampled_from([8192, 64]),
    "rotary_low": st.sampled_from([1.0, 0.5]),
    "rotary_high": st.sampled_from([4.0, 16.0]),
    "sinusoid_base": st.sampled_from([10000.0, 100.0]),
    "window": st.sampled_from([None, None, 1, 3]),
    "qk_norm": st.booleans(),
    "scaled_attention": st.sampled_from([True, True, False]),
    "scale_embeddings": st.booleans(),
    "tie_output": st.booleans(),
    "output_bias": st.booleans(),
    "share_layers": st.sampled_from([False, False, True]),
    "residual": st.sampled_from([True, True, True, False]),
}
TRANSFORMER: dict[str, st.SearchStrategy[Any]] = {
    "n_encoder_layer": st.sampled_from([None, 1, 2]),
    "n_encoder_head": st.sampled_from([None, None, 3]),
    "n_encoder_hidden": st.sampled_from([None, None, 5]),
    "source_vocab_size": st.sampled_from([None, 17]),
    "share_source_target": st.booleans(),
}
BERT_ONLY: dict[str, st.SearchStrategy[Any]] = {
    "n_token_type": st.sampled_from([0, 2]),
    "head": st.sampled_from(["mlm", "classify", "tag"]),
    "pool": st.sampled_from(["first", "mean"]),
}


def test_every_option_is_drawn() -> None:
    """The random models below must not leave a setting at its default without a word why."""
    fixed = {
        "dropout",  # chance: the comparison is of the model at rest
        "attention_dropout",
        "init",  # the weights are overwritten
        "scaled_init",
        "vocab_size",  # given with the family
        "n_label",
        "pruned_heads",  # has its own tests: a pruned model is the ablated one
    }
    assert {field.name for field in fields(ModelConfig)} == set(COMMON) | set(TRANSFORMER) | set(BERT_ONLY) | fixed | {
        "family"
    }


def configs(family: str) -> st.SearchStrategy[ModelConfig]:
    """Every setting that changes what a model computes, in any combination that is not a contradiction."""
    own = {"transformer": TRANSFORMER, "bert": BERT_ONLY}.get(family, {})

    def build(settings: dict[str, Any]) -> ModelConfig | None:
        if settings.get("head", "mlm") != "mlm":
            settings["n_label"] = 3
        if settings["positions"] != "rotary" or (settings["rotary_factor"] > 1) != (
            settings["rotary_scaling"] != "none"
        ):
            settings |= {"rotary_scaling": "none", "rotary_factor": 1.0}
        if family == "bert":
            settings["output_bias"] = False
        try:
            return ModelConfig(family=family, vocab_size=VOCABULARY, dropout=0.2, attention_dropout=0.2, **settings)  # type: ignore[arg-type]
        except ConfigError:
            return None

    built = st.fixed_dictionaries({**COMMON, **own}).map(build)
    return built.filter(lambda config: config is not None)  # type: ignore[return-value]


def sentences(n: int, longest: int = 8, vocabulary: int = VOCABULARY) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=longest), min_size=n, max_size=n)


whole = settings(
    max_examples=count(fast=30, soak=400),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@whole
@given(config=configs("gpt"), texts=sentences(2), seed=seeds)
def test_gpt(config: ModelConfig, texts: list[list[int]], seed: int) -> None:
    """Two sentences in one batch, padded; NumPy sees each alone."""
    model = small(config, seed)
    with torch.no_grad():
        logits = model(Rows.from_lists(texts))
    for text, row in zip(texts, logits, strict=True):
        assert difference(row[: len(text)], reference_models.gpt(arrays(model), config, text)) <= tolerance(row)


def tolerance(values: Tensor) -> float:
    """1e-10 of the largest number, where numbers grow above one (a model without norms may reach thousands)."""
    return EXACT * max(1.0, float(values.abs().max()))


@whole
@given(config=configs("transformer"), sources=sentences(2), targets=sentences(2), seed=seeds)
def test_encoder_decoder(config: ModelConfig, sources: list[list[int]], targets: list[list[int]], seed: int) -> None:
    model = small(config, seed)
    with torch.no_grad():
        logits = model(Rows.from_lists(sources), Rows.from_lists(targets))
    for source, target, row in zip(sources, targets, logits, strict=True):
        theirs = reference_models.encoder_decoder(arrays(model), config, source, target)
        assert difference(row[: len(target)], theirs) <= tolerance(row)


@whole
@given(config=configs("bert"), texts=sentences(2), seed=seeds)
def test_bert(config: ModelConfig, texts: list[list[int]], seed: int) -> None:
    model = small(config, seed)
    rows = Rows.from_lists(texts)
    types = torch.randint(2, rows.shape, generator=torch.Generator().manual_seed(seed)) if config.n_token_type else None
    with torch.no_grad():
        logits = model(rows, types)
    for i, text in enumerate(texts):
        kinds = None if types is None else types[i, : len(text)].tolist()
        theirs = reference_models.bert(arrays(model), config, text, kinds)
        ours = logits[i, 0] if config.head == "classify" else logits[i, : len(text)]
        assert difference(ours, theirs) <= tolerance(ours)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_in_small(name: str) -> None:
    """Each preset's settings, all of them, at a size NumPy can follow."""
    full = preset(name)
    config = replace(
        full,
        vocab_size=VOCABULARY,
        block_size=12,
        n_layer=2,
        n_embd=4 * full.n_head,
        n_hidden=20,
        head_size=None if full.head_size is None else 4,
    )
    model = small(config)
    text, other = [3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8]
    with torch.no_grad():
        if isinstance(model, Transformer):
            ours = model(Rows.from_lists([other]), Rows.from_lists([text]))
            theirs = reference_models.encoder_decoder(arrays(model), config, other, text)
        elif isinstance(model, GPT):
            ours, theirs = model(Rows.from_lists([text])), reference_models.gpt(arrays(model), config, text)
        else:
            ours, theirs = model(Rows.from_lists([text])), reference_models.bert(arrays(model), config, text)
    assert difference(ours[0], theirs) <= tolerance(ours)


def test_alibi_slopes_are_rounded_once() -> None:
    """Twelve heads, whose last slopes are no powers of two. Catches slopes made in float32 and widened afterwards, which
    are wrong in the eighth digit."""
    config = ModelConfig(family="gpt", vocab_size=VOCABULARY, n_layer=1, n_head=12, n_embd=24, positions="alibi")
    model, text = small(config), [3, 1, 4, 1, 5]
    logits = model(Rows.from_lists([text]))
    assert difference(logits[0], reference_models.gpt(arrays(model), config, text)) <= EXACT


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_of_whole_models(smoothing: float) -> None:
    """Summed over what has a label, of the logits NumPy finds. Catches a loss whose hidden states are not those of
    `forward` (a head left out, another output layer)."""
    text, labels = [3, 1, 4, 1, 5], [1, 4, 1, 5, 9]
    rows, targets = Rows.from_lists([text]), torch.tensor([labels])
    common: dict[str, Any] = {"vocab_size": VOCABULARY, "n_layer": 1, "n_head": 2, "n_embd": 8, "tie_output": False}
    gpt = small(ModelConfig(family="gpt", **common))
    bert = small(ModelConfig(family="bert", **common))
    translator = small(ModelConfig(family="transformer", **common))
    assert isinstance(gpt, GPT) and isinstance(bert, BERT) and isinstance(translator, Transformer)
    pairs = [
        (gpt.loss(rows, targets, smoothing=smoothing), reference_models.gpt(arrays(gpt), gpt.config, text)),
        (bert.loss(rows, targets, smoothing=smoothing), reference_models.bert(arrays(bert), bert.config, text)),
        (
            translator.loss(rows, rows, targets, smoothing=smoothing),
            reference_models.encoder_decoder(arrays(translator), translator.config, text, text),
        ),
    ]
    for ours, logits in pairs:
        assert float(ours.detach()) == pytest.approx(
            reference.cross_entropy(logits, labels, smoothing).sum(), abs=EXACT
        )
