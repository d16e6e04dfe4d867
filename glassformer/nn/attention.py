"""Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V          (Vaswani et al. 2017, equation 1)

Written twice. `attention` is the equation; `fused_attention` is torch's kernel for it, which never holds the T x S
weights. They are pinned to each other by tests. Whoever wants to see the weights gets the equation.

A mask is True where attention is allowed. A query that may see nothing gets nothing: zeros, never NaN.

Grouped-query attention (Ainslie et al. 2023): consecutive query heads share one head of keys and values. One head for all of
them is multi-query attention (Shazeer 2019); as many as query heads, the paper's multi-head attention. Sliding-window attention
(Beltagy et al. 2020) sees the last so many keys alone, in time and memory linear in the length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glassformer.nn.cache import KVCache
from glassformer.nn.masks import AttentionMask, as_mask, split_mask
from glassformer.nn.modes import is_symbolic
from glassformer.nn.norms import RMSNorm
from glassformer.nn.positions import Rotation
from glassformer.nn.taps import Tapped

KeyValues = tuple[Tensor, Tensor]
"""Keys and values that are already projected: (B, Hk, S, D) and (B, Hk, S, Dv)."""


def attention_scores(
    q: Float[Tensor, "*b T D"], k: Float[Tensor, "*b S D"], *, scaled: bool = True
) -> Float[Tensor, "*b T S"]:
    """Q K^T / sqrt(d_k): how well each key answers each query, before the softmax."""
    scores = q @ k.transpose(-2, -1)
    return scores / math.sqrt(q.size(-1)) if scaled else scores


def masked_softmax(scores: Float[Tensor, "*b T S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "*b T S"]:
    """softmax over the keys that are allowed; all zeros where none is."""
    if mask is None:
        return scores.softmax(dim=-1)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)


def attention_weights(
    q: Float[Tensor, "*b T D"], k: Float[Tensor, "*b S D"], mask: Tensor | None = None, *, scaled: bool = True
) -> Float[Tensor, "*b T S"]:
    """softmax(Q K^T / sqrt(d_k)): what share of each value goes to each query. A mask in any of the ways of `split_mask`."""
    scores = attention_scores(q, k, scaled=scaled)
    if mask is None or mask.dtype == torch.bool:
        return masked_softmax(scores, mask)
    allowed, bias = split_mask(mask)
    return masked_softmax(scores if bias is None else scores + bias, allowed)


def attention(
    q: Float[Tensor, "*b T D"],
    k: Float[Tensor, "*b S D"],
    v: Float[Tensor, "*b S Dv"],
    mask: Tensor | None = None,
    *,
    scaled: bool = True,
) -> Float[Tensor, "*b T Dv"]:
    """The equation. For each query, a weighted mean of the values; the weights say how well each key answers it.
    The mask is True or 1 where attention is allowed, or 0 and -inf, added.

    >>> import torch
    >>> x = torch.randn(2, 5, 8)
    >>> attention(x, x, x).shape
    torch.Size([2, 5, 8])
    """
    return attention_weights(q, k, mask, scaled=scaled) @ v


def repeat_kv(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B Hk S D"], v: Float[Tensor, "B Hk S Dv"]
) -> tuple[Float[Tensor, "B H S D"], Float[Tensor, "B H S Dv"]]:
    """Keys and values once for each of the query heads that share them."""
    group = q.size(1) // max(1, k.size(1))
    return (k, v) if group <= 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))


def gqa_kwargs(q: Float[Tensor, "B H T D"], k: Float[Tensor, "B Hk S D"]) -> dict[str, bool]:
    """The argument of torch's `scaled_dot_product_attention` for shared keys, where they are: tracing knows no such argument."""
    return {"enable_gqa": True} if q.size(1) != k.size(1) else {}


def masked_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hk S D"],
    v: Float[Tensor, "B Hk S Dv"],
    mask: AttentionMask,
    *,
    scaled: bool = True,
) -> Float[Tensor, "B H T Dv"]:
    """The equation for all that `fused_attention` does: shared key heads, a bias on the scores, any mask."""
    k, v = repeat_kv(q, k, v)
    scores = attention_scores(q, k, scaled=scaled)
    if mask.bias is not None:
        scores = scores + mask.bias
    return masked_softmax(scores, mask.to_tensor(q.size(2), k.size(2), q.device)) @ v


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


def sdpa_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hk S D"],
    v: Float[Tensor, "B Hk S Dv"],
    mask: AttentionMask,
    *,
    scaled: bool = True,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T Dv"]:
    """torch's fused kernel (`scaled_dot_product_attention`), without a mask wherever none is needed."""
    if mask.window is not None and mask.bias is None and q.size(2) == k.size(2) > 2 * mask.window:
        return sliding_window_attention(q, k, v, mask.window, scaled=scaled, dropout=dropout)
    causal = mask.causal
    allowed: Tensor | None = mask.allowed
    if causal and (allowed is not None or mask.bias is not None or mask.window is not None):
        allowed, causal = mask.to_tensor(q.size(2), k.size(2), q.device), False
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
        **gqa_kwargs(q, k),
    )


