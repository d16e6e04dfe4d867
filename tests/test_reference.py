"""The package against three independent witnesses: NumPy from the formulas, `torch.nn`, and Hugging Face.

Every comparison starts from weights that are all random, norms and biases too: a bias that is zero or a norm that is one
hides the difference between a part that is there and a part that is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models import BERT, GPT, PRESETS, Transformer, build_model, preset
from glassformer.nn import loss as loss_module
from glassformer.nn.attention import MultiHeadAttention, attention, fused_attention
from glassformer.nn.block import Block, BlockInputs, DecoderLayer, EncoderLayer
from glassformer.nn.feedforward import MLP, GatedMLP
from glassformer.nn.loss import IGNORE, linear_cross_entropy
from glassformer.nn.masks import AttentionMask, cross_mask, self_mask
from glassformer.nn.norms import BatchNorm, LayerNorm, RMSNorm
from glassformer.nn.positions import Rotary, alibi_bias, alibi_slopes, sinusoids
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record
from tests import reference
from tests.counts import count

EXACT = 1e-10  # float64, the same formula in another order
CLOSE = 1e-5  # float32


def scramble(model: nn.Module, seed: int = 0) -> None:
    """Every parameter and every running statistic random; scales around one, so that nothing dies out."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = dict(model.named_parameters())
    state |= {name: tensor for name, tensor in model.named_buffers() if "running" in name}
    with torch.no_grad():
        for name, tensor in state.items():
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            if name.endswith("running_variance"):
                tensor.copy_(0.5 + noise.abs())
            elif name.endswith("weight") and tensor.ndim == 1:  # a norm's scale
                tensor.copy_(1.0 + 0.2 * noise)
            else:
                tensor.copy_(0.3 * noise)


def arrays(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}


def difference(ours: Tensor, theirs: Tensor | np.ndarray) -> float:
    other = torch.as_tensor(theirs).detach()
    assert ours.shape == other.shape
    return float((ours.detach().double() - other.double()).abs().max())


# -------------------------------------------------------------------------------------------------- the parts, in NumPy


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


sizes = st.integers(1, 6)
seeds = st.integers(0, 10**6)
tries = settings(max_examples=count(fast=25, soak=300), deadline=None)


