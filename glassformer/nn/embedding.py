"""Token embeddings: from ids to vectors, and, with the same table, back to a logit for every token (weight tying)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.nn.modes import is_symbolic


class Embedding(nn.Module):
    """A learned vector for every token of the vocabulary: weight[id]. `scale` multiplies by sqrt(n_embd), as the paper does where
    the table also serves as output layer (section 3.4)."""

    def __init__(self, vocab_size: int, n_embd: int, *, scale: bool = False) -> None:
        super().__init__()
        self.factor = math.sqrt(n_embd) if scale else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, n_embd))
        nn.init.normal_(self.weight, std=0.02)

    def check(self, tokens: Int[Tensor, "B T"]) -> None:
        """An id outside the table is a clear error where looking costs nothing: eager, on a CPU."""
        if is_symbolic() or tokens.device.type != "cpu" or tokens.numel() == 0:
            return
        low, high = (int(v) for v in tokens.aminmax())
        if low < 0 or high >= self.weight.size(0):
            wrong = low if low < 0 else high
            raise ValueError(
                f"token id {wrong} is not in the vocabulary, whose ids run from 0 to {self.weight.size(0) - 1}; "
                "was the text encoded with another tokenizer?"
            )

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """(B, T) ids -> (B, T, C)"""
        self.check(tokens)
        x = F.embedding(tokens, self.weight)
        return x if self.factor == 1.0 else x * self.factor
