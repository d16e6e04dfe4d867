"""Where sentences lie in rows: the row of each, its segment there, its first column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import PAD


@dataclass(frozen=True)
class RowLayout:
    """Where each of some sentences goes: its row, its segment number in the row, and (for a side) its first column."""

    row: Int[np.ndarray, " n"]
    segment: Int[np.ndarray, " n"]

    @staticmethod
    def in_rows(row: Int[np.ndarray, " n"]) -> RowLayout:
        """`row` ascends; sentences of a row are numbered 1, 2, 3 …"""
        return RowLayout(row, np.arange(len(row)) - np.searchsorted(row, row) + 1)

    def columns(self, lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The column in which each sentence begins, given the sentences' lengths."""
        starts = np.cumsum(lengths) - lengths
        return starts - starts[np.searchsorted(self.row, self.row)] if len(starts) else starts

    def widest(self, lengths: Int[np.ndarray, " n"]) -> int:
        """The width that the longest row needs."""
        return int((self.columns(lengths) + lengths).max(initial=1))

    def place(self, flat: Int[np.ndarray, " m"], lengths: Int[np.ndarray, " n"], height: int, width: int) -> Rows:
        """Sentences given end to end, as rows."""
        inside = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = np.repeat(self.row * width + self.columns(lengths), lengths) + inside
        tokens = scatter(flat, at, height, width, PAD)
        segments = scatter(np.repeat(self.segment, lengths), at, height, width, 0)
        positions = scatter(inside, at, height, width, 0)
        return Rows(tokens, segments, positions, "packed")


def scatter(values: Int[np.ndarray, " m"], at: Int[np.ndarray, " m"], height: int, width: int, empty: int) -> Tensor:
    """A rectangle of `empty` with the values at their places."""
    out = np.full(height * width, empty, np.int64)
    out[at] = values
    return torch.from_numpy(out).view(height, width)


def one_a_row(rows: Rows, lengths: Int[np.ndarray, " n"]) -> Rows:
    """What the maker of such rows knows about their layout."""
    return Rows.padded(rows.tokens, lengths.tolist())