@tries
@given(
    seed=seeds,
    queries=sizes,
    keys=sizes,
    width=sizes,
    value_width=sizes,
    masked=st.booleans(),
    scaled=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_attention(
    seed: int, queries: int, keys: int, width: int, value_width: int, masked: bool, scaled: bool, dtype: torch.dtype
) -> None:
    """Catches a softmax over the wrong axis, a scale by the width of the values, and a mask read the other way round."""
    shapes = [(queries, width), (keys, width), (keys, value_width)]
    q, k, v = (normal(*shape, seed=seed + i) for i, shape in enumerate(shapes))
    mask = normal(queries, keys, seed=seed + 3) > 0 if masked else None
    if mask is not None:
        mask[:, 0] = True
    theirs = reference.attention(q.numpy(), k.numpy(), v.numpy(), None if mask is None else mask.numpy(), scaled=scaled)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    near = EXACT if dtype == torch.float64 else CLOSE
    ours = attention(q, k, v, mask, scaled=scaled)
    assert ours.dtype == dtype
    assert difference(ours, theirs) <= near
    attention_mask = AttentionMask() if mask is None else AttentionMask(mask[None, None])
    fused = fused_attention(q[None, None], k[None, None], v[None, None], attention_mask, scaled=scaled)
    assert difference(fused[0, 0], theirs) <= near


@tries
@given(
    seed=seeds,
    length=sizes,
    other=sizes,
    groups=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    half=st.integers(1, 3),
    value_size=st.integers(1, 5),
    kind=st.sampled_from(["self", "causal", "window", "cross"]),
    positions=st.sampled_from(["none", "rotary", "alibi"]),
    qk_norm=st.booleans(),
    bias=st.booleans(),
    scaled=st.booleans(),
    watched=st.booleans(),
)
def test_multi_head_attention(
    seed: int,
    length: int,
    other: int,
    groups: int,
    kv_heads: int,
    half: int,
    value_size: int,
    kind: str,
    positions: str,
    qk_norm: bool,
    bias: bool,
    scaled: bool,
    watched: bool,
) -> None:
    """Catches query heads that take turns over key heads where they should be grouped, a norm after the rotation,
    interleaved rotary pairs, slopes in the wrong order, a window off by one; on the fused and on the explicit path."""
    n_embd, n_head = 10, groups * kv_heads
    mha = MultiHeadAttention(
        n_embd,
        n_head,
        n_kv_head=kv_heads,
        head_size=2 * half,
        value_size=value_size,
        bias=bias,
        qk_norm=qk_norm,
        scaled=scaled,
    ).double()
    scramble(mha, seed)
    x, memory = normal(1, length, n_embd, seed=seed), normal(1, other, n_embd, seed=seed + 1)
    if kind == "cross":
        positions = "none"  # positions of two texts have no distance
    rows = Rows.whole(torch.zeros(1, length, dtype=torch.long))
    window = 2 if kind == "window" else None
    causal = kind in ("causal", "window")
    attention_mask = AttentionMask() if kind == "cross" else self_mask(rows, causal=causal, window=window)
    if positions == "alibi":
        slopes = torch.tensor(alibi_slopes(n_head), dtype=torch.float64)
        attention_mask = replace(attention_mask, bias=alibi_bias(slopes, rows.positions, rows.positions))
    rotation = Rotary(length, 2 * half).double().rotation(rows.positions) if positions == "rotary" else None
    with record(mha, "weights") if watched else nullcontext():
        ours = mha(x, attention_mask, mha.keys_values(memory) if kind == "cross" else None, rotation=rotation)
    theirs = reference.multi_head_attention(
        x[0].numpy(),
        (memory if kind == "cross" else x)[0].numpy(),
        arrays(mha),
        n_head=n_head,
        n_kv_head=kv_heads,
        mask=None if kind == "cross" else reference.sight(length, causal, window),
        scaled=scaled,
        rotary_base=10000.0 if positions == "rotary" else None,
        alibi=positions == "alibi",
        qk_norm_eps=1e-5 if qk_norm else None,
    )
    assert difference(ours[0], theirs) <= EXACT


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 3, 100])
def test_a_window_counts_the_keys_seen(causal: bool, window: int) -> None:
    """Self included: a window of 1 sees itself alone. Catches the off-by-one that sees one key more."""
    rows = Rows.whole(torch.zeros(1, 6, dtype=torch.long))
    mask = self_mask(rows, causal=causal, window=window).explicit(6, 6, torch.device("cpu"))
    assert mask is not None
    assert np.array_equal(mask.reshape(6, 6).numpy(), reference.sight(6, causal, window))


@pytest.mark.parametrize("n_head", range(1, 26))
def test_alibi_slopes(n_head: int) -> None:
    assert alibi_slopes(n_head) == pytest.approx(reference.alibi_slopes(n_head), rel=1e-15)


def test_alibi_slopes_as_published() -> None:
    """Eight heads: 1/2, 1/4, ..., 1/256 (Press et al. 2022, section 3)."""
    assert alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


@tries
@given(length=st.integers(1, 40), half=st.integers(1, 10), base=st.sampled_from([100.0, 10000.0, 500000.0]))
def test_sinusoids(length: int, half: int, base: float) -> None:
    assert difference(sinusoids(length, 2 * half, base), reference.sinusoids(length, 2 * half, base)) <= EXACT


