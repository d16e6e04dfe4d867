"""The loss in chunks is the plain cross-entropy, gradients included, without ever holding all the scores."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from glassformer.nn import IGNORE, Rows, linear_cross_entropy
from tests.counts import count
from tests.laws.zoo import FAMILIES, VOCABULARY, cases, gap, run, small

loss_module = importlib.import_module("glassformer.nn.loss")


def plain(x: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, smoothing: float) -> Tensor:
    logits = F.linear(x, weight, bias).flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")


@settings(max_examples=count(fast=40, soak=1000), deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 7), st.integers(1, 6), st.integers(1, 11)),
    chunk=st.integers(1, 200),
    biased=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    ignored=st.sampled_from([0.0, 0.4, 1.0]),
    upstream=st.floats(-3, 3),
    seed=st.integers(0, 2**31),
)
def test_chunked_is_plain(
    shape: tuple[int, int, int, int],
    chunk: int,
    biased: bool,
    smoothing: float,
    ignored: float,
    upstream: float,
    seed: int,
) -> None:
    """Caught: a last chunk that is lost, smoothing that leaves the label out of its share, ignored labels that still
    count, an upstream gradient that is not passed on, a bias without a gradient."""
    batch, time, width, vocabulary = shape
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_()

    x, weight, bias = draw(batch, time, width), draw(vocabulary, width), draw(vocabulary) if biased else None
    labels = torch.randint(0, vocabulary, (batch, time), generator=generator)
    labels[torch.rand(batch, time, generator=generator) < ignored] = IGNORE
    inputs = [t for t in (x, weight, bias) if t is not None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_module, "CHUNK_ELEMENTS", chunk)
        ours = linear_cross_entropy(x, weight, labels, bias=bias, smoothing=smoothing)
        our_gradients = torch.autograd.grad(ours * upstream, inputs)
    theirs = plain(x, weight, labels, bias, smoothing)
    their_gradients = torch.autograd.grad(theirs * upstream, inputs)
    assert gap([ours, *our_gradients], [theirs, *their_gradients]) <= 1e-11
    # Without a label there is no gradient: not a small one, none.
    assert torch.equal(our_gradients[0][labels == IGNORE], torch.zeros_like(x[labels == IGNORE]))


@pytest.mark.parametrize("frozen", ["x and weight", "x", "weight", "bias"])
def test_frozen_parts_do_not_stop_the_others(frozen: str) -> None:
    """Caught: a bias that trains alone and gets no gradient."""
    parts = {
        name: torch.randn(*shape).double() for name, shape in (("x", (2, 3, 4)), ("weight", (5, 4)), ("bias", (5,)))
    }
    for name, part in parts.items():
        part.requires_grad_(name not in frozen.split(" and "))
    labels = torch.randint(0, 5, (2, 3))
    training = [p for p in parts.values() if p.requires_grad]
    ours = linear_cross_entropy(parts["x"], parts["weight"], labels, bias=parts["bias"])
    theirs = plain(parts["x"], parts["weight"], labels, parts["bias"], 0.0)
    assert gap(torch.autograd.grad(ours, training), torch.autograd.grad(theirs, training)) <= 1e-12


@pytest.mark.parametrize("wrong", [7, 99, -1])
def test_a_label_outside_the_classes(wrong: int) -> None:
    with pytest.raises(ValueError, match=f"label {wrong} is outside the 7 classes"):
        linear_cross_entropy(torch.randn(1, 2, 3), torch.randn(7, 3), torch.tensor([[1, wrong]]))


@pytest.mark.parametrize(("family", "changes"), cases(*FAMILIES))
def test_a_models_loss_is_the_cross_entropy_of_its_logits(family: str, changes: dict[str, Any]) -> None:
    """Caught: a loss that takes another path through the model than forward (another norm, head or bias)."""
    model = small(family, **changes)
    source, target = Rows.from_lists([[1, 2, 3], [4]]), Rows.from_lists([[5, 6], [7, 8, 9, 10]])
    labels = torch.where(target.real, (target.tokens + 3) % VOCABULARY, IGNORE)

    def gradients(loss: Tensor) -> list[Tensor]:
        model.zero_grad()
        loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    inputs = (source, target) if family == "transformer" else (target,)
    ours = model.loss(*inputs, labels, smoothing=0.1)
    ours_gradients = gradients(ours)
    logits = run(model, source, target)
    theirs = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, label_smoothing=0.1, reduction="sum"
    )
    assert gap([ours], [theirs]) <= 1e-11
    assert gap(ours_gradients, gradients(theirs)) <= 1e-9


class LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.elements = max(self.elements, leaf.numel())
        return result


@pytest.mark.parametrize("family", FAMILIES)
def test_all_scores_never_stand_in_memory(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the whole step, backward pass included, no tensor is as large as positions x vocabulary. The plain way is shown
    to be seen by the same watcher."""
    positions, vocabulary = 8 * 32, 500
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 32 * vocabulary)
    model = small(family, vocab_size=vocabulary)
    rows = Rows.whole(torch.randint(0, vocabulary, (8, 32)))
    inputs = (rows, rows) if family == "transformer" else (rows,)
    with LargestTensor() as watcher:
        model.loss(*inputs, rows.tokens).backward()
    assert watcher.elements <= max(32 * vocabulary, vocabulary * 24, 8 * 6 * 32 * 32)
    with LargestTensor() as watcher:
        run(model, rows, rows)
    assert watcher.elements == positions * vocabulary
