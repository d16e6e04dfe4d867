"""`glassformer complexity`: exponents from timings that are known, chains and reaches that can be counted by hand, and the
layers it measures are what they are called."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from glassformer.nn.attention import attention
from glassformer_lab.complexity.complexity import steps
from glassformer_lab.complexity.layers import LAYERS, explicit, fused, linear, windowed
from glassformer_lab.complexity.measure import (
    SMALL_WINDOW,
    asymptotic,
    chain_lengths,
    fit_exponent,
    gradient_reach,
    layers_needed,
    longest_chain,
    most_memory,
)
from tests.commands import call


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, 3.0])
def test_a_clean_power_is_found_exactly(power: float) -> None:
    sizes = steps(128, 4096, 2)
    found = fit_exponent(sizes, [3e-6 * n**power for n in sizes])
    assert found.value == pytest.approx(power, abs=1e-9) and found.error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_noisy_timings_with_a_start_up_give_the_power_within_their_error(power: float) -> None:
    """5% noise and a fixed cost that is half of the smallest measurement: of 40 fits nearly all lie within three standard
    errors and what the fixed cost may bend; and the error is told about right. Broken variants: all points fitted (the fixed
    cost drags the slope down); an error that is forgotten, or that of the mean."""
    draw = np.random.default_rng(0)
    sizes = np.array(steps(128, 8192, 2))
    fixed = 0.5 * 128.0**power
    slopes, errors = [], []
    for _ in range(40):
        found = fit_exponent(
            sizes.tolist(), ((fixed + sizes**power) * np.exp(draw.normal(0, 0.05, len(sizes)))).tolist()
        )
        slopes.append(found.value)
        errors.append(found.error)
    close = [abs(s - power) < 3 * e + 0.06 for s, e in zip(slopes, errors, strict=True)]
    assert sum(close) >= 37
    assert np.std(slopes) == pytest.approx(np.mean(errors), rel=0.5)
    whole = np.polyfit(np.log(sizes), np.log(fixed + sizes**power), 1)[0]
    assert abs(np.mean(slopes) - power) < abs(whole - power), "the asymptotic part is nearer to the law than all of it"


def test_the_rule_of_the_asymptotic_part() -> None:
    assert asymptotic(range(1, 10), range(1, 10))[0] == [5, 6, 7, 8, 9]
    assert asymptotic([4, 2, 8, 1, 16], [1, 2, 3, 4, 5])[0] == [2, 4, 8, 16], "four at least"
    for sizes, values in (([1, 2], [1, 2]), ([1, 2, 3], [1, 0, 2])):
        with pytest.raises(ValueError, match="three sizes"):
            fit_exponent(sizes, values)


def test_a_chain_is_counted() -> None:
    """A known graph: of two ways the longer one counts, and a loop of n steps is n times as long."""
    x = torch.ones(3, requires_grad=True)
    assert longest_chain(x.exp().sin() + x) == 3
    y = x
    for _ in range(500):
        y = y * 2 + x
    assert longest_chain(y) == 1000


def test_only_the_recurrent_layer_grows_by_the_token() -> None:
    found = chain_lengths([64, 128, 256])
    for name in ("attention", "convolution", "window"):
        assert len(set(found[name].values())) == 1, name
    recurrent = found["recurrent"]
    assert recurrent[256] - recurrent[128] == 2 * (recurrent[128] - recurrent[64]) > 128
    blocks = found["linear"]
    assert 0 < blocks[256] - blocks[128] <= 6, "a block of 64 at a time"


def test_how_far_a_gradient_reaches() -> None:
    """By hand: a causal convolution over 3 sees 2 back a layer, a window of 8 sees 7; attention and a recurrent layer see all,
    but what a recurrent layer sees of the far end is little."""
    length = 40
    for layers in (1, 2, 3):
        assert gradient_reach("convolution", layers, length).distance == 2 * layers
        assert gradient_reach("window", layers, length).distance == (SMALL_WINDOW - 1) * layers
    for kind in ("attention", "recurrent", "linear"):
        assert gradient_reach(kind, 1, length).distance == length - 1
    assert gradient_reach("recurrent", 1, length).far < 1e-3 < gradient_reach("attention", 1, length).far
    assert layers_needed("convolution", length) == math.ceil((length - 1) / 2)
    assert layers_needed("window", length) == math.ceil((length - 1) / (SMALL_WINDOW - 1))
    assert layers_needed("attention", length) == 1


def test_the_layers_are_what_they_are_called() -> None:
    """Explicit, fused and a window that sees everything are one function; linear attention is another; each gives as many rows
    as it got, and none sees the future."""
    torch.manual_seed(0)
    x = torch.randn(1, 24, 64, dtype=torch.float64)
    want = torch.cat(
        [
            attention(x[..., i : i + 32], x[..., i : i + 32], x[..., i : i + 32], torch.ones(24, 24).tril().bool())
            for i in (0, 32)
        ],
        -1,
    )
    for made in (explicit(64), fused(64), windowed(64, window=24)):
        torch.testing.assert_close(made(x), want, atol=1e-10, rtol=0)
    assert not torch.allclose(linear(64)(x), want)
    later = x.clone()
    later[:, 20:] += 1
    for layer in LAYERS:
        made = layer.make(64).double()
        assert made(x).shape == x.shape
        torch.testing.assert_close(made(later)[:, :20], made(x)[:, :20], atol=1e-10, rtol=0)


class Known(nn.Module):
    """Keeps exactly one tensor of n x n numbers for its backward pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[0] @ x[0].T).exp().sum()[None, None, None]


def test_memory_counts_what_is_alive() -> None:
    """explicit attention holds n x n weights a head, the fused kernel does not; views are not counted twice. Broken variants:
    every tensor ever made summed up; saved tensors forgotten."""
    x = torch.randn(1, 256, 32, requires_grad=True)
    square = 4 * 256 * 256
    assert 2 * square <= most_memory(Known(), x) < 4 * square
    assert most_memory(explicit(32), x) > square
    assert most_memory(fused(32), x) < square


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    done = call("complexity", "--quick", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0 and "recurrent (LSTM)" in done.stdout, done.stderr
    out = tmp_path / "runs" / "complexity-quick"
    found = json.loads((out / "complexity.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in found["layers"]] == [layer.name for layer in LAYERS]
    memory = {row["name"]: row["memory_in_n"]["value"] for row in found["layers"]}
    assert memory["attention alone, explicit"] > 1.7 > 1.2 > memory["attention alone, fused"]
    assert {p.name for p in out.iterdir()} >= {"complexity.md", "complexity.png", "complexity.svg"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").write_text("x")
    refused = call("complexity", "--quick", "--out", "mine", cwd=tmp_path)
    assert refused.returncode == 2 and "is not empty" in refused.stderr
