"""Numbers that the host knows, and what it does with slots of memory on a device without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor


def on_device(numbers: Any, device: torch.device) -> Int[Tensor, "..."]:
    """What the host knows, on the device. From pinned memory: from any other the host would wait for what is under way there."""
    made = torch.as_tensor(numbers)
    return (made.pin_memory() if device.type == "cuda" else made).to(device, non_blocking=True)


def most_of(numbers: Int[Tensor, "n"]) -> int:
    """The largest of some numbers of the host, none of them negative."""
    return int(numbers.max()) if numbers.numel() else 0


def move_slots(tensors: Sequence[Tensor], from_slots: Sequence[int], to_slots: Sequence[int]) -> None:
    """tensor[to_slots] = tensor[from_slots], for each tensor."""
    slots = on_device([from_slots, to_slots], tensors[0].device)
    for tensor in tensors:
        if tensor.numel():
            tensor.index_copy_(0, slots[1], tensor.index_select(0, slots[0]))
