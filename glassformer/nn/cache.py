"""Keys and values of the tokens read so far, so that the next token costs one token's work.

A fixed capacity is set aside once; each row has a length of its own, so prompts of different lengths share a batch,
padded on the right: what a short prompt's padding wrote is overwritten by its first new tokens and never seen before
that. Three verbs: `append` (a layer hands in new keys and values and gets all of them back), `advance` (the model, after
its last layer, says the tokens count now), `reorder` (row i becomes what row rows[i] was; the number of rows may change).

`filled` is a Python number no smaller than any length: attention reads that many columns, so the time of a step follows
what has been written and not the capacity, with no look at the device. While all rows have the same length (`equal_lengths`), a
single new token needs no mask at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.nn.masks import AttentionMask


class KVCache:
    """Keys and values of every layer, (rows, heads, capacity, size), and how many of each row's columns are filled."""

    def __init__(
        self,
        n_kv_heads: Sequence[int],  # of each layer
        rows: int,
        capacity: int,
        head_size: int,
        value_size: int,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.capacity = capacity
        self.keys = [torch.zeros(rows, n, capacity, head_size, device=device, dtype=dtype) for n in n_kv_heads]
        self.values = [torch.zeros(rows, n, capacity, value_size, device=device, dtype=dtype) for n in n_kv_heads]
        self.lengths: Int[Tensor, "B"] = torch.zeros(rows, dtype=torch.long, device=device)
        self.filled = 0
        self.equal_lengths = True

    def positions(self, new: int) -> Int[Tensor, "B new"]:
        """The positions that the next `new` tokens of each row will have."""
        return self.lengths[:, None] + torch.arange(new, device=self.lengths.device)

    def mask(self, new: int, window: int | None = None) -> AttentionMask:
        """Each new token sees what its row holds up to itself."""
        if self.filled + new > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} tokens a row; {self.filled + new} were asked of it")
        if window is None and self.equal_lengths:
            if new == 1:
                return AttentionMask()
            if self.filled == 0:
                return AttentionMask(causal=True)
        queries = self.positions(new)[:, :, None]
        keys = torch.arange(self.filled + new, device=self.lengths.device)
        mask = keys <= queries
        if window is not None:
            mask = mask & (queries - keys < window)
        return AttentionMask(mask[:, None])

    def append(
        self, layer: int, k: Float[Tensor, "B H new D"], v: Float[Tensor, "B H new Dv"]
    ) -> tuple[Float[Tensor, "B H all D"], Float[Tensor, "B H all Dv"]]:
        """Writes the new columns of a layer, and gives all that is filled."""
        end = self.filled + k.size(2)
        keys, values = self.keys[layer], self.values[layer]
        if self.equal_lengths:
            keys[:, :, self.filled : end] = k
            values[:, :, self.filled : end] = v
        else:
            rows = torch.arange(k.size(0), device=k.device)[:, None]
            columns = self.positions(k.size(2))
            keys[rows, :, columns] = k.transpose(1, 2).to(keys.dtype)
            values[rows, :, columns] = v.transpose(1, 2).to(values.dtype)
        return keys[:, :, :end], values[:, :, :end]

    def advance(self, new: int, lengths: Sequence[int] | None = None) -> None:
        """`new` columns were written; each row keeps that many of them, or its own number where `lengths` is given."""
        if lengths is None or all(n == new for n in lengths):
            self.lengths = self.lengths + new
        else:
            self.lengths = self.lengths + torch.tensor(list(lengths), device=self.lengths.device)
            self.equal_lengths = False
        self.filled += new

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Row i becomes what row rows[i] was. Only what is filled moves; the rest is zeros in every row (since a row shorter
        than others has columns that are read and hidden before they are written)."""

        def reordered(old: Tensor) -> Tensor:
            moved = old[:, :, : self.filled].index_select(0, rows)
            new = old if old.size(0) == rows.size(0) else old.new_zeros(rows.size(0), *old.shape[1:])
            new[:, :, : self.filled] = moved
            return new

        self.keys = [reordered(k) for k in self.keys]
        self.values = [reordered(v) for v in self.values]
        self.lengths = self.lengths.index_select(0, rows)
