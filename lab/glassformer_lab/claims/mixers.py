"""Cheaper than attention: a window, linear attention, and a hybrid of linear and full layers, on long copying and on text;
and what linear attention costs as the text grows."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from glassformer.models import GPT
from glassformer.nn.attention import masked_attention
from glassformer.nn.masks import AttentionMask
from glassformer_lab.alternatives.linear_attention import LinearAttention, linear_attention
from glassformer_lab.claims import training
from glassformer_lab.claims.claim import Budget, Measured
from glassformer_lab.claims.training import Letters, TrainArgs

BLOCK = 256
WINDOW = 16


def make(kind: str, vocabulary: int) -> GPT:
    """A GPT of four blocks: full attention, a window, linear attention, or linear but for one block in four."""
    window = WINDOW if kind == "window" else None
    model = training.small(GPT, n_layer=4, vocab_size=vocabulary, block_size=BLOCK, positions="rotary", window=window)
    for number, block in enumerate(model.decoder.layers):
        if kind == "linear" or (kind == "hybrid" and number != 2):
            linear = LinearAttention(64, 4)
            linear.load_state_dict(block.attention.state_dict())
            block.attention = linear
    return model


def cost(kind: str, length: int) -> Measured:
    """How the operations of causal attention alone grow when a text of so many tokens becomes four times as long."""
    counted = []
    for tokens in (length, 4 * length):
        q, k, v = (torch.randn(1, 4, tokens, 16) for _ in range(3))
        with FlopCounterMode(display=False) as flops:
            if kind == "linear":
                linear_attention(q, k, v, causal=True)
            else:
                masked_attention(q, k, v, AttentionMask(causal=True))
        counted.append(flops.get_total_flops())
    return {"growth": counted[1] / counted[0], "operations": counted[1] / (4 * length)}


def trial(budget: Budget, kind: str, task: str, length: int, seed: int) -> Measured:
    """Copying rows of so many letters, the next character of Python's source, or the cost of attention."""
    if task == "cost":
        return cost(kind, length)
    if task == "copy":
        letters = Letters("copy", length, length)
        model = make(kind, letters.vocabulary)
        losses = training.train_on(model, letters, TrainArgs(budget.steps(500), batch=32, muon=0.02), seed)
        accuracy = training.exact_match(model, letters.test(200, seed))
        return {"accuracy": accuracy, "loss": sum(losses[-20:]) / len(losses[-20:])}
    model = make(kind, training.characters()[1])
    args = TrainArgs(budget.steps(400), rate=3e-3, muon=0.02)
    training.train(model, training.text_loss(model, 8, BLOCK, seed), args)
    return training.held_out(model, BLOCK, 64, seed)
