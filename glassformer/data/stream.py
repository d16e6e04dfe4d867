"""The order of things: everything random about the data follows from a seed and a place.

A training stream is endless: epoch 0, epoch 1, … Its state is a `Position`, two integers. Nothing is drawn from a
generator that was advanced earlier; each random choice asks Philox, a counter-based generator (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", 2011), for the words that belong to its seed, its epoch and its item. So a stream
can start anywhere and is the stream that would have been there anyway.

Only raw 64-bit words are used, and orders are stable sorts of them: NumPy promises the words of Philox for all
platforms and versions, but not what its convenience methods make of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from jaxtyping import Float, Int, UInt64


class Stream(IntEnum):
    """Independent sequences of random words for the same seed and epoch."""

    ORDER = 0  # of examples or blocks
    ROWS = 1  # which rows share a batch
    BATCHES = 2  # in which order batches come
    PHASE = 3  # where blocks or buckets begin
    MASK = 4  # which tokens BERT must guess
    DROPOUT = 5  # what a step draws on one of several processes (the epoch is the step, the item the rank)


@dataclass(frozen=True)
class Position:
    """`index` batches of epoch `epoch` have been taken."""

    epoch: int = 0
    index: int = 0


def random_bits(
    count: int, seed: int, epoch: int, stream: Stream = Stream.ORDER, item: int = 0
) -> UInt64[np.ndarray, " n"]:
    """The random words of one item. Streams and items never overlap: each has 2**66 words of its own."""
    key = np.array([seed % 2**64, epoch], dtype=np.uint64)
    counter = np.array([0, item, int(stream), 0], dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count)


def uniform(bits: UInt64[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Words as numbers in [0, 1), by their upper 53 bits."""
    return (bits >> np.uint64(11)) * 2.0**-53


def epoch_order(n: int, seed: int, epoch: int, stream: Stream = Stream.ORDER) -> Int[np.ndarray, " n"]:
    """A permutation of 0 … n-1, another one each epoch, the same on every machine."""
    return np.argsort(random_bits(n, seed, epoch, stream), kind="stable")
