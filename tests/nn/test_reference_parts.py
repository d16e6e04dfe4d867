"""Parts against NumPy from the formulas, and their gradients against finite differences.

Every comparison starts from weights that are all random, norms and biases too: a bias that is zero or a norm that is one
hides the difference between a part that is there and a part that is not."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.nn import loss as loss_module
from glassformer.nn.attention import MultiHeadAttention, attention, fused_attention
from glassformer.nn.feedforward import MLP, GatedMLP
from glassformer.nn.loss import IGNORE, linear_cross_entropy
from glassformer.nn.masks import AttentionMask, self_mask
from glassformer.nn.norms import BatchNorm, LayerNorm, RMSNorm
from glassformer.nn.positions import RelativePositions, Rotary, alibi_bias, alibi_slopes, sinusoids
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record
from tests import reference
from tests.counts import count
from tests.scrambled import CLOSE, EXACT, arrays, difference, normal, scramble

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
        mask=None if kind == "cross" else reference.visible(length, causal, window),
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
    mask = self_mask(rows, causal=causal, window=window).to_tensor(6, 6, torch.device("cpu"))
    assert mask is not None
    assert np.array_equal(mask.reshape(6, 6).numpy(), reference.visible(6, causal, window))


@pytest.mark.parametrize("n_head", range(1, 26))
def test_alibi_slopes(n_head: int) -> None:
    assert alibi_slopes(n_head) == pytest.approx(reference.alibi_slopes(n_head), rel=1e-15)


@pytest.mark.parametrize("causal", [False, True])
def test_buckets_of_relative_positions(causal: bool) -> None:
    """Every distance up to far beyond the last bucket, against whole numbers and against transformers' T5. Broken variants: the
    two directions changed over; a logarithm that falls short of a whole number at the edge of a bucket (16, 32, 64)."""
    from transformers.models.t5.modeling_t5 import T5Attention

    after = torch.arange(-300, 301)
    found = RelativePositions(2, causal=causal).buckets(after[None, None])[0, 0]
    assert found.tolist() == [reference.bucket(int(d), causal) for d in after]
    assert torch.equal(found, T5Attention._relative_position_bucket(after, bidirectional=not causal))


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
    x = normal(len(positions), 2 * half, seed=seed)
    ours = rotary.rotation(torch.tensor([positions]), max(positions) + 1).rotate(x[None, None])
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
