"""The one cache: keys and values of what has been read and written, for the slots of a driver.

A slot is one sentence (or one sample) with its `beams` rows. Active sentences always fill the first slots; when one leaves, the
last one moves to its place (`move`), so every step works on views `[:n]` of memory that stays where it is.

  past        for each layer the keys (N, Hk, S, D) and values (N, Hk, S, Dv) of S columns. A step appends one column a beam, at
              `columns[n]` of its own slot: slots may have begun at different times.
  bias        (N, K, S): 0 where a column is one of the beam's own ancestors, -inf elsewhere. When hypotheses are reordered
              only this moves; no key ever does. Columns that nobody has filled are -inf.
  positions   (N, S): the position of each column's token, for windows and ALiBi.
  lengths     (N,): the position of the slot's next token.      columns   (N,): the first column its next step fills.
  source      for each layer the keys and values of the source, (N, Hk, W, D) and (N, Hk, W, Dv), once a sentence whatever
              the beam; `source_bias` (N, W) is -inf at its padding. W is 0 where there is no source.

All of this is on the device and is only ever written in place, so a step can be captured as a CUDA graph: `columns` and
`lengths` are read there, and the shapes depend on three numbers of the host, the buckets (sentences, n_keys, n_source).
Only `grow` gives the cache new memory; a capture made before it must be thrown away (`generation` counts them).

What the host knows of a step without asking the device (`columns_host`: the columns each slot has filled; `masked`: is there a
column that a row must not see) lets the CPU take short cuts, and is never needed for an answer to be right. A `static`
cache never takes them: every step is then the same work on the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

COMPACT_EVERY = 4  # steps


def on_device(numbers: Any, device: torch.device) -> Int[Tensor, "..."]:
    """What the host knows, on the device. From pinned memory: from any other the host would wait for what is under way there."""
    made = torch.as_tensor(numbers)
    return (made.pin_memory() if device.type == "cuda" else made).to(device, non_blocking=True)


class Cache:
    """Memory for `n_slots` sentences of `beams` rows each: `columns` of past and `source` tokens of source."""

    def __init__(
        self,
        heads: Sequence[int],  # key heads of each layer
        source_heads: Sequence[int],
        sizes: tuple[int, int],  # of a key and a value
        n_slots: int,
        beams: int,
        columns: int,
        source: int = 0,
        *,
        like: Tensor,
        static: bool = False,
    ) -> None:
        self.beams, self.sizes, self.static = beams, sizes, static
        self.past = self.allocate(like, n_slots, heads, columns)
        self.source = self.allocate(like, n_slots, source_heads, source)
        device = like.device
        self.bias: Float[Tensor, "N K S"] = like.new_full((n_slots, beams, columns), -math.inf)
        self.positions: Int[Tensor, "N S"] = torch.zeros(n_slots, columns, dtype=torch.long, device=device)
        self.lengths: Int[Tensor, "N"] = torch.zeros(n_slots, dtype=torch.long, device=device)
        self.columns: Int[Tensor, "N"] = torch.zeros(n_slots, dtype=torch.long, device=device)
        self.source_bias: Float[Tensor, "N W"] = like.new_zeros(n_slots, source)
        self.tokens: Int[Tensor, "N K"] = torch.zeros(n_slots, beams, dtype=torch.long, device=device)
        is_own = torch.eye(beams, dtype=torch.bool, device=device)
        self.own_bias: Float[Tensor, "K K"] = torch.where(is_own, 0.0, -math.inf).to(like.dtype)
        self.generation = 0
        self.last_position = 2**30  # tables of positions end here
        self.columns_host = np.zeros(n_slots, dtype=np.int64)
        self.source_widths = np.zeros(n_slots, dtype=np.int64)  # of the rows in which the sources were encoded
        self.masked = beams > 1
        self.source_masked = False
        self.compacted = 0
        self.step_column: int | None = None  # the column that the step under way fills in all slots alike

    def allocate(
        self, like: Tensor, n_slots: int, heads: Sequence[int], columns: int
    ) -> list[tuple[Float[Tensor, "N _ S D"], Float[Tensor, "N _ S Dv"]]]:
        """Keys and values of every layer, zeros."""
        key, value = self.sizes
        # Zeros, since a column may be read (and hidden) before it is written.
        return [(like.new_zeros(n_slots, n, columns, key), like.new_zeros(n_slots, n, columns, value)) for n in heads]

    @property
    def n_slots(self) -> int:
        """How many sentences it can hold."""
        return self.lengths.size(0)

    @property
    def capacity(self) -> int:
        """Columns of the past that a slot has."""
        return self.bias.size(2)

    @property
    def source_capacity(self) -> int:
        """The widest source it can hold."""
        return self.source_bias.size(1)

    def filled(self, n: int) -> int:
        """The most columns that one of the first n slots has filled."""
        return int(self.columns_host[:n].max(initial=0))

    def source_width(self, n: int) -> int:
        """The widest source of the first n slots."""
        return int(self.source_widths[:n].max(initial=0))

    def shared_column(self, n: int) -> int | None:
        """The column that all of the first n slots fill next; None: not the same for all."""
        if self.static or n == 0 or (self.columns_host[:n] != self.columns_host[0]).any():
            return None
        return int(self.columns_host[0])

    def begin(self, start: int, end: int, first: Int[Tensor, "M K"]) -> None:
        """Slots start to end are empty and read `first` at their first step."""
        self.bias[start:end] = -math.inf
        self.lengths[start:end] = 0
        self.columns[start:end] = 0
        self.tokens[start:end] = first
        self.columns_host[start:end] = 0
        if start == 0:
            self.compacted, self.masked, self.source_masked = 0, self.beams > 1, False
        elif self.columns_host[:start].any():
            self.masked = True

    def move(self, from_slots: Sequence[int], to_slots: Sequence[int]) -> None:
        """Slots move to the places of others, which are free."""
        if not from_slots:
            return
        filled = self.filled(max(*from_slots, *to_slots) + 1)
        for known in (self.columns_host, self.source_widths):
            known[to_slots] = known[from_slots]
        tensors = [self.bias, self.positions, self.lengths, self.columns, self.tokens]
        tensors += [part[:, :, :filled] for pair in self.past for part in pair]
        tensors += [part for pair in self.source for part in pair]
        move_slots([*tensors, self.source_bias], from_slots, to_slots)

    def grow(self, columns: int, source: int = 0) -> None:
        """At least so many columns, and so wide a source. Nothing happens where there is enough memory already."""
        more, wider = max(0, columns - self.capacity), max(0, source - self.source_capacity)
        if more:
            self.past = [(F.pad(k, (0, 0, 0, more)), F.pad(v, (0, 0, 0, more))) for k, v in self.past]
            self.bias = F.pad(self.bias, (0, more), value=-math.inf)
            self.positions = F.pad(self.positions, (0, more))
        if wider:
            self.source = [(F.pad(k, (0, 0, 0, wider)), F.pad(v, (0, 0, 0, wider))) for k, v in self.source]
            self.source_bias = F.pad(self.source_bias, (0, wider), value=-math.inf)
        self.generation += bool(more or wider)

    def reserve_columns(self, n: int) -> Int[Tensor, "n K"]:
        """The columns that a step of the first n slots fills; the bias lets each beam attend to its own."""
        self.step_column = column = self.shared_column(n)
        if column is not None:
            self.bias[:n, :, column : column + self.beams] = self.own_bias
            return torch.arange(column, column + self.beams, device=self.columns.device).expand(n, -1)
        columns = self.columns[:n, None] + torch.arange(self.beams, device=self.columns.device)
        self.bias[:n].scatter_(2, columns[:, None].expand(-1, self.beams, -1), self.own_bias.expand(n, -1, -1))
        return columns

    def append(self, layer: int, n: int, columns: Int[Tensor, "n K"], k: Tensor, v: Tensor) -> None:
        """A step's keys (n, Hk, K, D) and values (n, Hk, K, Dv) into the columns that were reserved."""
        column = self.step_column
        for block, new in zip(self.past[layer], (k, v), strict=True):
            if column is not None:
                block[:n, :, column : column + self.beams] = new
            else:
                block[:n].scatter_(2, columns[:, None, :, None].expand_as(new), new.to(block.dtype))

    def advance(self, n: int) -> None:
        """The step is done: everyone's next token stands one further. Ends every step."""
        self.lengths[:n] += 1
        self.columns[:n] += self.beams
        if self.static:  # slots that are over go on until they are taken away, on the spot
            self.lengths[:n].clamp_(max=self.last_position)
            self.columns[:n].clamp_(max=self.capacity - self.beams)
        self.columns_host[:n] += self.beams

    def reorder(self, parents: Int[Tensor, "n K"], n_keys: int) -> None:
        """Beam k of a slot continues beam parents[n, k]: its ancestors' columns become its own."""
        n = parents.size(0)
        past = parents[:, :, None].expand(-1, -1, n_keys)
        self.bias[:n, :, :n_keys] = self.bias[:n, :, :n_keys].gather(1, past)

    def compact(self, n: int) -> None:
        """Drop the columns that are no beam's ancestor; slots that have fewer left than others keep some of them. It reads
        values of the device, so it is for the CPU; and how much is dropped depends on the neighbours, so it is not for strict
        mode."""
        filled = self.filled(n)
        if self.beams == 1 or filled - self.compacted < COMPACT_EVERY * self.beams:
            return
        alive: Bool[Tensor, "n S"] = (self.bias[:n, :, :filled] == 0).any(dim=1)
        left = int(alive.sum(dim=1).max())
        if 3 * left <= 2 * filled:
            order = alive.logical_not().to(torch.uint8).sort(dim=1, stable=True).indices[:, :left]
            sentence = torch.arange(n, device=order.device)[:, None]
            for pair in self.past:
                for block in pair:
                    block[:n, :, :left] = block[sentence, :, order].transpose(1, 2)
            bias = self.bias[:n].gather(2, order[:, None].expand(-1, self.beams, -1))
            self.bias[:n, :, :left] = bias
            self.bias[:n, :, left:filled] = -math.inf
            self.positions[:n, :left] = self.positions[:n].gather(1, order)
            self.columns[:n] = left
            self.columns_host[:n] = left
        self.compacted = self.filled(n)


def move_slots(tensors: Sequence[Tensor], from_slots: Sequence[int], to_slots: Sequence[int]) -> None:
    """tensor[to_slots] = tensor[from_slots], for each tensor."""
    slots = on_device([from_slots, to_slots], tensors[0].device)
    for tensor in tensors:
        if tensor.numel():
            tensor.index_copy_(0, slots[1], tensor.index_select(0, slots[0]))
