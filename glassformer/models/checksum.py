"""Has a weight changed, or a batch norm's running statistics? Copies of weights (packed, on a device, in another engine) are
used as long as the checksum stays.

An optimizer may write to parameters without anything in torch telling so (a fused step raises no version), so sums over every
row of every parameter are compared: a look at each weight, where decoding a text looks at each for every token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Primes: in lines of one of them no two neighbouring rows of a matrix lie under one another.
LINE_LENGTHS = (8191, 8179)


def saved_buffers(model: Any) -> list[Tensor]:
    """What is saved with the parameters and is none: running statistics. Tables that are computed and grow are not."""
    buffers = [(module, name, b) for module in model.modules() for name, b in module.named_buffers(recurse=False)]
    return [b for module, name, b in buffers if name not in module._non_persistent_buffers_set]


def weight_checksum(model: Any) -> Tensor:
    """Changes whenever a weight does, at the price of one look at each: the bits of every parameter, and of every buffer that
    is saved with them, in words of 64, written in lines of 8,191 words, and the sums of the columns. Words that change places
    are seen too, unless they are a multiple of a line apart. Empty for a model that nobody has been given: it cannot change."""
    if not getattr(model, "handed_out", True):
        return torch.empty(0, dtype=torch.int64, device=next(model.parameters()).device)
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = []
    for p in (*model.parameters(), *saved_buffers(model)):
        bits = p.detach().contiguous().view(-1)
        fits = bits.numel() * bits.element_size() % 8 == 0 == bits.storage_offset() * bits.element_size() % 8
        bits = bits.view(torch.int64) if fits else bits.view(integers[bits.element_size()]).long()
        line = LINE_LENGTHS[p.dim() > 0 and p.size(-1) % LINE_LENGTHS[0] == 0]
        full = bits.numel() // line * line
        sums += [bits[:full].view(-1, line).sum(0), bits[full:]] if full else [bits]
    return torch.cat(sums)
