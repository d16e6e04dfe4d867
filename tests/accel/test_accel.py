"""What is installed from outside equals what it replaces, and nothing below needs it."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from glassformer.accel import accelerate, trials
from glassformer.accel.short_attention import ShortAttention, ShortAttentionKernel
from glassformer.nn import AttentionMask, Rows
from tests.counts import count
from tests.laws.test_attention import CASES, check_kernel
from tests.laws.zoo import FAMILIES, gap, small

ROOT = Path(__file__).parents[2]


@settings(max_examples=count(fast=40, soak=2000), deadline=None)
@given(**CASES)
def test_short_rows_are_the_equation(**case: Any) -> None:
    """Caught: a derivative of softmax without its mean, a scale forgotten in one of the two factors' gradients, an empty
    row that gives NaN, taken where heads share keys or scores have a bias."""
    check_kernel(ShortAttentionKernel(9), **case)


def test_short_rows_are_taken_up_to_their_limit_in_training_alone() -> None:
    q = torch.randn(2, 3, 5, 4, requires_grad=True)
    mask = AttentionMask(causal=True)

    def node(kernel: ShortAttentionKernel) -> str:
        return type(kernel(q, q, q, mask).grad_fn).__name__

    assert ShortAttention.__name__ in node(ShortAttentionKernel(5))
    assert ShortAttention.__name__ not in node(ShortAttentionKernel(4))
    with torch.no_grad():
        assert not ShortAttentionKernel(5).applies(q, q, mask, 0.0)
    assert not ShortAttentionKernel(5).applies(q, q, mask, 0.1)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_accelerated_model_is_the_model(family: str) -> None:
    """Loss, gradients and names, uncompiled; and it can be copied. Caught: a part that replaces parameters, or that does not
    step aside outside of a compiled step."""
    plain = small(family)
    fast = accelerate(copy.deepcopy(plain), compiled=True, short_rows=32)
    assert fast.state_dict().keys() == plain.state_dict().keys()
    rows = Rows.from_lists([[1, 2, 3, 4], [5, 6]])
    inputs = (rows, rows) if family == "transformer" else (rows,)
    results = []
    for model in (plain, fast, copy.deepcopy(fast)):
        loss = model.loss(*inputs, rows.tokens)
        results.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    assert gap(results[0], results[1]) <= 1e-11
    assert gap(results[1], results[2]) == 0


WITHOUT = ROOT / "tests" / "programs" / "pytest_without_accel.py"


@pytest.mark.slow
def test_the_equations_stand_without_it() -> None:
    """Laws of nn, models and decode that go through every layer, with `glassformer.accel` made impossible to import."""
    laws = ("cache", "decoding_cache", "loss", "sharing")
    done = subprocess.run(
        [sys.executable, str(WITHOUT), *(f"tests/laws/test_{law}.py" for law in laws), "tests/decode/test_filters.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "GLASSFORMER_QUICK": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_short_rows_are_taken_where_a_trial_was_won(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught: taken on every processor, as it was where it made training 1.7 times slower."""
    monkeypatch.setattr(trials, "gains", lambda name, ask: {"8": 0.6, "12": 0.6, "20": 0.7, "24": 0.7})
    assert trials.short_rows() == 0
    monkeypatch.setattr(trials, "gains", lambda name, ask: {"8": 1.4, "12": 1.3, "20": 1.2, "24": 1.0})
    assert trials.short_rows() == 20