def fused_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hk S D"],
    v: Float[Tensor, "B Hk S Dv"],
    mask: AttentionMask,
    *,
    scaled: bool = True,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T Dv"]:
    """The same by torch's fused kernel. Fewer key heads than query heads are shared by consecutive query heads.

    Inside `higher_derivatives` and transforms of torch.func, and where the bias itself is learned, it is the equation."""
    learns_bias = mask.bias is not None and mask.bias.requires_grad
    if not dropout and (learns_bias or (is_symbolic() and not torch.compiler.is_compiling())):
        return masked_attention(q, k, v, mask, scaled=scaled)
    return sdpa_attention(q, k, v, mask, scaled=scaled, dropout=dropout)


AttentionKernel = Callable[..., Tensor]
"""Anything called as `fused_attention` is, and equal to it."""


class MultiHeadAttention(Tapped):
    """Several attentions side by side, each on its own projection of the input, joined by one more projection.

    >>> import torch
    >>> mha = MultiHeadAttention(n_embd=32, n_head=4)
    >>> x = torch.randn(2, 5, 32)
    >>> mha(x).shape                                        # every token attends to every token
    torch.Size([2, 5, 32])
    >>> causal = torch.ones(5, 5, dtype=torch.bool).tril()  # True where attention is allowed
    >>> mha(x, mask=causal).shape
    torch.Size([2, 5, 32])
    >>> mha(x, memory=torch.randn(2, 9, 32)).shape          # cross-attention: queries of x, keys of another text
    torch.Size([2, 5, 32])

    Self-attention: `mha(x, mask)`. Cross-attention: `mha(x, mask, mha.keys_values(source))`. The mask says who may
    attend to whom: causal, padding, segments and windows are all one mask (masks.py). `n_kv_head` below `n_head` gives
    grouped heads (Ainslie et al. 2023), 1 gives multi-query (Shazeer 2019). `qk_norm` is an RMSNorm on each query and
    key head, before any rotation (a number is its epsilon). `head_ids` names the heads that are left after some were pruned.
    """

    tap_names = ("q", "k", "v", "scores", "weights", "heads", "out")

    def __init__(
        self,
        n_embd: int = 512,
        n_head: int = 8,
        *,
        n_kv_head: int | None = None,
        head_size: int | None = None,
        value_size: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        qk_norm: bool | float = False,
        scaled: bool = True,
        head_ids: Sequence[int] | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown or not isinstance(n_embd, int):
            what = f"no {next(iter(unknown))}" if unknown else f"not {type(n_embd).__name__}"
            raise TypeError(
                f"MultiHeadAttention takes numbers, n_embd=512, n_head=8, and {what}; the tutorials', made from a config, is "
                "glassformer.classic.MultiHeadAttention"
            )
        if head_size is None:
            if n_embd % n_head:
                raise ValueError(f"n_embd {n_embd} is not divisible by n_head {n_head}; change one or set head_size")
            head_size = n_embd // n_head
        n_kv_head = n_kv_head or n_head
        if n_head % n_kv_head:
            raise ValueError(f"n_head {n_head} is not divisible by n_kv_head {n_kv_head}")
        self.head_ids = tuple(range(n_head) if head_ids is None else head_ids)  # their numbers before pruning
        self.pruned = len(self.head_ids) < n_head
        kv_head_of = [head // (n_head // n_kv_head) for head in self.head_ids]
        kv_heads = sorted(set(kv_head_of))  # those that some head still uses
        self.n_head = n_head = len(self.head_ids)
        self.n_kv_head = len(kv_heads)
        equal_groups = len(set(Counter(kv_head_of).values())) <= 1
        # Where pruning left some key heads with fewer query heads than others: the key head of each head.
        self.kv_head_of = None if equal_groups else [kv_heads.index(kv_head) for kv_head in kv_head_of]
        self.head_size = head_size
        self.value_size = value_size or head_size
        self.dropout = dropout
        self.scaled = scaled
        self.query = nn.Linear(n_embd, n_head * self.head_size, bias=bias)
        self.key = nn.Linear(n_embd, self.n_kv_head * self.head_size, bias=bias)
        self.value = nn.Linear(n_embd, self.n_kv_head * self.value_size, bias=bias)
        self.out = nn.Linear(n_head * self.value_size, n_embd, bias=bias)
        self.kernel: AttentionKernel = fused_attention  # another of the same signature may be installed
        norm_eps = 1e-5 if qk_norm is True else float(qk_norm)
        self.query_norm = RMSNorm(self.head_size, eps=norm_eps) if qk_norm else None
        self.key_norm = RMSNorm(self.head_size, eps=norm_eps) if qk_norm else None

    def queries(self, x: Float[Tensor, "B T C"], rotation: Rotation | None = None) -> Float[Tensor, "B H T D"]:
        """The projection of x to queries, split into heads, normed and rotated where asked for."""
        q = self.query(x).view(*x.shape[:-1], self.n_head, self.head_size).transpose(1, 2)
        if self.query_norm is not None:
            q = self.query_norm(q)
        return self.tap("q", q if rotation is None else rotation.rotate(q))

    def keys_values(self, x: Float[Tensor, "B S C"], rotation: Rotation | None = None) -> KeyValues:
        """The projections of x to keys and values, split into heads; cross-attention computes them once a sentence."""
        k = self.key(x).view(*x.shape[:-1], self.n_kv_head, self.head_size).transpose(1, 2)
        v = self.value(x).view(*x.shape[:-1], self.n_kv_head, self.value_size).transpose(1, 2)
        if self.key_norm is not None:
            k = self.key_norm(k)
        return self.tap("k", k if rotation is None else rotation.rotate(k)), self.tap("v", v)

    def project(self, x: Float[Tensor, "B T C"], rotation: Rotation | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of self-attention."""
        return self.queries(x, rotation), *self.keys_values(x, rotation)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        mask: AttentionMask | Tensor | None = None,
        memory: KeyValues | Float[Tensor, "B S C"] | None = None,
        *,
        rotation: Rotation | None = None,
        cache: KVCache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "B T C"]:
        """Attention of x to itself, or to `memory`: the encoder's output, or keys and values projected from it. With a cache, x
        are the newest tokens and its keys join those of `layer`."""
        if not isinstance(mask, AttentionMask):
            keys = x.size(1) if memory is None and cache is None else None
            mask = as_mask(mask, (x.size(0), x.size(1), memory.size(1) if isinstance(memory, Tensor) else keys))
        if isinstance(memory, Tensor):
            memory = self.keys_values(memory)
        if not self.n_head and not self.hooks:
            return self.out(x.new_zeros(*x.shape[:2], 0))  # all its heads were pruned: only the bias is left
        if memory is None:
            q, k, v = self.project(x, rotation)
        else:
            q, (k, v) = self.queries(x, rotation), memory
        if cache is not None:
            k, v = cache.append(layer, k, v)
        if self.pruned:
            k, v, mask = self.select_heads(k, v, mask)
        rows, length = q.size(0), q.size(2)
        if rows != k.size(0):
            # Several rows (beams) attend to one sentence: their queries stand side by side, so its keys are never copied.
            q = q.unflatten(0, (k.size(0), -1)).transpose(1, 2).flatten(2, 3)
        # No kernel takes an attention that has lost all its heads; the equation does.
        by_equation = self.is_watched or self.n_head == 0
        heads = self.explicit(q, k, v, mask, length) if by_equation else self.fused(q, k, v, mask)
        if rows != k.size(0):
            heads = heads.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        heads = self.tap("heads", heads)
        return self.tap("out", self.out(heads.transpose(1, 2).flatten(-2)))

    def select_heads(self, k: Tensor, v: Tensor, mask: AttentionMask) -> tuple[Tensor, Tensor, AttentionMask]:
        """A head keeps its slope (ALiBi) and its key head (grouped heads), whichever others are gone."""
        if mask.bias is not None and mask.bias.size(1) > 1:
            mask = replace(mask, bias=mask.bias[:, list(self.head_ids)])
        return (k, v, mask) if self.kv_head_of is None else (k[:, self.kv_head_of], v[:, self.kv_head_of], mask)

    @property
    def is_watched(self) -> bool:
        """Whether scores or weights have a hook: only the equation holds them."""
        return bool(self.hooks) and ("weights" in self.hooks or "scores" in self.hooks)

    def fused(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> Float[Tensor, "B H T Dv"]:
        """Every head's output by the installed kernel."""
        dropout = self.dropout if self.training else 0.0
        return self.kernel(q, k, v, mask, scaled=self.scaled, dropout=dropout)

    def tap_rows(self, name: str, value: Tensor, length: int) -> Tensor:
        """A tap of (B, H, T, S) whose rows are the beams, where beams that attend to one sentence stand side by side."""
        beams = value.size(2) // (length or max(1, value.size(2)))
        if beams == 1 or not self.hooks.get(name):
            return self.tap(name, value)
        apart = self.tap(name, value.unflatten(2, (beams, length)).transpose(1, 2).flatten(0, 1))
        return apart.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)

    def explicit(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, length: int = 0
    ) -> Float[Tensor, "B H T Dv"]:
        """The equation again, with its two taps. Of the T queries, `length` are one row's (0: all)."""
        k, v = repeat_kv(q, k, v)
        scores = attention_scores(q, k, scaled=self.scaled)
        if mask.bias is not None:
            scores = scores + mask.bias
        scores = self.tap_rows("scores", scores, length)
        weights = masked_softmax(scores, mask.to_tensor(q.size(2), k.size(2), q.device))
        weights = self.tap_rows("weights", weights, length)
        return F.dropout(weights, self.dropout, self.training) @ v
