"""The learning rate as a function of the step. Steps count from 1.

noam      d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)     (Vaswani et al. 2017, equation 3; the base rate is not used)
cosine    linear warm-up, then half a cosine down to `min_rate`
wsd       linear warm-up, stable, then a linear fall to zero over the last `decay_fraction` of the run (Hu et al. 2024)
constant  linear warm-up, then 1
"""

from __future__ import annotations

import math
from collections.abc import Callable

from glassformer.config import TrainConfig


def noam(step: int, width: int, warmup: int) -> float:
    """width^-0.5 * min(step^-0.5, step * warmup^-1.5)"""
    return width**-0.5 * min(step**-0.5, step * max(warmup, 1) ** -1.5)


def cosine(step: int, steps: int, warmup: int, floor: float = 0.0) -> float:
    """Linear warm-up to 1, then half a cosine down to `floor` at `steps`."""
    if step <= warmup:
        return step / max(warmup, 1)
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def wsd(step: int, steps: int, warmup: int, decay_fraction: float) -> float:
    """Linear warm-up to 1, stable, and a linear fall to 0 over the last part of the run."""
    if step <= warmup:
        return step / max(warmup, 1)
    decay = max(1, round(steps * decay_fraction))
    return min(1.0, max(0, steps - step) / decay)


def constant(step: int, warmup: int) -> float:
    """Linear warm-up to 1, then 1."""
    return min(1.0, step / max(warmup, 1))


def schedule(config: TrainConfig, width: int) -> Callable[[int], float]:
    """The learning rate at a step, not a factor: for noam it is set by the width, otherwise by learning_rate."""
    match config.schedule:
        case "noam":
            return lambda step: config.noam_factor * noam(step, width, config.warmup)
        case "cosine":
            return lambda step: config.learning_rate * cosine(step, config.steps, config.warmup, config.min_rate)
        case "wsd":
            return lambda step: config.learning_rate * wsd(step, config.steps, config.warmup, config.decay_fraction)
        case "constant":
            return lambda step: config.learning_rate * constant(step, config.warmup)
