"""The operations of decoding by torch's own: the reference, for every model and every device.

An `Ops` object is the table. The decoder calls nothing else, so whoever replaces an entry (packed.py, triton.py) subclasses
`TorchOps` and overrides it; "few rows" and "many rows" is a choice inside an entry. R rows are (slot, beam), slot-major.

    pack(parts)                          the weights of linear layers with one input, as `linear` wants them
    pack_output(weight, bias)            the same for the logits
    linear(x, weights, activation)       (R, in) -> (R, out)
    add_and_norm(x, change, norm)        x + change and the norm of it: (R, C), (R, C)
    embed(tokens, positions, embedding)  (R,) -> (R, C): token embedding, scale and position
    attend(q, k, v, bias, ...)           softmax(q kᵀ · scale + bias) v, a slot's queries to its keys
    self_attend(...), cross_attend(...)  the same on the cache: split, norm, rotate, append, attend. One entry each, so
                                         that a kernel may do all of it
    topk(scores, k)                      the k best of every row, best first

Contract for kernels: no entry looks at a value of a device tensor from the host, and none allocates memory whose size
depends on one; shapes follow from (n, n_keys, n_source) alone, so a step made of them can be captured. What `linear` returns
with `to_residual` goes to `add_and_norm` and nowhere else: it may be anything that this one understands.
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

LinearWeights = Sequence[tuple[Tensor, Tensor | None]]
"""Weights (out, in) and biases (out) of linear layers with the same input: the parameters themselves, not copies."""


class Heads:
    """Numbers and sizes of the heads of one MultiHeadAttention, and its query and key norms; without its projections."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        self.n_head, self.n_kv_head = attention.n_head, attention.n_kv_head
        self.head_ids = list(attention.head_ids) if attention.pruned else None
        self.head_size, self.value_size = attention.head_size, attention.value_size
        self.scale = None if attention.scaled else 1.0
        self.query_norm, self.key_norm = attention.query_norm, attention.key_norm
        self.qkv_sizes = [
            self.n_head * self.head_size,
            self.n_kv_head * self.head_size,
            self.n_kv_head * self.value_size,
        ]

    def queries(self, q: Tensor, n: int, rotation: Rotation | None = None) -> Float[Tensor, "n H M D"]:
        """(slot, token) rows as queries by head, normed and rotated as the model does."""
        q = q.view(n, q.size(0) // n, self.n_head, self.head_size)
        q = q if self.query_norm is None else self.query_norm(q)
        q = q.transpose(1, 2)
        return q if rotation is None else rotation.rotate(q)

    def keys(self, k: Tensor, n: int, rotation: Rotation | None = None) -> Float[Tensor, "n Hk M D"]:
        """(slot, token) rows as keys by head, normed and rotated as the model does."""
        k = k.view(n, k.size(0) // n, self.n_kv_head, self.head_size)
        k = k if self.key_norm is None else self.key_norm(k)
        k = k.transpose(1, 2)
        return k if rotation is None else rotation.rotate(k)

    def values(self, v: Tensor, n: int) -> Float[Tensor, "n Hk M Dv"]:
        """(slot, token) rows as values by head."""
        return v.view(n, v.size(0) // n, self.n_kv_head, self.value_size).transpose(1, 2)


@dataclass(frozen=True)
class StepInputs:
    """What a step tells every layer, computed once: how many slots, the bias of their queries' attention to the first n_keys
    columns (None: all are allowed), the rotation of the new tokens, the columns they fill."""

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

    def pack(self, parts: LinearWeights) -> Any:
        """Weights (out, in) and biases of linear layers with one input, as `linear` wants them."""
        return list(parts)

    def pack_output(self, weight: Tensor, bias: Tensor | None = None) -> Any:
        """The weight (V, in) and bias of the logits, as `linear` wants them."""
        return self.pack([(weight, bias)])

    def linear(
        self, x: Float[Tensor, "R in"], weights: Any, activation: Any = None, *, to_residual: bool = False
    ) -> Any:
        """activation(x Wᵀ + b) for each of the weights, side by side; `to_residual`: the result is only added to the
        residual."""
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
        """Attention, the heads' outputs side by side in rows (slot, token). Heads that share keys (grouped queries) go
        together."""
        n, tokens, groups = q.size(0), q.size(2), max(1, heads.n_head // max(1, heads.n_kv_head))
        if not heads.n_head:
            return q.new_zeros(n * tokens, 0)
        if heads.head_ids is not None and bias is not None and bias.size(1) > 1:
            bias = bias[:, heads.head_ids]  # ALiBi's slopes of the heads that are left
        if groups > 1 and not causal:
            q = q.reshape(n, heads.n_kv_head, groups * tokens, -1)
            if bias is not None:
                rows, _, queries, keys = bias.shape
                bias = bias.expand(rows, heads.n_head, tokens if queries > 1 else 1, keys)
                bias = bias.expand(-1, -1, tokens, -1).reshape(rows, heads.n_kv_head, groups * tokens, keys)
        found = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=causal, scale=heads.scale, enable_gqa=groups > 1 and causal
        )
        if groups > 1 and not causal:
            found = found.reshape(n, heads.n_head, tokens, -1)
        return found.transpose(1, 2).reshape(n * tokens, -1)

    def self_attend(
        self, qkv: Float[Tensor, "R all"], heads: Heads, cache: Cache, layer: int, step: StepInputs
    ) -> Float[Tensor, "R HDv"]:
        """Keys and values into the cache, then softmax(q kᵀ · scale + bias) v over the columns a row may see."""
        q, k, v = torch.split_with_sizes(qkv, heads.qkv_sizes, -1)
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

    def skips_empty_columns(self, heads: Heads, cache: Cache, *, source: bool) -> bool:
        """Does attention by these heads cost the same, however many empty columns a step's shapes include?"""
        return False

    def fused_search(self, state: Any) -> Any:
        """A function (cache, logits, n) that makes a whole step of this search; None: the search makes it itself."""
        return None

    def topk(self, scores: Float[Tensor, "R V"], k: int) -> tuple[Float[Tensor, "R k"], Int[Tensor, "R k"]]:
        """The k highest scores of each row and their tokens."""
        return choose.topk(scores, k)
