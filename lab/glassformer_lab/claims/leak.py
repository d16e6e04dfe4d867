"""The curve nobody shows: fresh random tokens cannot be predicted, so a loss below ln V proves that the answer leaks."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glassformer.models import Transformer
from glassformer.nn.masks import cross_mask
from glassformer.nn.rows import as_rows
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.training import TrainArgs, downsample, drawn, train

WORDS, LENGTH, ROWS = 50, 12, 32


def loss_of(model: Transformer, source: Tensor, target: Tensor, labels: Tensor, *, causal: bool) -> Tensor:
    """The model's summed loss, with or without the mask that hides the future."""
    if causal:
        return model.loss(source, target, labels)
    queries, keys = as_rows(target, None), as_rows(source, None)
    memory = model.decoder.project_memory(model.encode(keys))
    inputs = model.block_inputs(queries, causal=False, cross_mask=cross_mask(queries, keys))
    x = model.decoder_input(queries.tokens, queries.broadcast_positions, queries.n_positions, inputs.real)
    hidden = model.decoder(x, inputs, memory)
    return torch.nn.functional.cross_entropy(model.logits(hidden).flatten(0, 1), labels.flatten(), reduction="sum")


def trial(budget: Budget, arm: str, seed: int) -> Measured:
    """Trains to say the next of twelve random tokens; every batch is new, so nothing can be learned by heart."""
    model = Transformer(n_layer=2, n_head=4, n_embd=64, vocab_size=WORDS, block_size=LENGTH, dropout=0.0)
    generator = torch.Generator().manual_seed(seed)

    def loss() -> tuple[Tensor, int]:
        both = (torch.tensor(drawn(0, WORDS, ROWS * (LENGTH + 1), generator)) for _ in range(2))
        ids, other = (tokens.view(ROWS, LENGTH + 1) for tokens in both)
        source = (ids if arm in ("same ids", "both") else other)[:, :LENGTH].contiguous()
        target, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        return loss_of(model, source, target, labels, causal=arm in ("right", "same ids")), labels.numel()

    losses = train(model, loss, TrainArgs(budget.steps(1500)))
    tail = losses[-max(1, len(losses) // 20) :]
    return {"loss": sum(tail) / len(tail), "curve": downsample(losses)}


def facts(results: Results) -> Measured:
    """The loss of whoever knows nothing, and whether the right machine stays there."""
    chance, lowest = math.log(WORDS), min(results.values("loss", arm="right"))
    return {"chance": chance, "lowest": lowest, "honest": abs(lowest - chance) < 0.05}