@tries
@given(seed=seeds, half=st.integers(1, 6), positions=st.lists(st.integers(0, 5000), min_size=1, max_size=6))
def test_rotary(seed: int, half: int, positions: list[int]) -> None:
    """Any positions in any order, far past the length the table was made for."""
    rotary = Rotary(4, 2 * half).double()
    rotary.grow(max(positions) + 1)
    x = normal(len(positions), 2 * half, seed=seed)
    ours = rotary.rotation(torch.tensor([positions])).turn(x[None, None])
    assert difference(ours[0, 0], reference.rotate(x.numpy(), positions)) <= EXACT


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_norms(bias: bool, eps: float) -> None:
    """The large eps catches one that is added outside the root, or to the norm's other term."""
    x = normal(2, 5, 7, seed=1) * 3 + 1
    layer, rms = LayerNorm(7, bias=bias, eps=eps).double(), RMSNorm(7, eps=eps).double()
    scramble(layer)
    scramble(rms)
    p = arrays(layer)
    assert difference(layer(x), reference.layer_norm(x.numpy(), p["weight"], p.get("bias"), eps)) <= EXACT
    assert difference(rms(x), reference.rms_norm(x.numpy(), arrays(rms)["weight"], eps)) <= EXACT


def test_batch_norm() -> None:
    """Statistics of the real tokens alone, in training; of the past, afterwards. And the same as `nn.BatchNorm1d` on the
    real tokens in a list, running averages included. Catches padding that is counted in the mean."""
    ours, theirs = BatchNorm(4).double(), nn.BatchNorm1d(4).double()
    scramble(ours)
    with torch.no_grad():
        theirs.load_state_dict(
            {
                "weight": ours.weight,
                "bias": ours.bias,
                "running_mean": ours.running_mean,
                "running_var": ours.running_variance,
                "num_batches_tracked": torch.tensor(0),
            }
        )
    x = normal(3, 5, 4, seed=2) * 2 + 1
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]).bool()
    p = arrays(ours)
    y = ours(x, real)
    assert difference(y[real], reference.batch_norm(x[real].numpy(), p["weight"], p["bias"], 1e-5)) <= EXACT
    assert difference(y[real], theirs(x[real])) <= EXACT
    assert difference(ours.running_mean, theirs.running_mean) <= EXACT  # type: ignore[arg-type]
    assert difference(ours.running_variance, theirs.running_var) <= EXACT  # type: ignore[arg-type]
    ours.eval()
    theirs.eval()
    p = arrays(ours)
    expected = reference.norm(x[real].numpy(), p, "batch", 1e-5)
    assert difference(ours(x, real)[real], expected) <= EXACT
    assert difference(ours(x, real)[real], theirs(x[real])) <= EXACT


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "relu2", "silu", "swiglu", "geglu", "geglu_tanh"])
@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward(activation: str, bias: bool) -> None:
    """Catches a gate and an up projection that are exchanged, and one GELU in place of the other."""
    kind = GatedMLP if activation in ("swiglu", "geglu", "geglu_tanh") else MLP
    mlp = kind(4, 9, activation=activation, bias=bias).double()
    scramble(mlp)
    x = normal(2, 5, 4) * 2
    assert difference(mlp(x), reference.feed_forward(x.numpy(), arrays(mlp), activation)) <= EXACT


