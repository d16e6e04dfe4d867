"""The operations of decoding by torch's own: the reference, for every model and every device.

An `Ops` object is the table. The decoder calls nothing else, so whoever replaces an entry (packed.py, triton.py) subclasses
`TorchOps` and overrides it; "few rows" and "many rows" is a choice inside an entry. R rows are (slot, beam), slot-major.

    pack(parts)                          the weights of products of one input, side by side, as `linear` wants them
    pack_output(weight, bias)            the same for the scores
    linear(x, weights, activation)       (R, in) -> (R, out)
    add_and_norm(x, change, norm)        x + change and the norm of it: (R, C), (R, C)
    embed(tokens, positions, embedding)  (R,) -> (R, C): word, scale and position
    attend(q, k, v, bias, ...)           attention of a slot's queries to keys they share
    self_attend(...), cross_attend(...)  the same on the cache: split, norm, rotate, append, attend. One entry each, so
                                         that a kernel may do all of it
    best(scores, k)                      the k best of every row, best first

Contract for kernels: no entry looks at a value of a device tensor from the host, and none allocates memory whose size
depends on one; shapes follow from (n, n_keys, n_source) alone, so a step made of them can be captured. What `linear` returns
where `into_sum` is set goes to `add_and_norm` and nowhere else: it may be anything that this one understands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.decode import choose
from glassformer.decode.cache import Cache
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.norms import LayerNorm, NoNorm, RMSNorm
from glassformer.nn.positions import Rotation

Parts = Sequence[tuple[Tensor, Tensor | None]]
"""Weights (out, in) and biases (out) of products of the same input: the parameters themselves, not copies."""


class Heads:
    """The shape of one MultiHeadAttention and its norms, without its projections."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        self.heads, self.kv_heads = attention.n_head, attention.n_kv_head
        self.head_ids = list(attention.head_ids) if attention.pruned else None
        self.size, self.value_size = attention.head_size, attention.value_size
        self.scale = None if attention.scaled else 1.0
        self.query_norm, self.key_norm = attention.query_norm, attention.key_norm
        self.widths = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.value_size]

    def queries(self, q: Tensor, n: int, rotation: Rotation | None = None) -> Float[Tensor, "n H M D"]:
        """From rows that stand (slot, token)."""
        q = q.view(n, q.size(0) // n, self.heads, self.size)
        q = q if self.query_norm is None else self.query_norm(q)
        q = q.transpose(1, 2)
        return q if rotation is None else rotation.rotate(q)

    def keys(self, k: Tensor, n: int, rotation: Rotation | None = None) -> Float[Tensor, "n Hk M D"]:
        """(slot, token) rows as keys by head, normed and turned as the model does."""
        k = k.view(n, k.size(0) // n, self.kv_heads, self.size)
        k = k if self.key_norm is None else self.key_norm(k)
        k = k.transpose(1, 2)
        return k if rotation is None else rotation.rotate(k)

    def values(self, v: Tensor, n: int) -> Float[Tensor, "n Hk M Dv"]:
        """(slot, token) rows as values by head."""
        return v.view(n, v.size(0) // n, self.kv_heads, self.value_size).transpose(1, 2)


@dataclass(frozen=True)
class StepInputs:
    """What a step tells every layer, computed once: how many slots, what their queries may see of the first n_keys columns
    (None: everything), the angles of the new tokens, the columns they fill."""

    n: int
    n_keys: int
    n_source: int
    columns: Int[Tensor, "n K"]
    bias: Float[Tensor, "n H K S"] | None = None  # H may be 1
    source_bias: Float[Tensor, "n 1 1 W"] | None = None
    rotation: Rotation | None = None


class TorchOps:
    """The reference."""

    holds_copies = False  # of weights: if so, they are compared with the model's before each use

    def pack(self, parts: Parts) -> Any:
        """Weights and biases (out, in) of products of one input, as `linear` wants them."""
        return list(parts)

    def pack_output(self, weight: Tensor, bias: Tensor | None = None) -> Any:
        """The weight (V, in) and bias of the scores, as `linear` wants them."""
        return self.pack([(weight, bias)])

    def linear(self, x: Float[Tensor, "R in"], weights: Any, activation: Any = None, *, into_sum: bool = False) -> Any:
        """activation(x Wᵀ + b) for each of the weights, side by side; `into_sum`: only to be added."""
        found = [F.linear(x, weight, bias) for weight, bias in weights]
        y = found[0] if len(found) == 1 else torch.cat(found, dim=-1)
        return y if activation is None else activation(y)

    def norm(self, x: Float[Tensor, "R C"], norm: nn.Module | None) -> Float[Tensor, "R C"]:
        """The norm of each row; the row itself where there is none."""
        if isinstance(norm, LayerNorm):
            return torch.layer_norm(x, norm.weight.shape, norm.weight, norm.bias, norm.eps)
        if norm is None or isinstance(norm, NoNorm):
            return x
        if isinstance(norm, RMSNorm):
            return norm.forward(x)
        return norm(x[None])[0]  # type: ignore[no-any-return]  # BatchNorm reads sentences

    def add_and_norm(
        self, x: Float[Tensor, "R C"] | None, change: Any, norm: nn.Module | None
    ) -> tuple[Float[Tensor, "R C"], Float[Tensor, "R C"]]:
        """x + change (or change, where there is no residual line), and its norm. `change` is not used again."""
        total = change if x is None else change.add_(x)
        return total, self.norm(total, norm)

    def embed(
        self, tokens: Int[Tensor, "R"], embedding: Any, positions: Float[Tensor, "P C"] | None
    ) -> Float[Tensor, "R C"]:
        """`positions`: a row to be added for each slot (P = n; or one for all). `embedding` has weight and factor."""
        x = F.embedding(tokens, embedding.weight)
        if embedding.factor != 1.0:
            x = x * embedding.factor
        if positions is None:
            return x
        return (x.view(positions.size(0), -1, x.size(1)) + positions[:, None]).view_as(x)

    def attend(
        self,
        q: Float[Tensor, "n H M D"],
        k: Float[Tensor, "n Hk S D"],
        v: Float[Tensor, "n Hk S Dv"],
        bias: Float[Tensor, "..."] | None = None,
        *,
        heads: Heads,
        causal: bool = False,
    ) -> Float[Tensor, "R HDv"]:
        """Rows (slot, token) of what the heads find, side by side. Heads that share keys ask together."""
        n, tokens, groups = q.size(0), q.size(2), max(1, heads.heads // max(1, heads.kv_heads))
        if not heads.heads:
            return q.new_zeros(n * tokens, 0)
        if heads.head_ids is not None and bias is not None and bias.size(1) > 1:
            bias = bias[:, heads.head_ids]  # ALiBi's slopes of the heads that are left
        if groups > 1 and not causal:
            q = q.reshape(n, heads.kv_heads, groups * tokens, -1)
            if bias is not None:
                rows, _, queries, keys = bias.shape
                bias = bias.expand(rows, heads.heads, tokens if queries > 1 else 1, keys)
                bias = bias.expand(-1, -1, tokens, -1).reshape(rows, heads.kv_heads, groups * tokens, keys)
        found = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=causal, scale=heads.scale, enable_gqa=groups > 1 and causal
        )
        if groups > 1 and not causal:
            found = found.reshape(n, heads.heads, tokens, -1)
        return found.transpose(1, 2).reshape(n * tokens, -1)

    def self_attend(
        self, qkv: Float[Tensor, "R all"], heads: Heads, cache: Cache, layer: int, step: StepInputs
    ) -> Float[Tensor, "R HDv"]:
        """Keys and values into the cache, then softmax(q kᵀ · scale + bias) v over the columns a row may see."""
        q, k, v = torch.split_with_sizes(qkv, heads.widths, -1)
        n, rotation = step.n, step.rotation
        cache.append(layer, n, step.columns, heads.keys(k, n, rotation), heads.values(v, n))
        keys, values = (part[:n, :, : step.n_keys] for part in cache.past[layer])
        return self.attend(heads.queries(q, n, rotation), keys, values, step.bias, heads=heads)

    def cross_attend(
        self, q: Float[Tensor, "R all"], heads: Heads, cache: Cache, layer: int, step: StepInputs
    ) -> Float[Tensor, "R HDv"]:
        """softmax(q kᵀ · scale + bias) v over the source's tokens."""
        keys, values = (part[: step.n, :, : step.n_source] for part in cache.source[layer])
        return self.attend(heads.queries(q, step.n), keys, values, step.source_bias, heads=heads)

    def reads_what_is_there(self, heads: Heads, cache: Cache, *, source: bool) -> bool:
        """Does attention by these heads cost the same, however many columns that are not filled a step's shapes include?"""
        return False

    def fused_search(self, state: Any) -> Any:
        """A function (cache, logits, n) that makes a whole step of this search, or None: it is made by the search itself."""
        return None

    def best(self, scores: Float[Tensor, "R V"], k: int) -> tuple[Float[Tensor, "R k"], Int[Tensor, "R k"]]:
        """The k highest scores of each row and their tokens."""
        return choose.best(scores, k)
