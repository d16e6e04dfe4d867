"""Attention without the softmax, in time that grows with the length and not with its square (Katharopoulos et al. 2020).

    out_t = phi(q_t) S / (phi(q_t) . z),     S = sum_s phi(k_s) v_s^T,     z = sum_s phi(k_s),     phi(x) = elu(x) + 1

The sums run over all tokens, or, where attention is causal, over those up to t: a recurrent network whose state is a
matrix. Here the causal sums go chunk by chunk: inside a chunk the weights are written out, what came before is in S.

Written twice. `linear_attention_weights` is the quadratic form, which takes any mask and is what a tap shows;
`linear_attention` never holds the T x T weights. Tests pin one to the other. The price of having no softmax: no weight can
be close to one for a single key among many, so what attention finds exactly, this finds blurred.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from glassformer.nn.attention import MultiHeadAttention, repeat_kv
from glassformer.nn.masks import AttentionMask

CHUNK = 64  # queries whose weights are written out together
EPS = 1e-6  # a query that may see nothing gets nothing


def feature_map(x: Tensor) -> Tensor:
    """phi: every feature above zero, so that every weight is."""
    return F.elu(x) + 1


def linear_attention_weights(
    q: Float[Tensor, "*b T D"], k: Float[Tensor, "*b S D"], mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*b T S"]:
    """The quadratic form: phi(q) . phi(k), each row divided by its sum over what it may see."""
    scores = feature_map(q) @ feature_map(k).transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, 0.0)
    return scores / scores.sum(dim=-1, keepdim=True).clamp(min=EPS)


def linear_attention(
    q: Float[Tensor, "*b T D"],
    k: Float[Tensor, "*b S D"],
    v: Float[Tensor, "*b S Dv"],
    *,
    causal: bool = False,
    real: Bool[Tensor, "*c S"] | None = None,
) -> Float[Tensor, "*b T Dv"]:
    """The same in linear time. `real` is False at keys that are padding."""
    q, k = feature_map(q), feature_map(k)
    if real is not None:
        k = k * real[..., None].to(k.dtype)
    if not causal:
        state, total = k.transpose(-2, -1) @ v, k.sum(dim=-2)
        return (q @ state) / (q @ total[..., None]).clamp(min=EPS)
    state = q.new_zeros(*q.shape[:-2], q.size(-1), v.size(-1))
    total = q.new_zeros(*q.shape[:-2], q.size(-1))
    out = []
    for q_now, k_now, v_now in zip(*(t.split(CHUNK, dim=-2) for t in (q, k, v)), strict=True):
        inside = (q_now @ k_now.transpose(-2, -1)).tril()
        numerator = q_now @ state + inside @ v_now
        denominator = q_now @ total[..., None] + inside.sum(dim=-1, keepdim=True)
        out.append(numerator / denominator.clamp(min=EPS))
        state = state + k_now.transpose(-2, -1) @ v_now
        total = total + k_now.sum(dim=-2)
    return torch.cat(out, dim=-2)


class LinearAttention(MultiHeadAttention):
    """Multi-head attention with this kernel in the place of softmax: the same projections, names and calls."""

    def fused(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> Float[Tensor, "B H T Dv"]:
        """Linear time where the mask is causal, hides padding, or both; else the quadratic form."""
        real = real_keys(mask)
        if mask.bias is not None or mask.window is not None or (mask.allowed is not None and real is None):
            return self.explicit(q, k, v, mask, q.size(2))
        if mask.causal and q.size(-2) != k.size(-2):
            return self.explicit(q, k, v, mask, q.size(2))
        k, v = repeat_kv(q, k, v)
        return linear_attention(q, k, v, causal=mask.causal, real=real)

    def explicit(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, length: int = 0
    ) -> Float[Tensor, "B H T Dv"]:
        """The quadratic form, with the tap of attention's weights."""
        k, v = repeat_kv(q, k, v)
        weights = linear_attention_weights(q, k, mask.to_tensor(q.size(2), k.size(2), q.device))
        return self.tap_rows("weights", weights, length) @ v


def real_keys(mask: AttentionMask) -> Bool[Tensor, "B 1 S"] | None:
    """The keys that are no padding, where that is all the mask hides; None where it hides nothing or more."""
    if mask.allowed is None or mask.allowed.size(-2) != 1:
        return None
    return mask.allowed[:, :, 0]