@tries
@given(
    seed=seeds,
    tokens=st.integers(1, 8),
    vocabulary=st.integers(1, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    bias=st.booleans(),
)
def test_loss(seed: int, tokens: int, vocabulary: int, smoothing: float, bias: bool) -> None:
    """Catches smoothing that spreads over the wrong words only (ε/(V−1)), and ignored positions that still count."""
    x, weight = normal(1, tokens, 5, seed=seed), normal(vocabulary, 5, seed=seed + 1)
    b = normal(vocabulary, seed=seed + 2) if bias else None
    labels = torch.randint(vocabulary, (1, tokens), generator=torch.Generator().manual_seed(seed))
    labels[0, ::3] = IGNORE
    counted = (labels != IGNORE)[0]
    ours = linear_cross_entropy(x, weight, labels, bias=b, smoothing=smoothing)
    logits = x[0].numpy() @ weight.numpy().T + (0 if b is None else b.numpy())
    theirs = reference.cross_entropy(logits[counted.numpy()], labels[0][counted].tolist(), smoothing).sum()
    assert abs(float(ours) - float(theirs)) <= EXACT


# -------------------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("masked", [True, False])
def test_gradient_of_attention(masked: bool) -> None:
    q, k, v = (normal(1, 2, 4, 3, seed=s).requires_grad_() for s in range(3))
    mask = torch.ones(4, 4).tril().bool() if masked else None
    assert torch.autograd.gradcheck(lambda q, k, v: attention(q, k, v, mask), (q, k, v))
    attention_mask = AttentionMask(causal=masked)
    assert torch.autograd.gradcheck(lambda q, k, v: fused_attention(q, k, v, attention_mask), (q, k, v))


def test_gradient_of_grouped_attention() -> None:
    mha = MultiHeadAttention(4, 4, n_kv_head=2, head_size=2, qk_norm=True).double()
    scramble(mha)
    rotation = Rotary(3, 2).double().rotation(torch.arange(3)[None])
    x = normal(1, 3, 4).requires_grad_()
    weights = tuple(mha.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: mha(x, AttentionMask(causal=True), rotation=rotation), (x, *weights))


@pytest.mark.parametrize("norm", [LayerNorm(4), LayerNorm(4, bias=False), RMSNorm(4), BatchNorm(4)])
def test_gradient_of_norms(norm: nn.Module) -> None:
    norm = norm.double()
    scramble(norm)
    x = normal(2, 3, 4).requires_grad_()
    real = torch.tensor([[True, True, True], [True, False, False]])
    assert torch.autograd.gradcheck(lambda x, *_: norm(x, real), (x, *norm.parameters()))


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "relu2", "silu", "swiglu", "geglu", "geglu_tanh"])
def test_gradient_of_feed_forward(activation: str) -> None:
    mlp = (GatedMLP if activation in ("swiglu", "geglu", "geglu_tanh") else MLP)(3, 4, activation=activation).double()
    scramble(mlp)
    assert torch.autograd.gradcheck(lambda x, *_: mlp(x), (normal(1, 2, 3).requires_grad_(), *mlp.parameters()))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [5, 2**23])
def test_gradient_of_the_loss(smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss makes its gradients by hand, a chunk of positions at a time; with one position a chunk and with all in one.
    Catches a chunk whose gradient overwrites its neighbour's, and a smoothing that is in the loss but not in the gradient."""
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", chunk)
    x, weight, bias = (normal(*shape).requires_grad_() for shape in [(2, 3, 4), (5, 4), (5,)])
    labels = torch.tensor([[0, IGNORE, 4], [2, 2, 1]])

    def loss(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return linear_cross_entropy(x, weight, labels, bias=bias, smoothing=smoothing)

    assert torch.autograd.gradcheck(loss, (x, weight, bias))


# ------------------------------------------------------------------------------------------------- whole models, in NumPy


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
    "positions": st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "none"]),
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
VOCABULARY = 13


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


def small(config: ModelConfig, seed: int = 0) -> Transformer | GPT | BERT:
    model = build_model(config).double().eval()
    scramble(model, seed)
    return model


@whole
@given(config=configs("gpt"), texts=sentences(2), seed=seeds)
def test_gpt(config: ModelConfig, texts: list[list[int]], seed: int) -> None:
    """Two sentences in one batch, padded; NumPy sees each alone."""
    model = small(config, seed)
    with torch.no_grad():
        logits = model(Rows.from_lists(texts))
    for text, row in zip(texts, logits, strict=True):
        assert difference(row[: len(text)], reference.gpt(arrays(model), config, text)) <= tolerance(row)


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
        theirs = reference.encoder_decoder(arrays(model), config, source, target)
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
        theirs = reference.bert(arrays(model), config, text, kinds)
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
            theirs = reference.encoder_decoder(arrays(model), config, other, text)
        elif isinstance(model, GPT):
            ours, theirs = model(Rows.from_lists([text])), reference.gpt(arrays(model), config, text)
        else:
            ours, theirs = model(Rows.from_lists([text])), reference.bert(arrays(model), config, text)
    assert difference(ours[0], theirs) <= tolerance(ours)


