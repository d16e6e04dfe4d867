"""A figure for each part of the machine, drawn from the part itself: what is shown is what nn/ and training/ compute.

    python3 docs/make_figures.py [FOLDER]

Each function with a noun for a name returns arrays, so that a test can hold them to what the text says of them; `draw_all`
hands them to figure_plots.py. The tour (docs/tour/) uses every figure.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figure_plots
import numpy as np
import torch
import torch.nn.functional as F
from figure_words import chinese, reword
from torch import Tensor

from glassformer import plots
from glassformer.config import DecodeConfig, TrainConfig
from glassformer.decode.lengths import length_rule
from glassformer.nn.attention import (
    MultiHeadAttention,
    attention,
    attention_scores,
    attention_weights,
    masked_softmax,
)
from glassformer.nn.block import Block, BlockInputs
from glassformer.nn.feedforward import ACTIVATIONS, MLP
from glassformer.nn.loss import linear_cross_entropy
from glassformer.nn.masks import AttentionMask, cross_mask, self_mask
from glassformer.nn.norms import BatchNorm, LayerNorm
from glassformer.nn.positions import Rotary, alibi_bias, alibi_slopes, sinusoids
from glassformer.nn.rows import Rows
from glassformer.training.optim import schedule

# ---- attention


def worked_attention() -> dict[str, np.ndarray]:
    """Four tokens and two dimensions: scores, weights and output, small enough to check with a pencil."""
    q = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0], [-2.0, 0.0]])
    k = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0], [-2.0, 1.0]])
    v = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [-1.0, 0.0]])
    causal = AttentionMask(causal=True).to_tensor(4, 4, q.device)
    return {
        "scores": attention_scores(q, k).numpy(),
        "weights": attention_weights(q, k, causal).numpy(),
        "output": attention(q, k, v, causal).numpy(),
    }


def fruit() -> dict[str, Any]:
    """A dictionary asked for a word it does not have: the query "fruit" is answered by apple (10) and banana (5), and not by
    chair (2). The keys are chosen so that the weights come out as 0.6, 0.4 and 0."""
    query = torch.tensor([[1.0]], dtype=torch.float64)
    keys = torch.tensor([[0.6], [0.4], [1.0]], dtype=torch.float64).log()
    values = torch.tensor([[10.0], [5.0], [2.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    return {
        "words": ["apple", "banana", "chair"],
        "weights": attention_weights(query, keys, mask)[0].numpy(),
        "values": values[:, 0].numpy(),
        "answer": float(attention(query, keys, values, mask)),
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
        found = attention_mask.to_tensor(8, 8, torch.device("cpu"))
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
    turned = Rotary(length, head_size).rotation(torch.arange(length)[None]).rotate(one)[0, 0]
    return (turned @ turned.T / head_size).numpy()


def alibi_lines(heads: int = 4, length: int = 33) -> np.ndarray:
    """What each head's scores lose with the distance."""
    places = torch.arange(length)[None]
    bias = alibi_bias(torch.tensor(alibi_slopes(heads)), places[:, -1:], places)
    return bias[0, :, 0].flip(-1).numpy()


def i_like_to_code() -> dict[str, np.ndarray]:
    """Four words of four numbers, their positions, and the sum that goes into the first layer."""
    words = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5], [0.3, 0.4, 0.5, 0.6], [0.4, 0.5, 0.6, 0.7]])
    places = sinusoids(4, 4)
    return {"words": words.numpy(), "positions": places.numpy(), "sum": (words + places).numpy()}


def turns(length: int = 9, width: int = 8) -> np.ndarray:
    """Every (sine, cosine) pair of the table as a point: (pairs, positions, x and y). A step further is a turn by one angle."""
    table = sinusoids(length, width)
    return torch.stack([table[:, 1::2], table[:, 0::2]], dim=-1).transpose(0, 1).numpy()


# ---- norms and residual lines


