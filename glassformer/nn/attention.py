"""Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V          (Vaswani et al. 2017, equation 1)

Written twice. `attention` is the equation; `fused_attention` is torch's kernel for it, which never holds the T x S
weights. They are pinned to each other by tests. Whoever wants to see the weights gets the equation.

For one case there is a third: training on short sentences on a CPU. torch's kernel sets up its blocks for every head of
every sentence, and its softmax of fewer than 16 columns goes number by number, so most of the time is not spent on
attention. `ShortAttention` is the equation as a few products over all heads at once, with its derivative by hand.

A mask is True where attention is allowed. A query that may see nothing gets nothing: zeros, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glassformer.nn.cache import KVCache
from glassformer.nn.masks import AttentionMask
from glassformer.nn.norms import RMSNorm
from glassformer.nn.positions import Rotation
from glassformer.nn.taps import Tapped

Memory = tuple[Tensor, Tensor]
"""Keys and values that are already computed: (B, H, S, D) and (B, H, S, Dv)."""


def attention_scores(
    q: Float[Tensor, "*b T D"], k: Float[Tensor, "*b S D"], *, scaled: bool = True
) -> Float[Tensor, "*b T S"]:
    scores = q @ k.transpose(-2, -1)
    return scores / math.sqrt(q.size(-1)) if scaled else scores


def masked_softmax(scores: Float[Tensor, "*b T S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "*b T S"]:
    if mask is None:
        return scores.softmax(dim=-1)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)


def attention_weights(
    q: Float[Tensor, "*b T D"],
    k: Float[Tensor, "*b S D"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    scaled: bool = True,
) -> Float[Tensor, "*b T S"]:
    return masked_softmax(attention_scores(q, k, scaled=scaled), mask)


def attention(
    q: Float[Tensor, "*b T D"],
    k: Float[Tensor, "*b S D"],
    v: Float[Tensor, "*b S Dv"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    scaled: bool = True,
) -> Float[Tensor, "*b T Dv"]:
    """The equation. For each query, a weighted mean of the values; the weights say how well each key answers it."""
    return attention_weights(q, k, mask, scaled=scaled) @ v


SHORT = 24  # keys; with more, torch's kernel is faster
NARROW = 16  # columns; with fewer, torch's softmax is slow


class ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        shape = (*q.shape[:3], k.size(2))
        q, k, v = (t.reshape(-1, *t.shape[2:]) for t in (q, k, v))
        scores = torch.baddbmm(q.new_empty(()), q, k.transpose(1, 2), beta=0, alpha=scale)
        hidden = None if mask is None else ~mask
        if hidden is not None:
            scores.view(shape).masked_fill_(hidden, torch.finfo(scores.dtype).min)
        if shape[3] < NARROW:
            weights = scores.sub_(scores.amax(dim=-1, keepdim=True)).exp_()
            weights.div_(weights.sum(dim=-1, keepdim=True))
        else:
            weights = scores.softmax(dim=-1)
        if hidden is not None:
            weights.view(shape).masked_fill_(hidden, 0.0)  # a query that may see nothing gets nothing
        ctx.save_for_backward(q, k, v, weights)
        ctx.shape, ctx.scale = shape, scale
        return torch.bmm(weights, v).view(*shape[:3], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, weights = ctx.saved_tensors
        rows, heads = ctx.shape[:2]
        grad = grad.reshape(rows * heads, -1, v.size(2))
        grad_v = torch.bmm(weights.transpose(1, 2), grad)
        change = torch.bmm(grad, v.transpose(1, 2)).mul_(weights)
        # The derivative of softmax: w * (g - <w, g>).
        change.addcmul_(weights, change.sum(dim=-1, keepdim=True), value=-1)
        empty = q.new_empty(())
        grad_q = torch.baddbmm(empty, change, k, beta=0, alpha=ctx.scale)
        grad_k = torch.baddbmm(empty, change.transpose(1, 2), q, beta=0, alpha=ctx.scale)
        return *(t.view(rows, heads, *t.shape[1:]) for t in (grad_q, grad_k, grad_v)), None, None


def is_short_training(q: Tensor, k: Tensor, mask: AttentionMask, dropout: float) -> bool:
    return (
        k.size(2) <= SHORT
        and q.device.type == "cpu"
        and torch.is_grad_enabled()
        and q.requires_grad
        and q.size(1) == k.size(1)
        and mask.bias is None
        and dropout == 0.0
        and not torch.compiler.is_compiling()
    )


def windowed_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hk T D"],
    v: Float[Tensor, "B Hk T Dv"],
    window: int,
    *,
    scaled: bool = True,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T Dv"]:
    """Causal, and each query sees the last `window` keys, itself included: in time and memory in proportion to the length.
    The row is cut into blocks as long as the window; whatever a block's queries may see lies in it or in the one before."""
    length = q.size(2)
    blocks = -(-length // window)
    missing = blocks * window - length

    def cut(x: Tensor) -> Float[Tensor, "B n H w D"]:
        return F.pad(x, (0, 0, 0, missing)).unflatten(2, (blocks, window)).transpose(1, 2)

    def with_the_one_before(x: Tensor) -> Float[Tensor, "B n H w2 D"]:
        return torch.cat([F.pad(x, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1], x], dim=3)

    query = torch.arange(window, device=q.device)[:, None] + window
    key = torch.arange(2 * window, device=q.device)
    mask = (key <= query) & (query - key < window)
    # Before the first block there is nothing.
    first = torch.arange(blocks, device=q.device)[:, None, None] == 0
    mask = (mask & ~(first & (key < window))).expand(q.size(0), -1, -1, -1).flatten(0, 1)[:, None]
    seen = F.scaled_dot_product_attention(
        cut(q).flatten(0, 1),
        with_the_one_before(cut(k)).flatten(0, 1),
        with_the_one_before(cut(v)).flatten(0, 1),
        attn_mask=mask,
        dropout_p=dropout,
        scale=None if scaled else 1.0,
        enable_gqa=q.size(1) != k.size(1),
    )
    return seen.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def fused_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hk S D"],
    v: Float[Tensor, "B Hk S Dv"],
    mask: AttentionMask,
    *,
    scaled: bool = True,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T Dv"]:
    """The same by torch's fused kernel; without a mask wherever the mask needs none. Fewer key heads than query heads
    are shared by consecutive query heads."""
    if is_short_training(q, k, mask, dropout):
        scale = q.size(-1) ** -0.5 if scaled else 1.0
        return ShortAttention.apply(q, k, v, mask.explicit(q.size(2), k.size(2), q.device), scale)  # type: ignore[no-any-return]
    if mask.window is not None and mask.bias is None and q.size(2) == k.size(2) > 2 * mask.window:
        return windowed_attention(q, k, v, mask.window, scaled=scaled, dropout=dropout)
    causal = mask.causal
    allowed: Tensor | None = mask.allowed
    if causal and (allowed is not None or mask.bias is not None or mask.window is not None):
        allowed, causal = mask.explicit(q.size(2), k.size(2), q.device), False
    if mask.bias is not None:
        allowed = mask.bias if allowed is None else mask.bias.masked_fill(~allowed, -math.inf)
        allowed = allowed.to(q.dtype)
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=allowed,
        dropout_p=dropout,
        is_causal=causal,
        scale=None if scaled else 1.0,
        enable_gqa=q.size(1) != k.size(1),
    )


