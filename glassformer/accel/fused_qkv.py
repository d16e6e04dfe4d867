"""A fused QKV projection: queries, keys and values by one matrix product in place of three. For the compiled model, where
concatenating the three weights is fused with their conversion to bfloat16. Parameters and their names stay as they are."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.positions import Rotation


class FusedQKVAttention(MultiHeadAttention):
    """Multi-head attention whose three projections are one product while it is compiled; otherwise as ever."""

    stands_for = MultiHeadAttention

    def qkv_product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b, for W the three weights concatenated. (B, T, C) -> (B, T, q + k + v)"""
        return F.linear(x, weight, bias)

    def project(self, x: Float[Tensor, "B T C"], rotation: Rotation | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of self-attention."""
        if not torch.compiler.is_compiling():
            return super().project(x, rotation)
        parts = (self.query, self.key, self.value)
        weight = torch.cat([p.weight for p in parts])
        bias = torch.cat([p.bias for p in parts]) if self.query.bias is not None else None
        sizes = [p.out_features for p in parts]
        q, k, v = self.qkv_product(x, weight, bias).split(sizes, dim=-1)
        q = q.view(*x.shape[:-1], self.n_head, self.head_size).transpose(1, 2)
        k = k.view(*x.shape[:-1], self.n_kv_head, self.head_size).transpose(1, 2)
        v = v.view(*x.shape[:-1], self.n_kv_head, self.value_size).transpose(1, 2)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        return (q, k, v) if rotation is None else (rotation.rotate(q), rotation.rotate(k), v)