def test_alibi_slopes_are_rounded_once() -> None:
    """Twelve heads, whose last slopes are no powers of two. Catches slopes made in float32 and widened afterwards, which
    are wrong in the eighth digit."""
    config = ModelConfig(family="gpt", vocab_size=VOCABULARY, n_layer=1, n_head=12, n_embd=24, positions="alibi")
    model, text = small(config), [3, 1, 4, 1, 5]
    logits = model(Rows.from_lists([text]))
    assert difference(logits[0], reference.gpt(arrays(model), config, text)) <= EXACT


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
        (gpt.loss(rows, targets, smoothing=smoothing), reference.gpt(arrays(gpt), gpt.config, text)),
        (bert.loss(rows, targets, smoothing=smoothing), reference.bert(arrays(bert), bert.config, text)),
        (
            translator.loss(rows, rows, targets, smoothing=smoothing),
            reference.encoder_decoder(arrays(translator), translator.config, text, text),
        ),
    ]
    for ours, logits in pairs:
        assert float(ours.detach()) == pytest.approx(
            reference.cross_entropy(logits, labels, smoothing).sum(), abs=EXACT
        )


# --------------------------------------------------------------------------------------------------------------- torch.nn


def from_torch(layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> dict[str, Tensor]:
    """The weights of a layer of `torch.nn`, under our names. Its norms are numbered in the order of use."""
    has_cross = isinstance(layer, nn.TransformerDecoderLayer)
    norms = ["attention_norm", "cross_norm", "mlp_norm"] if has_cross else ["attention_norm", "mlp_norm"]
    table = {"linear1": "mlp.up", "linear2": "mlp.down", "self_attn": "attention", "multihead_attn": "cross"}
    table |= {f"norm{i}": name for i, name in enumerate(norms, 1)}
    out = {}
    for name, tensor in layer.state_dict().items():
        first, _, rest = name.partition(".")
        if rest.startswith("in_proj_"):
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                out[f"{table[first]}.{part}.{rest.removeprefix('in_proj_')}"] = piece
        else:
            out[f"{table[first]}.{rest.replace('out_proj', 'out')}"] = tensor
    return out


def our_layer(
    width: int, n_head: int, hidden: int, *, cross: bool, pre_norm: bool, activation: str, bias: bool
) -> Block:
    return (DecoderLayer if cross else EncoderLayer)(
        MultiHeadAttention(width, n_head, bias=bias),
        MLP(width, hidden, activation=activation, bias=bias),
        lambda: LayerNorm(width, bias=bias),
        cross=MultiHeadAttention(width, n_head, bias=bias) if cross else None,
        pre_norm=pre_norm,
    ).double()


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cross", [True, False])
def test_layers_of_torch(pre_norm: bool, activation: str, bias: bool, cross: bool) -> None:
    """`nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer` with our weights, and the gradients of their inputs.
    Catches a residual taken after the norm, and norms in another order."""
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    theirs = kind(
        12,
        3,
        20,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=pre_norm,
        bias=bias,
        dtype=torch.float64,
    )
    scramble(theirs)
    ours = our_layer(12, 3, 20, cross=cross, pre_norm=pre_norm, activation=activation, bias=bias)
    ours.load_state_dict(from_torch(theirs), strict=True)
    x, memory = normal(2, 5, 12).requires_grad_(), normal(2, 7, 12, seed=1).requires_grad_()
    lengths, source_lengths = [5, 3], [4, 7]
    rows = Rows.padded(torch.zeros(2, 5, dtype=torch.long), lengths)
    source = Rows.padded(torch.zeros(2, 7, dtype=torch.long), source_lengths)
    if cross:
        view = BlockInputs(self_mask(rows, causal=True), cross_mask(rows, source))
        y = ours(x, view, ours.cross.keys_values(memory))
        future = torch.ones(5, 5).triu(1).bool()
        z = theirs(x, memory, tgt_mask=future, tgt_key_padding_mask=~rows.real, memory_key_padding_mask=~source.real)
    else:
        y = ours(x, BlockInputs(self_mask(rows, causal=False)))
        z = theirs(x, src_key_padding_mask=~rows.real)
    assert difference(y[rows.real], z[rows.real]) <= EXACT
    inputs = (x, memory) if cross else (x,)
    weights = normal(*x.shape, seed=2) * rows.real[..., None]
    for a, b in zip(
        torch.autograd.grad((y * weights).sum(), inputs), torch.autograd.grad((z * weights).sum(), inputs), strict=True
    ):
        assert difference(a, b) <= EXACT


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("pre_norm", [True, False])
def test_transformer_of_torch(pre_norm: bool) -> None:
    """`nn.Transformer` whole, its two final norms included, as our encoder and decoder."""
    theirs = nn.Transformer(12, 3, 2, 2, 20, dropout=0.0, batch_first=True, norm_first=pre_norm, dtype=torch.float64)
    scramble(theirs)
    config = ModelConfig(
        vocab_size=VOCABULARY,
        n_layer=2,
        n_head=3,
        n_embd=12,
        n_hidden=20,
        pre_norm=pre_norm,
        positions="none",
        dropout=0.0,
        scale_embeddings=False,
    )
    ours = small(config)
    assert isinstance(ours, Transformer)
    state = {name: tensor for name, tensor in ours.state_dict().items() if "embedding" in name}
    for side, stack in (("encoder", theirs.encoder), ("decoder", theirs.decoder)):
        state |= {f"{side}.norm.{name}": tensor for name, tensor in stack.norm.state_dict().items()}
        for i, layer in enumerate(stack.layers):
            state |= {f"{side}.{i}.{name}": tensor for name, tensor in from_torch(layer).items()}
    ours.load_state_dict(state, strict=True)
    source, target = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[6, 7, 8]])
    table = state["embedding.weight"]
    future = torch.ones(3, 3).triu(1).bool()
    hidden = theirs(table[source], table[target], tgt_mask=future)
    assert difference(ours(Rows.whole(source), Rows.whole(target)), hidden @ table.T) <= EXACT


