"""Small matrices on a CPU, multiplied by torch's BLAS in place of oneDNN: on some machines (ARM) oneDNN takes longer to set a
product up than a small one takes to compute. Whether that is so here, and up to which size, a trial tells (trials.py)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.accel import trials

WIDTHS, ROWS = (32, 64, 128, 256, 512), 16

ONEDNN: Any = torch.backends.mkldnn
LOCK = threading.Lock()
inside = 0  # blocks of `without_onednn` that are open, in all threads: the switch is torch's, one a process
before = True  # how the first of them found it


@contextmanager
def small_products(net: Any, rows: int) -> Iterator[None]:
    """Inside, BLAS multiplies so many rows by this model's matrices, where it is the faster one on this machine."""
    on_cpu = next(net.parameters()).device.type == "cpu" and ONEDNN.is_available()
    with without_onednn(on_cpu and rows * net.config.n_embd**2 <= largest_small_product()):
        yield


@contextmanager
def without_onednn(wanted: bool = True) -> Iterator[None]:
    """Inside, where that is wanted, products are BLAS's."""
    if not wanted:
        yield
        return
    count(1)
    try:
        yield
    finally:
        count(-1)


def count(more: int) -> None:
    """One block more or less; oneDNN is off while there is any."""
    global inside, before
    with LOCK:
        before = before if inside else ONEDNN.enabled
        inside += more
        ONEDNN.enabled = before and inside == 0


def try_small_products() -> dict[str, float]:
    """How many times as fast a linear layer is without oneDNN, by multiplications."""

    def linear(x: Tensor, weight: Tensor, enabled: bool) -> Tensor:
        ONEDNN.enabled = enabled
        return F.linear(x, weight)

    found, switch = {}, ONEDNN.enabled
    with LOCK, torch.no_grad():
        for width in WIDTHS:
            x, weight = torch.ones(ROWS, width), torch.ones(width, width)
            blas, plain = partial(linear, x, weight, False), partial(linear, x, weight, True)
            found[str(ROWS * width**2)] = trials.speedup(blas, plain, seconds=0.02)
        ONEDNN.enabled = switch
    return found


def largest_small_product() -> int:
    """Up to so many multiplications BLAS is faster here; 0: never."""
    return trials.largest_size_worth(trials.gains("small products", try_small_products))
