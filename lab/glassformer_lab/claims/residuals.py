"""Do residual connections carry the gradient? Blocks with and without, over depth."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.models import GPT
from glassformer.training.optim import gradient_norms, layers_of
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.text import characters, drawn_rows, held_out
from glassformer_lab.claims.training import TrainArgs, downsample, small, train

ROW = 64


def first_gradients(model: GPT, seed: int) -> list[float]:
    """The norm of the gradient of each block before the first step."""
    draw, loss = drawn_rows(model, 8, ROW, seed)
    total, count = loss(*draw())
    (total / count).backward()
    return gradient_norms(layers_of(model.named_parameters()).values(), torch.get_default_device()).tolist()  # type: ignore[no-any-return]


def trial(budget: Budget, depth: int, residual: bool, seed: int) -> Measured:
    """The gradient of each block before the first step, with and without norms, then a training with them."""
    found: Measured = {}
    for norm in ("none", "layer"):  # the last one is trained
        model = small(GPT, n_layer=depth, vocab_size=characters()[1], block_size=ROW, residual=residual, norm=norm)
        gradients = first_gradients(model, seed)
        found |= {f"gradients, {norm}": gradients, f"ratio, {norm}": gradients[0] / max(gradients[-1], 1e-30)}
        model.zero_grad(set_to_none=True)
    losses = train(model, *drawn_rows(model, 8, ROW, seed), TrainArgs(budget.steps(800), rate=3e-3))
    return found | held_out(model, ROW, 200, seed) | {"curve": downsample(losses)}


def gradient_lines(results: Results, depth: int) -> dict[str, Any]:
    """The gradient of each block before training, with and without residual connections and norms."""
    return {
        f"{name}, {told} norm": results.curves(f"gradients, {norm}", depth=depth, residual=own)
        for own, name in ((True, "with residual connections"), (False, "without"))
        for norm, told in (("layer", "layer"), ("none", "no"))
    }
