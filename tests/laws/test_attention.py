"""The equation and the fused kernel are the same function; listening changes no number; source and target may differ in
length."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.nn import (
    AttentionMask,
    MultiHeadAttention,
    Rows,
    attention,
    attention_weights,
    fused_attention,
    record,
)
from glassformer.nn.attention import AttentionKernel
from tests.counts import count
from tests.laws.zoo import FAMILIES, Model, cases, gap, lay_out, run, small, some_pairs

attention_module = importlib.import_module("glassformer.nn.attention")  # its name in the package is the function's
PAIRS = some_pairs([(5, 3), (2, 4), (4, 1)])


CASES = {
    "batch": st.integers(1, 3),
    "groups": st.integers(1, 3),
    "shared": st.integers(1, 3),
    "lengths": st.tuples(st.integers(1, 9), st.integers(1, 9)),
    "sizes": st.tuples(st.integers(1, 9), st.integers(1, 9)),
    "scaled": st.booleans(),
    "seen": st.sampled_from(["all", "causal", "mask", "causal and mask", "bias", "causal and bias", "mask and bias"]),
    "dtype": st.sampled_from([torch.float64, torch.float32]),
    "seed": st.integers(0, 2**31),
}


def check_kernel(
    kernel: AttentionKernel,
    *,
    batch: int,
    groups: int,
    shared: int,
    lengths: tuple[int, int],
    sizes: tuple[int, int],
    scaled: bool,
    seen: str,
    dtype: torch.dtype,
    seed: int,
) -> None:
    """The kernel and the equation agree in values and gradients; also where a query may see nothing, which gives zeros."""
    (targets, sources), (head_size, value_size) = lengths, sizes
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()

    causal = "causal" in seen
    if causal:
        sources = targets
    q = draw(batch, groups * shared, targets, head_size)
    k, v = draw(batch, groups, sources, head_size), draw(batch, groups, sources, value_size)
    mask = torch.rand(batch, 1, targets, sources, generator=generator) < 0.6 if "mask" in seen else None
    bias = draw(batch, groups * shared, targets, sources).detach() if "bias" in seen else None
    given_mask = AttentionMask(mask, causal, bias)
    fused = kernel(q, k, v, given_mask, scaled=scaled)
    many_k, many_v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    whole_mask = given_mask.to_tensor(targets, sources, q.device)
    if bias is None:
        explicit = attention(q, many_k, many_v, whole_mask, scaled=scaled)
    else:
        scores = attention_module.attention_scores(q, many_k, scaled=scaled) + bias
        explicit = attention_module.masked_softmax(scores, whole_mask) @ many_v
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(fused, explicit, atol=tolerance, rtol=tolerance)
    upstream = torch.randn(fused.shape, generator=generator, dtype=dtype)
    of_fused = torch.autograd.grad(fused, (q, k, v), upstream, retain_graph=True)
    of_explicit = torch.autograd.grad(explicit, (q, k, v), upstream)
    for a, b in zip(of_fused, of_explicit, strict=True):
        torch.testing.assert_close(a, b, atol=10 * tolerance, rtol=10 * tolerance)


@settings(max_examples=count(fast=40, soak=2000), deadline=None)
@given(**CASES)
def test_fused_is_the_equation(**case: Any) -> None:
    """Caught: a scale left out, a mask that is inverted, key heads given to the wrong query heads (interleaved instead of
    consecutive), NaN from an empty softmax."""
    check_kernel(fused_attention, **case)


def test_a_query_that_may_see_nothing_gets_nothing() -> None:
    q, k, v = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 3, 4), torch.randn(1, 1, 3, 4)
    mask = torch.tensor([[[[True, False, True], [False, False, False]]]])
    for result in (attention(q, k, v, mask), fused_attention(q, k, v, AttentionMask(mask))):
        assert torch.equal(result[0, 0, 1], torch.zeros(4))
    assert attention_weights(q, k, mask).sum(-1).tolist() == [[[pytest.approx(1.0), 0.0]]]


def listening_gap(model: Model) -> tuple[float, float]:
    """Logits and gradients with every tap recorded (so every attention takes the explicit path), beside those of the
    model left alone (fused); rows padded, then packed."""
    largest = [0.0, 0.0]
    for how in ("right", "packed"):
        source, _ = lay_out([s for s, _ in PAIRS], how, extra=1, group=2)  # type: ignore[arg-type]
        target, _ = lay_out([t for _, t in PAIRS], how, extra=1, group=2)  # type: ignore[arg-type]

        def results(source: Rows = source, target: Rows = target) -> tuple[Tensor, list[Tensor]]:
            model.zero_grad()
            logits = run(model, source, target)[target.real]
            logits.square().sum().backward()
            return logits.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

        alone, alone_gradients = results()
        with record(model, "*") as seen:
            watched, watched_gradients = results()
        assert any(name.endswith("weights") for name in seen)
        largest[0] = max(largest[0], gap([alone], [watched]))
        scale = max(float(g.abs().max()) for g in alone_gradients)
        largest[1] = max(largest[1], gap(alone_gradients, watched_gradients) / scale)
    return largest[0], largest[1]


@pytest.mark.parametrize(("family", "changes"), cases(*FAMILIES))
def test_recorded_is_unrecorded_and_explicit_is_fused(family: str, changes: dict[str, Any]) -> None:
    """Caught: see `test_two_paths_that_differ_are_caught`."""
    logits, gradients = listening_gap(small(family, **changes))
    assert logits <= 1e-12
    assert gradients <= 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_two_paths_that_differ_are_caught(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An explicit path that forgets the scale."""
    right = attention_module.attention_scores
    monkeypatch.setattr(attention_module, "attention_scores", lambda q, k, scaled=True: right(q, k, scaled=False))
    assert listening_gap(small(family))[0] > 1e-3