class MultiHeadAttention(Tapped):
    """Several attentions side by side, each on its own projection of the input, joined by one more projection.

    Self-attention: `mha(x, mask)`. Cross-attention: `mha(x, mask, mha.keys_values(source))`. The mask says who may
    look at whom: causal, padding, segments and windows are all one mask (see rows.py). `n_kv_head` below `n_head` gives
    grouped heads (Ainslie et al. 2023), 1 gives multi-query (Shazeer 2019). `qk_norm` is an RMSNorm on each query and
    key head, before any rotation. `kept` names the heads that are left of the `n_head` after some were pruned.
    """

    tap_names = ("q", "k", "v", "scores", "weights", "heads", "out")

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        *,
        n_kv_head: int | None = None,
        head_size: int | None = None,
        value_size: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        qk_norm: bool = False,
        norm_eps: float = 1e-5,
        scaled: bool = True,
        kept: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if head_size is None:
            if n_embd % n_head:
                raise ValueError(f"n_embd {n_embd} is not divisible by n_head {n_head}; change one or set head_size")
            head_size = n_embd // n_head
        n_kv_head = n_kv_head or n_head
        if n_head % n_kv_head:
            raise ValueError(f"n_head {n_head} is not divisible by n_kv_head {n_kv_head}")
        self.numbers = tuple(range(n_head) if kept is None else kept)  # what its heads are called
        self.pruned = len(self.numbers) < n_head
        asked = [number // (n_head // n_kv_head) for number in self.numbers]
        still = sorted(set(asked))
        self.n_head = n_head = len(self.numbers)
        self.n_kv_head = len(still)
        even = len({asked.count(one) for one in still}) <= 1
        # Where pruning left some key heads with fewer askers than others: the key head of each head.
        self.shares = None if even else [still.index(one) for one in asked]
        self.head_size = head_size
        self.value_size = value_size or head_size
        self.dropout = dropout
        self.scaled = scaled
        self.query = nn.Linear(n_embd, n_head * self.head_size, bias=bias)
        self.key = nn.Linear(n_embd, self.n_kv_head * self.head_size, bias=bias)
        self.value = nn.Linear(n_embd, self.n_kv_head * self.value_size, bias=bias)
        self.out = nn.Linear(n_head * self.value_size, n_embd, bias=bias)
        self.query_norm = RMSNorm(self.head_size, eps=norm_eps) if qk_norm else None
        self.key_norm = RMSNorm(self.head_size, eps=norm_eps) if qk_norm else None

    def queries(self, x: Float[Tensor, "B T C"], rotation: Rotation | None = None) -> Float[Tensor, "B H T D"]:
        q = self.query(x).unflatten(-1, (self.n_head, self.head_size)).transpose(1, 2)
        if self.query_norm is not None:
            q = self.query_norm(q)
        return self.tap("q", q if rotation is None else rotation.turn(q))

    def keys_values(self, x: Float[Tensor, "B S C"], rotation: Rotation | None = None) -> Memory:
        k = self.key(x).unflatten(-1, (self.n_kv_head, self.head_size)).transpose(1, 2)
        v = self.value(x).unflatten(-1, (self.n_kv_head, self.value_size)).transpose(1, 2)
        if self.key_norm is not None:
            k = self.key_norm(k)
        return self.tap("k", k if rotation is None else rotation.turn(k)), self.tap("v", v)

    def joined_product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def project_together(
        self, x: Float[Tensor, "B T C"], rotation: Rotation | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """queries and keys_values by one matrix product in place of three: for the compiled model, where the joining of
        the three weights melts into their conversion to bfloat16."""
        parts = (self.query, self.key, self.value)
        weight = torch.cat([p.weight for p in parts])
        bias = torch.cat([p.bias for p in parts]) if self.query.bias is not None else None
        sizes = [p.out_features for p in parts]
        q, k, v = self.joined_product(x, weight, bias).split(sizes, dim=-1)
        q = q.unflatten(-1, (self.n_head, self.head_size)).transpose(1, 2)
        k = k.unflatten(-1, (self.n_kv_head, self.head_size)).transpose(1, 2)
        v = v.unflatten(-1, (self.n_kv_head, self.value_size)).transpose(1, 2)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        return (q, k, v) if rotation is None else (rotation.turn(q), rotation.turn(k), v)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        mask: AttentionMask,
        memory: Memory | None = None,
        *,
        rotation: Rotation | None = None,
        cache: KVCache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "B T C"]:
        if not self.n_head and not self.listeners:
            return self.out(x.new_zeros(*x.shape[:2], 0))  # all its heads were pruned: only the bias is left
        if memory is None and torch.compiler.is_compiling():
            q, k, v = self.project_together(x, rotation)
        else:
            q = self.queries(x, rotation)
            k, v = self.keys_values(x, rotation) if memory is None else memory
        if cache is not None:
            k, v = cache.append(layer, k, v)
        if self.pruned:
            k, v, mask = self.for_the_kept(k, v, mask)
        rows, length = q.size(0), q.size(2)
        if rows != k.size(0):
            # Several rows (beams) ask one sentence: their queries stand side by side, so its keys are never copied.
            q = q.unflatten(0, (k.size(0), -1)).transpose(1, 2).flatten(2, 3)
        # No kernel is made for an attention that has lost all its heads; the equation does not mind.
        by_equation = self.is_watched or self.n_head == 0
        heads = self.explicit(q, k, v, mask) if by_equation else self.fused(q, k, v, mask)
        if rows != k.size(0):
            heads = heads.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        heads = self.tap("heads", heads)
        return self.tap("out", self.out(heads.transpose(1, 2).flatten(-2)))

    def for_the_kept(self, k: Tensor, v: Tensor, mask: AttentionMask) -> tuple[Tensor, Tensor, AttentionMask]:
        """A head keeps its slope (ALiBi) and its key head (grouped heads), whichever others are gone."""
        if mask.bias is not None and mask.bias.size(1) > 1:
            mask = replace(mask, bias=mask.bias[:, list(self.numbers)])
        return (k, v, mask) if self.shares is None else (k[:, self.shares], v[:, self.shares], mask)

    @property
    def is_watched(self) -> bool:
        return bool(self.listeners) and ("weights" in self.listeners or "scores" in self.listeners)

    def fused(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> Float[Tensor, "B H T Dv"]:
        dropout = self.dropout if self.training else 0.0
        return fused_attention(q, k, v, mask, scaled=self.scaled, dropout=dropout)

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> Float[Tensor, "B H T Dv"]:
        """The equation again, with its two places to listen at."""
        group = q.size(1) // max(1, k.size(1))
        k, v = (k, v) if group <= 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
        scores = attention_scores(q, k, scaled=self.scaled)
        if mask.bias is not None:
            scores = scores + mask.bias
        scores = self.tap("scores", scores)
        weights = masked_softmax(scores, mask.explicit(q.size(2), k.size(2), q.device))
        weights = self.tap("weights", weights)
        return F.dropout(weights, self.dropout, self.training) @ v
