"""The learning rate at a step, against formulas written down here from their sources and not from the code."""

from __future__ import annotations

import itertools
import math

import pytest

from glassformer.config import TrainConfig
from glassformer.training.optim import schedule

STEPS = [1, 2, 7, 50, 99, 100, 101, 500, 799, 800, 801, 999, 1000]


def test_noam_is_equation_3_of_the_paper() -> None:
    """d_model = 512, warm-up 4000. Broken variants: the power of the width forgotten; steps that count from 0; a warm-up
    of another length than the decay assumes, which makes a jump."""
    rate = schedule(TrainConfig(schedule="noam", warmup=4000, steps=100_000), 512)
    for step in (1, 2, 100, 3999, 4000, 4001, 10_000, 100_000):
        rising, falling = step / (4000 * math.sqrt(4000)), 1 / math.sqrt(step)
        assert rate(step) == pytest.approx(min(rising, falling) / math.sqrt(512), rel=1e-12)
    assert max(range(1, 20_000), key=rate) == 4000
    assert rate(4000) == pytest.approx(6.9877e-4, rel=1e-4)  # 1 / sqrt(512 * 4000)


@pytest.mark.parametrize("width", [64, 256, 1024])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_noam_does_not_depend_on_the_learning_rate(width: int, factor: float) -> None:
    one, other = (
        schedule(TrainConfig(schedule="noam", warmup=30, noam_factor=factor, learning_rate=lr), width)
        for lr in (1e-3, 7.0)
    )
    assert [one(s) for s in STEPS] == [other(s) for s in STEPS]
    assert one(30) == pytest.approx(factor * (width * 30) ** -0.5, rel=1e-12)


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_cosine(floor: float) -> None:
    """Broken variants: a floor added to the cosine instead of blended into it; progress counted from 0 and not from the
    end of the warm-up."""
    rate = schedule(TrainConfig(steps=1000, warmup=100, learning_rate=3e-3, min_rate=floor), 64)
    for step in STEPS:
        if step <= 100:
            expected = 3e-3 * step / 100
        else:
            angle = math.pi * (step - 100) / 900
            expected = 3e-3 * (1 + floor + (1 - floor) * math.cos(angle)) / 2
        assert rate(step) == pytest.approx(expected, rel=1e-12, abs=1e-18)
    assert rate(550) == pytest.approx(3e-3 * (1 + floor) / 2, rel=1e-12), "half-way down at half time"
    assert rate(1000) == rate(5000) == pytest.approx(3e-3 * floor, abs=1e-18), "and it stays there"


def test_warm_up_stable_decay() -> None:
    """Broken variants: a fall that begins late by the length of the warm-up; one that does not end at zero."""
    rate = schedule(TrainConfig(schedule="wsd", steps=1000, warmup=100, learning_rate=2.0, decay_fraction=0.2), 64)
    for step in STEPS:
        if step <= 100:
            expected = 2.0 * step / 100
        elif step <= 800:
            expected = 2.0
        else:
            expected = 2.0 * (1000 - step) / 200
        assert rate(step) == pytest.approx(expected, rel=1e-12, abs=1e-18)


def test_constant() -> None:
    rate = schedule(TrainConfig(schedule="constant", steps=1000, warmup=100, learning_rate=0.5), 64)
    assert [rate(s) for s in (1, 50, 100, 101, 1000)] == pytest.approx([0.005, 0.25, 0.5, 0.5, 0.5], rel=1e-12)


@pytest.mark.parametrize("name", ["noam", "cosine", "wsd", "constant"])
@pytest.mark.parametrize("warmup", [0, 1, 5, 20, 100])
def test_every_schedule_is_finite_positive_and_without_jumps(name: str, warmup: int) -> None:
    """Also where the warm-up is nothing, or the whole run, or longer. Broken variant: a division by a warm-up of 0."""
    config = TrainConfig(schedule=name, steps=20, warmup=warmup, learning_rate=1.0)
    values = [schedule(config, 64)(step) for step in range(1, 21)]
    assert all(math.isfinite(v) and v >= 0 for v in values)
    assert all(v > 0 for v in values[:-1])
    largest_step = max(1 / max(warmup, 1), 1 / (0.2 * 20), math.pi / 2 / max(1, 20 - warmup))
    assert all(abs(a - b) <= largest_step + 1e-12 for a, b in itertools.pairwise(values))
