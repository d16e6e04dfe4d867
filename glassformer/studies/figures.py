"""A figure for each part of the machine, drawn from the part itself: what is shown is what nn/ and train/ compute.

Each function with a noun for a name returns arrays, so that a test can hold them to what the text says of them; `draw_all`
hands them to plots.py. The tour (docs/tour.md) uses every figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer import plots
from glassformer.config import TrainConfig
from glassformer.nn.attention import attention, attention_scores, attention_weights, masked_softmax
from glassformer.nn.feedforward import ACTIVATIONS
from glassformer.nn.loss import linear_cross_entropy
from glassformer.nn.masks import AttentionMask, cross_mask, self_mask
from glassformer.nn.positions import Rotary, alibi_bias, alibi_slopes, sinusoids
from glassformer.nn.rows import Rows
from glassformer.train.schedules import schedule

# ---- attention


def worked_attention() -> dict[str, np.ndarray]:
    """Four tokens and two dimensions: scores, weights and output, small enough to check with a pencil."""
    q = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0], [-2.0, 0.0]])
    k = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0], [-2.0, 1.0]])
    v = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [-1.0, 0.0]])
    causal = AttentionMask(causal=True).explicit(4, 4, q.device)
    return {
        "scores": attention_scores(q, k).numpy(),
        "weights": attention_weights(q, k, causal).numpy(),
        "output": attention(q, k, v, causal).numpy(),
    }


def softmax_scaling(sizes: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128, 256, 512), keys: int = 10) -> dict[str, Any]:
    """Random queries and keys of unit variance: how large their products get, what the softmax makes of them, and how much
    of a gradient it lets through (the size of the matrix d weights / d scores), with and without the square root."""
    generator = torch.Generator().manual_seed(0)
    found: dict[str, Any] = {"sizes": np.array(sizes)}
    for name, scaled in (("with", True), ("without", False)):
        spread, largest, gradient = [], [], []
        for size in sizes:
            q = torch.randn(200, 1, size, generator=generator)
            k = torch.randn(200, keys, size, generator=generator)
            scores = attention_scores(q, k, scaled=scaled)
            weights = masked_softmax(scores)
            spread.append(float(scores.std()))
            largest.append(float(weights.max(-1).values.mean()))
            gradient.append(float(softmax_gradient(weights).norm(dim=(-2, -1)).mean()))
        found[name] = {"spread": np.array(spread), "largest": np.array(largest), "gradient": np.array(gradient)}
    return found


def softmax_gradient(weights: Tensor) -> Tensor:
    """d weights / d scores = diag(w) - w w^T."""
    return torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]


# ---- who may see whom


def masks() -> dict[str, np.ndarray]:
    """The masks of rows.py, True where attention is allowed."""
    whole = Rows.whole(torch.zeros(1, 8, dtype=torch.long))
    padded = Rows.padded(torch.zeros(1, 8, dtype=torch.long), [5])
    packed = Rows.pack([[[0] * 3, [0] * 4]], 8)
    source = Rows.pack([[[0] * 4, [0] * 2]], 8)

    def mask(attention_mask: AttentionMask) -> np.ndarray:
        found = attention_mask.explicit(8, 8, torch.device("cpu"))
        assert found is not None
        return found.view(8, 8).numpy()

    return {
        "causal": mask(self_mask(whole, causal=True)),
        "padding": mask(self_mask(padded, causal=False)),
        "window of 3, causal": mask(self_mask(whole, causal=True, window=3)),
        "segments": mask(self_mask(packed, causal=False)),
        "segments, causal": mask(self_mask(packed, causal=True)),
        "segments, cross": mask(cross_mask(packed, source)),
    }


# ---- positions


def sinusoidal_table(length: int = 100, width: int = 128) -> np.ndarray:
    """The table of the paper's positions, (length, width)."""
    return sinusoids(length, width).numpy()


def sinusoidal_products(width: int, farthest: int = 1000) -> np.ndarray:
    """PE(0) . PE(k) for each distance k, as a share of PE(0) . PE(0)."""
    table = sinusoids(farthest + 1, width)
    products = table @ table[0]
    return (products / products[0]).numpy()


