"""The other thing attention replaced: a convolution, in which a token sees its k nearest (Gehring et al. 2017).

    y_t = b + sum_j W_j x_{t - j}            j = 0 … k-1 where it is causal, else as many on each side

All tokens at once, like attention, at k n d^2 multiplications; but a token sees further only by going through more
layers: after L of them, L (k - 1) tokens back.
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.nn.masks import AttentionMask


class Convolution(nn.Module):
    """A convolution where a block has its self-attention: the same call, so that the two can be compared.

    >>> import torch
    >>> Convolution(16, kernel_size=3)(torch.zeros(2, 5, 16), AttentionMask(causal=True)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, n_embd: int, *, kernel_size: int = 3) -> None:
        super().__init__()
        if kernel_size % 2 == 0:
            raise ValueError(f"a kernel with a middle has an odd size, not {kernel_size}")
        self.kernel_size = kernel_size
        self.layer = nn.Conv1d(n_embd, n_embd, kernel_size)

    def forward(self, x: Float[Tensor, "B T C"], mask: AttentionMask) -> Float[Tensor, "B T C"]:
        """(B, T, C) -> (B, T, C); `mask` says whether it may see to the right."""
        if mask.allowed is not None:
            # Padding says nothing to its neighbours.
            x = x * mask.allowed[:, 0, 0][..., None].to(x.dtype)
        side = self.kernel_size - 1
        left = side if mask.causal else side // 2
        return self.layer(F.pad(x.transpose(1, 2), (left, side - left))).transpose(1, 2)  # type: ignore[no-any-return]