def norm_reach() -> dict[str, np.ndarray]:
    """Which numbers of a batch one output of a norm depends on, by its own gradient: two sentences of four tokens (the last
    token of the second is padding) and six features; the output is that of sentence 0, token 1, feature 2. The four norms of
    figure 2 of Wu and He (2018), "Group Normalization"; torch's own have the features before the tokens."""
    real = torch.ones(2, 4, dtype=torch.bool)
    real[1, 3] = False
    norms: dict[str, Callable[[Tensor], Tensor]] = {
        "batch norm": lambda x: BatchNorm(6).double()(x, real),
        "layer norm": lambda x: LayerNorm(6).double()(x, real),
        "instance norm": lambda x: F.instance_norm(x.mT).mT,
        "group norm, 2 groups": lambda x: F.group_norm(x.mT, 2).mT,
    }
    found = {}
    for name, norm in norms.items():
        x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(norm(x)[0, 1, 2], x)
        found[name] = (slope.abs() > 1e-12).numpy()
    return found


def gradient_by_depth(depth: int = 24, width: int = 32) -> dict[str, np.ndarray]:
    """The size of the loss's gradient at the input of each of `depth` fresh layers, with and without residual lines."""
    found = {}
    for name, residual in (("with", True), ("without", False)):
        torch.manual_seed(0)
        x = torch.randn(4, 8, width, requires_grad=True)
        streams, inputs = [x], BlockInputs(AttentionMask(causal=True))
        for _ in range(depth):
            layer = Block(
                MultiHeadAttention(width, 4), MLP(width, 4 * width), lambda: LayerNorm(width), residual=residual
            )
            streams.append(layer(streams[-1], inputs))
        slopes = torch.autograd.grad(streams[-1].square().mean(), streams)
        found[name] = np.array([float(slope.norm()) for slope in slopes])
    return found


# ---- the rest


def length_divisors(longest: int = 40) -> dict[str, Any]:
    """What a hypothesis' log-probability is divided by, over its length, for each rule of decode/lengths.py."""
    lengths = np.arange(1, longest + 1)
    rules = {
        "gnmt, 0.6 (the paper's)": DecodeConfig(length_rule="gnmt", alpha=0.6),
        "gnmt, 1": DecodeConfig(length_rule="gnmt", alpha=1.0),
        "alpha 0: none": DecodeConfig(length_rule="gnmt", alpha=0.0),
    }
    found: dict[str, Any] = {"length": lengths}
    for name, config in rules.items():
        rule = length_rule(config)
        found[name] = np.array([rule.divisor(int(n), True) for n in lengths])
    return found


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
    "attention": lambda: figure_plots.worked_attention(worked_attention()),
    "dictionary": lambda: figure_plots.dictionary(fruit()),
    "scaling": lambda: figure_plots.softmax_scaling(softmax_scaling()),
    "masks": lambda: figure_plots.masks(masks()),
    "sinusoids": lambda: figure_plots.sinusoids(
        sinusoidal_table(), {width: sinusoidal_products(width) for width in (64, 512)}, mark=(512, 100)
    ),
    "i-like-to-code": lambda: figure_plots.sum_of_tables(i_like_to_code(), ["I", "like", "to", "code"]),
    "turns": lambda: figure_plots.turns(turns()),
    "norms": lambda: figure_plots.norm_reach(norm_reach()),
    "residuals": lambda: figure_plots.gradient_by_depth(gradient_by_depth()),
    "lengths": lambda: figure_plots.length_divisors(length_divisors()),
    "rotary": lambda: figure_plots.rotary(rotary_angles(), rotary_products()),
    "alibi": lambda: figure_plots.alibi(alibi_lines()),
    "activations": lambda: figure_plots.activations(activations()),
    "smoothing": lambda: figure_plots.smoothing(smoothed_loss()),
    "schedules": lambda: figure_plots.schedules(schedules()),
}


def draw_all(out: Path) -> list[Path]:
    """Every figure of the tour, as SVG, and again with Chinese words as NAME.zh.svg. The same code leaves the same files."""
    out.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, draw in FIGURES.items():
        figure = draw()
        drawn += plots.save(figure, out / f"{name}.svg", kinds=("svg",))
        reword(figure, chinese)
        drawn += plots.save(figure, out / f"{name}.zh.svg", kinds=("svg",))
    return drawn


def at_distance(width: int, distance: int) -> float:
    """What "tends to zero" means: a share of the largest product that is left at a distance."""
    return float(sinusoidal_products(width, distance)[distance])


def highest_rate(width: int, warmup: int) -> float:
    """Where Noam's schedule has its peak: 1 / sqrt(width * warmup)."""
    return 1 / math.sqrt(width * warmup)


if __name__ == "__main__":
    for drawn in draw_all(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "figures"):
        print(drawn)
