"""Forty lines that train a Transformer: it learns to turn rows of letters round, in under a minute on a CPU.

    python3 examples/loop.py

`glassformer train` is this loop, and around it everything that a long run needs: files, validation, checkpoints, a screen.
"""

from __future__ import annotations

import random

import torch

from glassformer import Rows, Transformer
from glassformer.nn import IGNORE

BOS, EOS, FIRST, VOCABULARY = 1, 2, 3, 13  # ids: begin, end, and ten letters; padding is known by lengths, not by an id


def batch(size: int, draw: random.Random) -> tuple[Rows, Rows, torch.Tensor]:
    """Sources, targets that begin with BOS, and labels: the targets one token on, IGNORE at padding."""
    texts = [[draw.randrange(FIRST, VOCABULARY) for _ in range(draw.randint(2, 7))] for _ in range(size)]
    sources = Rows.from_lists([[*text, EOS] for text in texts])
    targets = Rows.from_lists([[BOS, *reversed(text)] for text in texts])
    labels = Rows.from_lists([[*reversed(text), EOS] for text in texts])
    return sources, targets, labels.tokens.masked_fill(~labels.real, IGNORE)


def train(steps: int = 600, warmup: int = 60, rate: float = 3e-3, seed: int = 1) -> Transformer:
    """A model that has seen `steps` batches."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    model = Transformer(vocab_size=VOCABULARY, n_layer=2, n_head=4, n_embd=64, n_hidden=128, block_size=16, dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, 1 - step / (steps + 1))
    )
    for step in range(steps):
        sources, targets, labels = batch(64, draw)
        loss = model.loss(sources, targets, labels) / (labels != IGNORE).sum()  # mean over the tokens that count
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step:3}  loss {loss.item():.4f}")
    return model.eval()


if __name__ == "__main__":
    from beam import beam_search

    model = train()
    for text in ([3, 4, 5, 6], [12, 3, 3, 7, 9, 4]):
        print(text, "->", [token for token in beam_search(model, [*text, EOS]) if token != EOS])
