"""Derivatives of any order, and torch's transforms: whichever way a number is asked for, it is the same number.

The references are autograd through the equations (every attention by `masked_attention`, the loss by torch's cross-entropy) and
finite differences of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from glassformer.nn import (
    IGNORE,
    AttentionMask,
    LayerNorm,
    MultiHeadAttention,
    Rows,
    higher_derivatives,
    linear_cross_entropy,
)
from glassformer.nn.attention import fused_attention, masked_attention
from tests.laws.zoo import FAMILIES, VOCABULARY, gap, run, small

SMOOTH: dict[str, Any] = {"activation": "gelu", "positions": "rotary"}  # without a kink: finite differences are exact
SHORT, LONG = 5, 30  # keys


def by_equation(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, *, scaled: bool = True, dropout: float = 0.0
) -> Tensor:
    return masked_attention(q, k, v, mask, scaled=scaled)


def rows_of(length: int) -> Rows:
    generator = torch.Generator().manual_seed(length)
    return Rows.padded(torch.randint(0, VOCABULARY, (2, length), generator=generator), [length, length - 2])


def sides(family: str, rows: Rows) -> tuple[Rows, ...]:
    return (rows, rows) if family == "transformer" else (rows,)


def hessian_vector(loss: Callable[[], Tensor], parameters: Sequence[Tensor], v: Sequence[Tensor]) -> list[Tensor]:
    with higher_derivatives():
        gradients = torch.autograd.grad(loss(), parameters, create_graph=True)
    along = sum((g * d).sum() for g, d in zip(gradients, v, strict=True))
    return [*gradients, *torch.autograd.grad(along, parameters)]  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [SHORT, LONG])
@pytest.mark.parametrize("family", FAMILIES)
def test_hessian_vector_products(family: str, length: int) -> None:
    """Through `model.loss`, against autograd through the equations and against finite differences of the gradient.
    Caught: a gradient made in the forward pass and taken for a constant; a tied table whose other use is counted twice."""
    model, rows = small(family, **SMOOTH), rows_of(length)
    labels = torch.where(rows.real, rows.tokens, IGNORE)
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(1)
    v = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in parameters]

    def ours() -> Tensor:
        return model.loss(*sides(family, rows), labels, smoothing=0.1)

    def gradients_at(step: float) -> tuple[Tensor, ...]:
        with torch.no_grad():
            for p, d in zip(parameters, v, strict=True):
                p.add_(d, alpha=step)
        found = torch.autograd.grad(ours(), parameters)
        with torch.no_grad():
            for p, d in zip(parameters, v, strict=True):
                p.sub_(d, alpha=step)
        return found

    found = hessian_vector(ours, parameters, v)
    step = 1e-6
    differences = [(a - b) / (2 * step) for a, b in zip(gradients_at(step), gradients_at(-step), strict=True)]
    scale = max(float(d.abs().max()) for d in differences)
    assert gap(found[len(parameters) :], differences) <= 1e-6 * scale

    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.kernel = by_equation

    def theirs() -> Tensor:
        logits = run(model, rows, rows).flatten(0, 1)
        return F.cross_entropy(logits, labels.flatten(), label_smoothing=0.1, reduction="sum")

    assert gap(found, hessian_vector(theirs, parameters, v)) <= 1e-10 * scale


@pytest.mark.parametrize("kind", ["all", "causal", "mask", "bias", "window", "shared heads"])
@pytest.mark.parametrize("length", [SHORT, LONG])
def test_attention_can_be_differentiated_twice(kind: str, length: int) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    keys = 2 if kind == "shared heads" else 4
    q, k, v = draw(2, 4, length, 6), draw(2, keys, length, 6), draw(2, keys, length, 3)
    mask = AttentionMask(
        torch.rand(2, 1, length, length, generator=generator) < 0.7 if kind == "mask" else None,
        causal=kind in ("causal", "window"),
        bias=draw(1, 4, length, length).detach() if kind == "bias" else None,
        window=3 if kind == "window" else None,
    )
    upstream, direction = draw(2, 4, length, 3), [torch.randn_like(t) for t in (q, k, v)]
    results = []
    for kernel in (fused_attention, by_equation):
        with higher_derivatives():
            out = kernel(q, k, v, mask)
        first = torch.autograd.grad(out, (q, k, v), upstream, create_graph=True)
        along = sum((g * d).sum() for g, d in zip(first, direction, strict=True))
        results.append([*first, *torch.autograd.grad(along, (q, k, v, upstream))])  # type: ignore[arg-type]
    assert gap(*results) <= 1e-11


def test_the_loss_is_differentiated_alone() -> None:
    """x may itself be a function of W (a tied table), and a gradient is still that of each alone, whatever comes upstream."""
    weight = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, IGNORE, 3]])
    x = weight[None, :3].tanh()
    results = []
    with higher_derivatives():
        ours = linear_cross_entropy(x, weight, labels)
    for loss in (
        ours,
        F.cross_entropy(F.linear(x, weight)[0], labels[0], reduction="sum"),
    ):
        (first,) = torch.autograd.grad(loss.square(), weight, create_graph=True)
        results.append([first, *torch.autograd.grad(first.sin().sum(), weight, retain_graph=True)])
    assert gap(*results) <= 1e-12


def test_a_bias_that_is_learned_gets_its_gradient() -> None:
    """A bias on the scores may be a parameter (T5's). Caught: a kernel that returns gradients for q, k and v alone."""
    generator = torch.Generator().manual_seed(0)
    q, bias = (
        torch.randn(2, 4, 5, 6, generator=generator),
        torch.randn(1, 4, 5, 5, generator=generator).requires_grad_(),
    )
    mask = AttentionMask(causal=True, bias=bias)
    found = [
        torch.autograd.grad(kernel(q, q, q, mask).sin().sum(), bias)[0] for kernel in (fused_attention, by_equation)
    ]
    assert float(found[1].abs().max()) > 0.1
    assert gap(found[:1], found[1:]) <= 1e-6


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_norm_has_all_its_derivatives(bias: bool) -> None:
    """The third derivative along a line and the second by two forward modes, against the equation. Caught: torch's kernel, in
    which mean and variance stand still there."""
    generator = torch.Generator().manual_seed(0)
    norm = LayerNorm(4, bias=bias).double()
    x, v, w = torch.randn(3, 5, 4, dtype=torch.float64, generator=generator)

    def plain(x: Tensor) -> Tensor:
        y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + norm.eps).sqrt()
        return (y * w).sin().sum()

    def ours(x: Tensor) -> Tensor:
        with higher_derivatives():
            return (norm(x) * w).sin().sum()

    def backwards(f: Callable[[Tensor], Tensor], times: int) -> Tensor:
        at = x.clone().requires_grad_()
        y = f(at)
        for _ in range(times):
            y = (torch.autograd.grad(y, at, create_graph=True)[0] * v).sum()
        return y

    def forwards(f: Callable[[Tensor], Tensor]) -> Tensor:
        def once(at: Tensor) -> Tensor:
            return torch.func.jvp(f, (at,), (v,))[1]  # type: ignore[no-any-return]

        return torch.func.jvp(once, (x,), (v,))[1]  # type: ignore[no-any-return]

    for times in (1, 2, 3):
        assert gap([backwards(ours, times)], [backwards(plain, times)]) <= 1e-10
    assert gap([forwards(ours)], [backwards(plain, 2)]) <= 1e-10


