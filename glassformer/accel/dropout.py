"""Dropout by a hash of a counter: each number is zero with probability p, and the others are 1 / (1 - p) times what they were.

Run step by step dropout is torch's. In a compiled step the generator behind torch's dropout (Philox: ten rounds of long
multiplications for every number, and again in the backward pass) takes longer than reading and writing the numbers it
drops. There, each call draws one seed from torch's generator, and who is dropped follows from a hash of the seed and the
index: a counter-based generator (Salmon et al. 2011) of two multiplications and three shifts (the finalizer of MurmurHash3,
Appleby 2011), which are fused into the kernel around them. So compiled and uncompiled training drop different numbers at the
same rate; each follows from the seed of the run.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


def hash_bits(indices: Int[Tensor, "*any"], seed: Int[Tensor, ""]) -> Int[Tensor, "*any"]:
    """31 pseudo-random bits for each index: int32 in, int32 out, overflow intended. The seed is one of 31 random bits; it goes in
    twice, so that two seeds do not give one pattern in another order."""
    h = indices ^ seed
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789 + seed
    h = (h ^ ((h >> 13) & 0x7FFFF)) * -1028477387
    return (h ^ ((h >> 16) & 0xFFFF)) & 0x7FFFFFFF


def keep_mask(shape: torch.Size, p: float, seed: Int[Tensor, ""]) -> Bool[Tensor, "*shape"]:
    """True where dropout keeps a number: each with probability 1 - p, by the hash of its index."""
    indices = torch.arange(shape.numel(), dtype=torch.int32, device=seed.device).view(shape)
    return hash_bits(indices, seed) >= int(p * 2**31)


class HashDropout(nn.Dropout):
    """Dropout by the hash of a seed and the index while it is compiled; torch's otherwise."""

    stands_for = nn.Dropout

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """x, with numbers dropped while training."""
        if not self.training or self.p == 0.0 or not torch.compiler.is_compiling():
            return F.dropout(x, self.p, self.training)
        seed = torch.randint(2**31 - 1, (), dtype=torch.int32, device=x.device)
        return torch.where(keep_mask(x.shape, self.p, seed), x * (1 / (1 - self.p)), 0.0)