def rotary_angles(length: int = 64, head_size: int = 32) -> np.ndarray:
    """The cosine of every pair's angle at every position: a row for each of the head's pairs."""
    rotary = Rotary(length, head_size)
    return rotary.rotation(torch.arange(length)[None]).cos[0, 0].T.numpy()


def rotary_products(length: int = 64, head_size: int = 32) -> np.ndarray:
    """One query and the same key at every pair of positions: their product depends on the distance alone."""
    one = torch.ones(1, 1, length, head_size)
    turned = Rotary(length, head_size).rotation(torch.arange(length)[None]).turn(one)[0, 0]
    return (turned @ turned.T / head_size).numpy()


def alibi_lines(heads: int = 4, length: int = 33) -> np.ndarray:
    """What each head's scores lose with the distance."""
    places = torch.arange(length)[None]
    bias = alibi_bias(torch.tensor(alibi_slopes(heads)), places[:, -1:], places)
    return bias[0, :, 0].flip(-1).numpy()


# ---- the rest


def activations() -> dict[str, Any]:
    """ReLU and GELU and their slopes."""
    x = torch.linspace(-4, 4, 801, requires_grad=True)
    found: dict[str, Any] = {"x": x.detach().numpy()}
    for name in ("relu", "gelu", "gelu_tanh", "relu2"):
        y = ACTIVATIONS[name](x)
        (slope,) = torch.autograd.grad(y.sum(), x)
        found[name] = {"value": y.detach().numpy(), "slope": slope.numpy()}
    return found


def smoothed_loss(smoothings: tuple[float, ...] = (0.0, 0.1, 0.2), words: int = 10) -> dict[str, Any]:
    """The loss against the probability of the right word, the others sharing the rest evenly."""
    chance = torch.linspace(0.02, 0.9999, 400, dtype=torch.float64)
    logits = torch.cat([chance[:, None], ((1 - chance) / (words - 1))[:, None].expand(-1, words - 1)], dim=1).log()
    label, table = torch.zeros(1, 1, dtype=torch.long), torch.eye(words, dtype=torch.float64)
    found: dict[str, Any] = {"chance": chance.numpy(), "words": words}
    for smoothing in smoothings:
        values = [float(linear_cross_entropy(row[None, None], table, label, smoothing=smoothing)) for row in logits]
        found[f"{smoothing:g}"] = np.array(values)
    return found


def schedules(steps: int = 10_000, warmup: int = 1000, width: int = 512) -> dict[str, Any]:
    """The rate at every step: Noam as its width and warm-up make it, the others up to the same highest rate."""
    top = (width * warmup) ** -0.5
    at = np.arange(1, steps + 1)
    found: dict[str, Any] = {"step": at}
    for name in ("noam", "cosine", "wsd"):
        rate = schedule(TrainConfig(schedule=name, steps=steps, warmup=warmup, learning_rate=top), width)
        found[name] = np.array([rate(int(step)) for step in at])
    return found


# ---- all of them

FIGURES: dict[str, Callable[[], Any]] = {
    "attention": lambda: plots.worked_attention(worked_attention()),
    "scaling": lambda: plots.softmax_scaling(softmax_scaling()),
    "masks": lambda: plots.masks(masks()),
    "sinusoids": lambda: plots.sinusoids(
        sinusoidal_table(), {width: sinusoidal_products(width) for width in (64, 512)}, mark=(512, 100)
    ),
    "rotary": lambda: plots.rotary(rotary_angles(), rotary_products()),
    "alibi": lambda: plots.alibi(alibi_lines()),
    "activations": lambda: plots.activations(activations()),
    "smoothing": lambda: plots.smoothing(smoothed_loss()),
    "schedules": lambda: plots.schedules(schedules()),
}


def draw_all(out: Path) -> list[Path]:
    """Every figure of the tour, as SVG. The same code leaves the same files."""
    out.mkdir(parents=True, exist_ok=True)
    return [plots.save(draw(), out / name, kinds=("svg",))[0] for name, draw in FIGURES.items()]


def at_distance(width: int, distance: int) -> float:
    """What "tends to zero" means: a share of the largest product that is left at a distance."""
    return float(sinusoidal_products(width, distance)[distance])


def highest_rate(width: int, warmup: int) -> float:
    """Where Noam's schedule has its peak: 1 / sqrt(width * warmup)."""
    return 1 / math.sqrt(width * warmup)
