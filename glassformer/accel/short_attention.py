"""Attention for training on short rows on a CPU: the equation as a few products over all heads at once.

torch's kernel sets up its blocks for every head of every sentence, and its softmax of few columns goes number by number,
so for rows of a dozen tokens most of the time is not spent on attention. Whether this form is faster, and up to how many
keys, differs from processor to processor: whoever installs it says (install.py; trials.py finds out by a trial).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer import machine
from glassformer.nn.attention import fused_attention
from glassformer.nn.masks import AttentionMask
from glassformer.nn.modes import is_symbolic, refuse_second_derivative


class ShortAttention(torch.autograd.Function):
    """softmax(q k^T scale) v with its derivative by hand."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, scaled: bool) -> Tensor:
        """q (B, H, T, D), k (B, H, S, D), v (B, H, S, Dv) -> (B, H, T, Dv)"""
        ctx.shape = shape = (*q.shape[:3], k.size(2))
        ctx.scale = scale = q.size(-1) ** -0.5 if scaled else 1.0
        q, k, v = (t.reshape(-1, *t.shape[2:]) for t in (q, k, v))
        scores = torch.baddbmm(q.new_empty(()), q, k.transpose(1, 2), beta=0, alpha=scale)
        allowed = mask.to_tensor(shape[2], shape[3], q.device)
        masked = None if allowed is None else ~allowed
        if masked is not None:
            scores.view(shape).masked_fill_(masked, torch.finfo(scores.dtype).min)
        if shape[3] < machine.vector_lanes():  # torch's softmax would go number by number
            weights = scores.sub_(scores.amax(dim=-1, keepdim=True)).exp_()
            weights.div_(weights.sum(dim=-1, keepdim=True))
        else:
            weights = scores.softmax(dim=-1)
        if masked is not None:
            weights.view(shape).masked_fill_(masked, 0.0)  # a query that may see nothing gets nothing
        ctx.save_for_backward(q, k, v, weights)
        return torch.bmm(weights, v).view(*shape[:3], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """The gradients of q, k and v, from the kept weights."""
        refuse_second_derivative()
        q, k, v, weights = ctx.saved_tensors
        rows, heads = ctx.shape[:2]
        grad = grad.reshape(rows * heads, -1, v.size(2))
        grad_v = torch.bmm(weights.transpose(1, 2), grad)
        grad_scores = torch.bmm(grad, v.transpose(1, 2)).mul_(weights)
        # The derivative of softmax: w * (g - <w, g>).
        grad_scores.addcmul_(weights, grad_scores.sum(dim=-1, keepdim=True), value=-1)
        empty = q.new_empty(())
        grad_q = torch.baddbmm(empty, grad_scores, k, beta=0, alpha=ctx.scale)
        grad_k = torch.baddbmm(empty, grad_scores.transpose(1, 2), q, beta=0, alpha=ctx.scale)
        return *(t.view(rows, heads, *t.shape[1:]) for t in (grad_q, grad_k, grad_v)), None, None


@dataclass(frozen=True)
class ShortAttentionKernel:
    """A kernel for MultiHeadAttention: in training, rows of at most `max_keys` keys by `ShortAttention`; all
    else by torch's kernel."""

    stands_for = staticmethod(fused_attention)

    max_keys: int

    def applies(self, q: Tensor, k: Tensor, mask: AttentionMask, dropout: float) -> bool:
        """Whether these queries and keys are a case for it."""
        return (
            k.size(2) <= self.max_keys
            and q.device.type == "cpu"
            and torch.is_grad_enabled()
            and q.requires_grad
            and q.size(1) == k.size(1)
            and mask.bias is None
            and dropout == 0.0
            and not is_symbolic()
        )

    def __call__(
        self,
        q: Float[Tensor, "B H T D"],
        k: Float[Tensor, "B Hk S D"],
        v: Float[Tensor, "B Hk S Dv"],
        mask: AttentionMask,
        *,
        scaled: bool = True,
        dropout: float = 0.0,
    ) -> Float[Tensor, "B H T Dv"]:
        """As `fused_attention`."""
        if self.applies(q, k, mask, dropout):
            return ShortAttention.apply(q, k, v, mask, scaled)  # type: ignore[no-any-return]
        return fused_attention(q, k, v, mask, scaled=scaled, dropout=dropout)
