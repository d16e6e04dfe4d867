"""Who may attend to whom, from rows of tokens. A mask is True where attention is allowed.

a token sees the tokens of its own segment; a decoder also never sees a later position.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glassformer.nn.rows import Rows


@dataclass(frozen=True)
class AttentionMask:
    """Which keys each query may attend to. `allowed` is True where attention is allowed, None where all that `causal` allows is
    allowed. `bias` is added to the scores (ALiBi's preference for what is near). `window`, where attention is causal and a
    row's tokens stand in order, shows the last so many keys, self included, without a mask that grows with the square of
    the length."""

    allowed: Bool[Tensor, "B 1 T S"] | None = None
    causal: bool = False
    bias: Float[Tensor, "P H T S"] | None = None
    window: int | None = None

    def to_tensor(self, n_queries: int, n_keys: int, device: torch.device) -> Bool[Tensor, "..."] | None:
        """The same as one boolean tensor, True where attention is allowed (None: every query sees every key)."""
        if not self.causal:
            return self.allowed
        triangle = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril()
        if self.window is not None:
            triangle = triangle.triu(1 - self.window)
        return triangle if self.allowed is None else triangle & self.allowed


def self_mask(rows: Rows, *, causal: bool, window: int | None = None) -> AttentionMask:
    """Self-attention: inside the segment; causal: not later than oneself; window: at most that many keys, self included
    (on each side, where attention runs both ways)."""
    if (window is None and rows.layout == "whole") or (causal and rows.layout != "packed"):
        # Right padding lies in everyone's future, so the causal rule alone already hides it.
        return AttentionMask(causal=causal, window=window)
    mask = rows.segments[:, :, None] == rows.segments[:, None, :]
    distance = rows.positions[:, :, None] - rows.positions[:, None, :]
    if causal:
        mask = mask & (distance >= 0)
    if window is not None:
        mask = mask & (distance.abs() < window)
    mask = mask | (rows.segments == 0)[:, :, None]
    return AttentionMask(mask[:, None])


def cross_mask(queries: Rows, keys: Rows) -> AttentionMask:
    """Cross-attention: equal segments of the two rows. There is no window: positions of two texts have no distance."""
    if queries.layout in ("whole", "padded") and keys.layout == "whole":
        return AttentionMask()
    mask = (queries.segments[:, :, None] == keys.segments[:, None, :]) | (queries.segments == 0)[:, :, None]
    return AttentionMask(mask[:, None])


def split_mask(mask: Tensor) -> tuple[Bool[Tensor, "..."], Float[Tensor, "..."] | None]:
    """Where attention is allowed, and what is added to the scores (None: nothing), of a mask in any of the ways that people
    write one: True or 1 where attention is allowed, also as floats (torch.ones(T, T).tril()), or 0 and -inf to be added.

    Floats are added unless they are zeros and ones with a one among them: added, such a mask would hide nothing."""
    if not mask.is_floating_point() or not (((mask != 0) & (mask != 1)).any() or not mask.any()):
        return mask != 0, None
    allowed = mask != -torch.inf
    bias = mask.masked_fill(~allowed, 0.0)
    return allowed, bias if bool(bias.any()) or bias.requires_grad else None


def as_mask(given: Tensor | None, shape: tuple[int, int, int | None]) -> AttentionMask:
    """A tensor as a mask (see `split_mask`): (T, S), (B, T, S) or (B, 1, T, S); (B, S) would be ambiguous and is to be
    written (B, 1, S). None: all see all. `shape` is (B, T, S) of the attention, where S is known."""
    if given is None:
        return AttentionMask()
    shaped = {2: lambda m: m[None, None], 3: lambda m: m[:, None], 4: lambda m: m}
    mask = shaped.get(given.dim(), lambda m: m)(given)
    batch, queries, keys = shape
    sizes = zip(mask.shape, (batch, None, queries, keys), strict=False)
    if mask.dim() != 4 or any(own not in (1, size) for own, size in sizes if size is not None):
        known = ", ".join(f"{name}={size}" for name, size in zip("BTS", shape) if size is not None)
        raise ValueError(f"a mask is (T, S), (B, T, S) or (B, 1, T, S) with {known} here, not {tuple(given.shape)}")
    allowed, bias = split_mask(mask)
    return AttentionMask(allowed, bias=bias)