def test_weights_are_a_distribution_over_what_is_seen() -> None:
    """Each real query's recorded weights are at least 0, sum to 1, and are exactly 0 on padding and on the future."""
    model = small("transformer", n_kv_head=2)
    source, target = Rows.from_lists([[1, 2, 3], [4, 5, 6, 7, 8]]), Rows.from_lists([[1, 2, 3, 4], [5, 6]])
    with record(model, "*.weights") as seen:
        model(source, target)
    assert len(seen) == 2 + 2 * 2
    for name, weights in seen.items():
        queries, keys = (source, source) if name.startswith("encoder") else (target, target)
        keys = source if ".cross." in name else keys
        assert weights.shape == (2, 6, queries.shape[1], keys.shape[1])
        real = weights.transpose(1, 2)[queries.real]
        assert (real >= 0).all()
        torch.testing.assert_close(real.sum(-1), torch.ones_like(real[..., 0]))
        allowed = keys.real[:, None, :].expand(2, queries.shape[1], keys.shape[1])
        if keys is target:
            allowed = allowed & torch.ones(queries.shape[1], keys.shape[1]).tril().bool()
        assert weights.transpose(1, 2)[queries.real][~allowed[queries.real][:, None].expand_as(real)].eq(0).all()


@pytest.mark.parametrize(("targets", "sources"), [(1, 7), (7, 1), (3, 8), (8, 3)])
def test_source_and_target_of_different_lengths(targets: int, sources: int) -> None:
    """Caught: keys reshaped with the query's length."""
    mha = MultiHeadAttention(24, 6, n_kv_head=2, value_size=5).double()
    x, y = torch.randn(2, targets, 24).double(), torch.randn(2, sources, 24).double()
    out = mha(x, AttentionMask(), mha.keys_values(y))
    assert out.shape == (2, targets, 24)
    for b in range(2):
        one = mha(x[b : b + 1, :1], AttentionMask(), mha.keys_values(y[b : b + 1]))
        torch.testing.assert_close(out[b, 0], one[0, 0], atol=1e-12, rtol=0)


def test_attention_dropout_acts_on_both_paths() -> None:
    """While training, dropout changes the result whether or not someone listens; while evaluating it never does."""
    mha = MultiHeadAttention(24, 6, dropout=0.5)
    x = torch.randn(2, 9, 24)
    for watched in (False, True):
        listening = record(mha, "weights") if watched else record(mha, "q")
        with listening, torch.no_grad():
            mha.train()
            assert not torch.equal(mha(x, AttentionMask()), mha(x, AttentionMask()))
            mha.eval()
            assert torch.equal(mha(x, AttentionMask()), mha(x, AttentionMask()))
