"""Attention whose scores come from a small network and not from a product (Bahdanau et al. 2015; Vaswani et al. 2017, 3.2.1):

    score(q, k) = w . tanh(q + k)          q and k are projected, so this is their feed-forward network with one hidden layer

It costs what the product costs, T x S x D, but holds all of it at once: no matrix product computes a tanh between its factors.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.nn.attention import MultiHeadAttention, masked_softmax, repeat_kv
from glassformer.nn.masks import AttentionMask


class AdditiveAttention(MultiHeadAttention):
    """Multi-head attention with these scores: the same projections, names and calls, and one vector w a head more."""

    def __init__(self, *sizes: Any, **settings: Any) -> None:
        super().__init__(*sizes, **settings)
        self.weigh = nn.Parameter(torch.randn(self.n_head, 1, 1, self.head_size) / math.sqrt(self.head_size))

    def fused(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> Float[Tensor, "B H T Dv"]:
        """There is no kernel for it."""
        return self.explicit(q, k, v, mask, q.size(2))

    def explicit(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, length: int = 0
    ) -> Float[Tensor, "B H T Dv"]:
        """The equation, with the tap of attention's weights."""
        k, v = repeat_kv(q, k, v)
        scores = ((q[:, :, :, None] + k[:, :, None]).tanh() * self.weigh).sum(-1)
        weights = masked_softmax(scores, mask.to_tensor(q.size(2), k.size(2), q.device))
        return self.tap_rows("weights", weights, length) @ v
