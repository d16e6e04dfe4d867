"""Does dividing by √d_k keep the gradient alive? Softmax of random products, and trainings with and without."""

from __future__ import annotations

import torch

from glassformer.models import Transformer
from glassformer.nn.attention import attention_scores, masked_softmax
from glassformer_lab.claims.claim import Budget, Measured
from glassformer_lab.claims.training import Letters, TrainArgs, downsample, exact_match, small, train_on

TASK = Letters("reverse", 2, 12)


def trial(budget: Budget, part: str, size: int, scaled: bool, seed: int, init: str = "") -> Measured:
    """Either random queries and keys of unit variance, or a training."""
    if part == "products":
        q, k = torch.randn(500, 1, size), torch.randn(500, 10, size)
        scores = attention_scores(q, k, scaled=scaled)
        weights = masked_softmax(scores)
        slope = torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]
        return {
            "spread": float(scores.std()),
            "largest": float(weights.max(-1).values.mean()),
            "gradient": float(slope.norm(dim=(-2, -1)).mean()),
        }
    sizes = {"n_layer": 2, "n_head": 2, "head_size": size, "vocab_size": TASK.vocabulary, "block_size": 32}
    model = small(Transformer, **sizes, scaled_attention=scaled, init=init)
    losses = train_on(model, TASK, TrainArgs(budget.steps(700)), seed)
    return {
        "accuracy": exact_match(model, TASK.test(seed=seed)),
        "curve": downsample(losses),
        "area": sum(losses) / len(losses),
    }
