"""Small matrices on a CPU, multiplied by torch's BLAS in place of oneDNN: on some machines (ARM) oneDNN takes longer to set a
product up than a small one takes to compute. Whether that is so here, and up to which size, trials tell (trials.py): one for a
model that reads a few rows, one for Muon's iteration, one for training."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from glassformer.accel import trials

WIDTHS, ROWS, TRAINED_ROWS = (32, 64, 128, 256), 16, 512

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


def gain_by_blas(compute: Callable[[], object]) -> float:
    """How many times as fast something is without oneDNN."""

    def run(enabled: bool) -> None:
        ONEDNN.enabled = enabled
        compute()

    with LOCK:
        switch = ONEDNN.enabled
        try:
            return trials.speedup(partial(run, False), partial(run, True), seconds=0.02, rounds=5)
        finally:
            ONEDNN.enabled = switch


def try_small_products() -> dict[str, float]:
    """The gain of a linear layer that reads a few rows, by multiplications."""
    with torch.no_grad():
        tried = {width: (torch.ones(ROWS, width), torch.ones(width, width)) for width in (*WIDTHS, 512)}
        return {str(ROWS * width**2): gain_by_blas(partial(F.linear, *both)) for width, both in tried.items()}


def try_newton_schulz() -> dict[str, float]:
    """The gain of eight matrices each multiplied by its own transpose, by multiplications a matrix."""
    with torch.no_grad():
        tried = {width: torch.ones(8, width, width) for width in WIDTHS}
        return {str(width**3): gain_by_blas(partial(torch.matmul, x, x.mT)) for width, x in tried.items()}


def try_training() -> dict[str, float]:
    """The gain of a linear layer's forward and backward pass, by its width."""
    found = {}
    with torch.enable_grad():
        for width in WIDTHS:
            x, weight = (torch.ones(rows, width, requires_grad=True) for rows in (TRAINED_ROWS, width))
            found[str(width)] = gain_by_blas(lambda x=x, w=weight: torch.autograd.grad(F.linear(x, w).sum(), (x, w)))  # type: ignore[misc]
    return found


def largest_small_product() -> int:
    """Up to so many multiplications a product with few rows is BLAS's here; 0: never."""
    return trials.largest_size_worth(trials.gains("small products", try_small_products))


def largest_newton_schulz() -> int:
    """Up to so many multiplications a matrix, the products of Muon's iteration are BLAS's here; 0: never."""
    return trials.largest_size_worth(trials.gains("newton schulz", try_newton_schulz))


def widest_training() -> int:
    """Up to this width a model is trained by BLAS here; 0: never."""
    return trials.largest_size_worth(trials.gains("training products", try_training))