# ---------------------------------------------------------------------------------- whole models of other people, by name


def renamed(state: Mapping[str, Tensor], table: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    """Each name through the first row of the table that matches all of it; a name that no row matches is an error."""
    out = {}
    for name, tensor in state.items():
        for pattern, ours in table:
            if re.fullmatch(pattern, name):
                if ours:
                    out[re.sub(pattern, ours, name)] = tensor
                break
        else:
            raise AssertionError(f"no row for {name}")
    return out


GPT2_NAMES = [
    (r"transformer\.wte\.weight", "embedding.weight"),
    (r"transformer\.wpe\.weight", "positions.weight"),
    (r"transformer\.h\.(\d+)\.ln_1\.(\w+)", r"decoder.\1.attention_norm.\2"),
    (r"transformer\.h\.(\d+)\.ln_2\.(\w+)", r"decoder.\1.mlp_norm.\2"),
    (r"transformer\.h\.(\d+)\.attn\.c_attn\.(\w+)", r"decoder.\1.attention.qkv.\2"),
    (r"transformer\.h\.(\d+)\.attn\.c_proj\.(\w+)", r"decoder.\1.attention.out.\2"),
    (r"transformer\.h\.(\d+)\.mlp\.c_fc\.(\w+)", r"decoder.\1.mlp.up.\2"),
    (r"transformer\.h\.(\d+)\.mlp\.c_proj\.(\w+)", r"decoder.\1.mlp.down.\2"),
    (r"transformer\.ln_f\.(\w+)", r"decoder.norm.\1"),
    (r"lm_head\.weight", ""),
]

MARIAN_NAMES = [
    (r"model\.shared\.weight", "embedding.weight"),
    (r".*embed_tokens\.weight|lm_head\.weight|.*embed_positions\.weight|final_logits_bias", ""),
    *(
        (rf"model\.(encoder|decoder)\.layers\.(\d+)\.{theirs}\.{t}_proj\.(\w+)", rf"\1.\2.{ours}.{o}.\3")
        for theirs, ours in [("self_attn", "attention"), ("encoder_attn", "cross")]
        for t, o in [("q", "query"), ("k", "key"), ("v", "value"), ("out", "out")]
    ),
    (r"model\.(\w+)\.layers\.(\d+)\.self_attn_layer_norm\.(\w+)", r"\1.\2.attention_norm.\3"),
    (r"model\.(\w+)\.layers\.(\d+)\.encoder_attn_layer_norm\.(\w+)", r"\1.\2.cross_norm.\3"),
    (r"model\.(\w+)\.layers\.(\d+)\.final_layer_norm\.(\w+)", r"\1.\2.mlp_norm.\3"),
    (r"model\.(\w+)\.layers\.(\d+)\.fc1\.(\w+)", r"\1.\2.mlp.up.\3"),
    (r"model\.(\w+)\.layers\.(\d+)\.fc2\.(\w+)", r"\1.\2.mlp.down.\3"),
]

BERT_NAMES = [
    (r"bert\.embeddings\.word_embeddings\.weight", "embedding.weight"),
    (r"bert\.embeddings\.position_embeddings\.weight", "positions.weight"),
    (r"bert\.embeddings\.token_type_embeddings\.weight", "type_embedding.weight"),
    (r"bert\.embeddings\.LayerNorm\.(\w+)", r"embedding_norm.\1"),
    (r"bert\.encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)\.(\w+)", r"encoder.\1.attention.\2.\3"),
    (r"bert\.encoder\.layer\.(\d+)\.attention\.output\.dense\.(\w+)", r"encoder.\1.attention.out.\2"),
    (r"bert\.encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.(\w+)", r"encoder.\1.attention_norm.\2"),
    (r"bert\.encoder\.layer\.(\d+)\.intermediate\.dense\.(\w+)", r"encoder.\1.mlp.up.\2"),
    (r"bert\.encoder\.layer\.(\d+)\.output\.dense\.(\w+)", r"encoder.\1.mlp.down.\2"),
    (r"bert\.encoder\.layer\.(\d+)\.output\.LayerNorm\.(\w+)", r"encoder.\1.mlp_norm.\2"),
    (r"bert\.pooler\.dense\.(\w+)", r"head.dense.\1"),
    (r"classifier\.(\w+)", r"head.label.\1"),
    (r"cls\.predictions\.transform\.dense\.(\w+)", r"head.dense.\1"),
    (r"cls\.predictions\.transform\.LayerNorm\.(\w+)", r"head.norm.\1"),
    (r"cls\.predictions\.bias", "head.bias"),
    (r"cls\.predictions\.decoder\.\w+", ""),
]


def split_gpt2(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """GPT-2 keeps its matrices transposed, and query, key and value side by side."""
    out = {}
    for name, tensor in renamed(state, GPT2_NAMES).items():
        if name.startswith("decoder.") and tensor.ndim == 2:
            tensor = tensor.T
        if ".qkv." in name:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3, dim=0), strict=True):
                out[name.replace("qkv", part)] = piece
        else:
            out[name] = tensor
    return out


