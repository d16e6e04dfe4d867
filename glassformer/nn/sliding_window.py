"""Sliding-window attention: causal, to the last so many keys, in time and memory linear in the length (Beltagy et al. 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glassformer.nn.grouped_query import gqa_kwargs


def sliding_window_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hk T D"],
    v: Float[Tensor, "B Hk T Dv"],
    window: int,
    *,
    scaled: bool = True,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T Dv"]:
    """Causal, and each query sees the last `window` keys, itself included: in time and memory linear in the length.
    The row is cut into blocks as long as the window; whatever a block's queries may see lies in it or in the one before."""
    length = q.size(2)
    blocks = -(-length // window)
    padding = blocks * window - length

    def split_blocks(x: Tensor) -> Float[Tensor, "B n H w D"]:
        return F.pad(x, (0, 0, 0, padding)).unflatten(2, (blocks, window)).transpose(1, 2)

    def with_previous_block(x: Tensor) -> Float[Tensor, "B n H w2 D"]:
        return torch.cat([F.pad(x, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1], x], dim=3)

    query = torch.arange(window, device=q.device)[:, None] + window
    key = torch.arange(2 * window, device=q.device)
    mask = (key <= query) & (query - key < window)
    # Before the first block there is nothing.
    first = torch.arange(blocks, device=q.device)[:, None, None] == 0
    mask = (mask & ~(first & (key < window))).expand(q.size(0), -1, -1, -1).flatten(0, 1)[:, None]
    out = F.scaled_dot_product_attention(
        split_blocks(q).flatten(0, 1),
        with_previous_block(split_blocks(k)).flatten(0, 1),
        with_previous_block(split_blocks(v)).flatten(0, 1),
        attn_mask=mask,
        dropout_p=dropout,
        scale=None if scaled else 1.0,
        **gqa_kwargs(q, k),
    )
    return out.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :length]
