"""Many sequences of numbers as one array, and many slices of it as one index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from jaxtyping import Int

Flat = Int[np.ndarray, " _"]
"""Sequences end to end."""
Numbers = Int[np.ndarray, " _"]
"""A number for each of some sequences, or words."""


def ranges(starts: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
    """starts[0], starts[0]+1, … (lengths[0] of them), then the same for the next: many slices as one index."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def end_to_end(sequences: Sequence[Sequence[int]]) -> tuple[Flat, Numbers]:
    """Many sequences as one, and the length of each."""
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    return np.fromiter(chain.from_iterable(sequences), np.int64, int(lengths.sum())), lengths