def loaded(config: ModelConfig, state: Mapping[str, Tensor]) -> Transformer | GPT | BERT:
    model = build_model(config).eval()
    model.load_state_dict(dict(state), strict=True)
    return model


SHORT, LONG = [3, 1, 4], [1, 5, 9, 2, 6, 5, 3]
TOKENS = torch.tensor([[*SHORT, 0, 0, 0, 0], LONG])
REAL = torch.tensor([[1, 1, 1, 0, 0, 0, 0], [1] * 7])


@pytest.mark.slow
@pytest.mark.parametrize("attend", ["eager", "sdpa"])
def test_gpt2_of_hugging_face(attend: str) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=16,
            n_embd=16,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()
    theirs.set_attn_implementation(attend)
    scramble(theirs)
    ours = loaded(
        replace(preset("gpt2"), vocab_size=VOCABULARY, block_size=16, n_layer=2, n_head=4, n_embd=16),
        split_gpt2(theirs.state_dict()),
    )
    logits = ours(Rows.from_lists([SHORT, LONG]))
    expected = theirs(TOKENS, attention_mask=REAL).logits
    assert difference(logits[REAL.bool()], expected[REAL.bool()]) <= CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_marian_of_hugging_face(activation: str) -> None:
    """Marian's table of positions is half-split, the paper's interleaved: ours is put in its place."""
    from transformers import MarianConfig, MarianMTModel

    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=16,
            d_model=16,
            encoder_layers=2,
            decoder_layers=3,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=20,
            decoder_ffn_dim=20,
            activation_function=activation,
            scale_embedding=True,
            pad_token_id=0,
            eos_token_id=0,
            forced_eos_token_id=0,
            decoder_start_token_id=0,
        )
    ).eval()
    scramble(theirs)
    with torch.no_grad():
        for stack in (theirs.model.encoder, theirs.model.decoder):
            stack.embed_positions.weight.copy_(sinusoids(16, 16))
    config = replace(
        preset("transformer-base"),
        vocab_size=VOCABULARY,
        block_size=16,
        n_layer=3,
        n_encoder_layer=2,
        n_head=4,
        n_embd=16,
        n_hidden=20,
        activation=activation,  # type: ignore[arg-type]
    )
    ours = loaded(config, renamed(theirs.state_dict(), MARIAN_NAMES))
    target = torch.tensor([[7, 8, 9, 10], [2, 4, 6, 8]])
    logits = ours(Rows.from_lists([SHORT, LONG]), Rows.whole(target))
    expected = theirs(input_ids=TOKENS, attention_mask=REAL, decoder_input_ids=target).logits
    assert difference(logits, expected) <= CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("head", ["mlm", "classify", "tag"])
def test_bert_of_hugging_face(head: str) -> None:
    """Token types, the norm on the embeddings, and each head. Catches a masked head without its norm or bias, and a class
    read off another token than the first."""
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification

    kind = {"mlm": BertForMaskedLM, "classify": BertForSequenceClassification, "tag": BertForTokenClassification}[head]
    theirs = kind(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=20,
            max_position_embeddings=16,
            num_labels=3,  # type: ignore[call-arg]
        )
    ).eval()
    scramble(theirs)
    config = replace(
        preset("bert-base"),
        vocab_size=VOCABULARY,
        block_size=16,
        n_layer=2,
        n_head=4,
        n_embd=16,
        n_hidden=20,
        head=head,  # type: ignore[arg-type]
        n_label=0 if head == "mlm" else 3,
    )
    ours = loaded(config, renamed(theirs.state_dict(), BERT_NAMES))
    types = torch.tensor([[0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1]])
    logits = ours(Rows.from_lists([SHORT, LONG]), types)
    expected = theirs(TOKENS, attention_mask=REAL, token_type_ids=types).logits
    if head == "classify":
        assert difference(logits[:, 0], expected) <= CLOSE
    else:
        assert difference(logits[REAL.bool()], expected[REAL.bool()]) <= CLOSE