@pytest.mark.parametrize("family", FAMILIES)
def test_what_only_the_equations_have_is_refused_outside(family: str) -> None:
    """Caught: a gradient made in the forward pass that is taken for a constant when it is differentiated again."""
    model, rows = small(family), rows_of(SHORT)
    with pytest.raises(RuntimeError, match="higher_derivatives"):
        torch.autograd.grad(model.loss(*sides(family, rows), rows.tokens), list(model.parameters()), create_graph=True)


def loss_of(model: Any, family: str) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    """The loss of one sentence as a function of parameters and tokens, as torch.func wants it."""

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Tensor) -> Tensor:
            return self.model.loss(*sides(family, Rows.whole(tokens[None])), tokens[None])  # type: ignore[no-any-return]

    whole = Loss()

    def loss(parameters: dict[str, Tensor], tokens: Tensor) -> Tensor:
        named = {f"model.{name}": p for name, p in parameters.items()}
        return torch.func.functional_call(whole, named, (tokens,))  # type: ignore[no-any-return]

    return loss


@pytest.mark.parametrize("length", [SHORT, LONG])
@pytest.mark.parametrize("family", FAMILIES)
def test_transforms(family: str, length: int) -> None:
    """grad, vjp, forward mode, jvp of grad, and a gradient a sentence by vmap: the numbers of autograd. Caught: a look at a
    tensor's values under vmap; an autograd function that transforms cannot enter."""
    model = small(family, **SMOOTH)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    tokens = rows_of(length).tokens
    loss = loss_of(model, family)
    expected = []
    for one in tokens:
        total = model.loss(*sides(family, Rows.whole(one[None])), one[None])
        expected.append(torch.autograd.grad(total, list(model.parameters())))
    grads = torch.func.grad(loss)(parameters, tokens[0])
    assert gap(list(grads.values()), expected[0]) <= 1e-10
    _, pull = torch.func.vjp(lambda p: loss(p, tokens[0]), parameters)
    assert gap(list(pull(torch.ones((), dtype=torch.float64))[0].values()), expected[0]) <= 1e-10
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, tokens)
    for i, wanted in enumerate(expected):
        assert gap([g[i] for g in each.values()], wanted) <= 1e-10
    v = {name: torch.ones_like(p) for name, p in parameters.items()}
    with forward_ad.dual_level():  # forward mode without torch.func
        duals = {name: forward_ad.make_dual(p, v[name]) for name, p in parameters.items()}
        along = forward_ad.unpack_dual(loss(duals, tokens[0])).tangent
    assert along is not None and gap([along], [sum(g.sum() for g in expected[0])]) <= 1e-8  # type: ignore[list-item]
    if length == SHORT and family == "gpt":  # the others: test_hessian_vector_products
        _, product = torch.func.jvp(lambda p: torch.func.grad(loss)(p, tokens[0]), (parameters,), (v,))
        one = Rows.whole(tokens[:1])
        hessian = hessian_vector(
            lambda: model.loss(*sides(family, one), tokens[:1]), list(model.parameters()), list(v.values())
        )
        assert gap(list(product.values()), hessian[len(v) :]) <= 1e-8


@pytest.mark.parametrize("family", FAMILIES)
def test_vmap_over_inputs(family: str) -> None:
    model, tokens = small(family), rows_of(LONG).tokens
    each = torch.func.vmap(lambda one: model(*sides(family, Rows.whole(one[None])))[0])(tokens)
    rows = Rows.whole(tokens)
    assert gap([each], [run(model, rows, rows)]) <= 1e-12
