"""The one cache: keys and values of what has been read and written, for the slots of a driver.

A slot is one sentence (or one sample) with its `beams` rows. Active sentences always fill the first slots; whoever leaves
has its place taken by the last one (`move`), so every step works on views `[:n]` of memory that stays where it is.

  past        for each layer the keys (N, Hk, S, D) and values (N, Hk, S, Dv) of S columns. A step appends one column a beam, at
              `columns[n]` of its own slot: slots may have entered at different times.
  bias        (N, K, S): 0 where a column is one of the beam's own ancestors, -inf elsewhere. When hypotheses are reordered
              only this moves; no key ever does. Columns that nobody has filled are -inf.
  positions   (N, S): the position of each column's token, for windows and ALiBi.
  lengths     (N,): the position of the slot's next token.      columns   (N,): the first column its next step fills.
  source      for each layer the keys and values of the source, (N, Hk, W, D) and (N, Hk, W, Dv), once a sentence whatever
              the beam; `source_bias` (N, W) is -inf at its padding. W is 0 where there is no source.

All of this is on the device and is only ever written in place, so a step can be captured as a CUDA graph: `columns` and
`lengths` are read there, and the shapes depend on three numbers of the host, the buckets (sentences, n_keys, n_source).
Only `grow` gives the cache new memory; a capture made before it must be thrown away (`generation` counts them).

What the host knows of a step without asking the device (`ends`: the columns each slot has filled; `masked`: is there a
column that a row must not see) lets the CPU take shorter ways, and is never needed for an answer to be right. A `static`
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
    """Memory for `slots` sentences of `beams` rows each: `columns` of past and `source` tokens of source."""

    def __init__(
        self,
        heads: Sequence[int],  # key heads of each layer
        source_heads: Sequence[int],
        sizes: tuple[int, int],  # of a key and a value
        slots: int,
        beams: int,
        columns: int,
        source: int = 0,
        *,
        like: Tensor,
        static: bool = False,
    ) -> None:
        self.beams, self.sizes, self.static = beams, sizes, static
        self.blocks = self.block(like, slots, heads, columns)
        self.source_blocks = self.block(like, slots, source_heads, source)
        device = like.device
        self.bias: Float[Tensor, "N K S"] = like.new_full((slots, beams, columns), -math.inf)
        self.positions: Int[Tensor, "N S"] = torch.zeros(slots, columns, dtype=torch.long, device=device)
        self.lengths: Int[Tensor, "N"] = torch.zeros(slots, dtype=torch.long, device=device)
        self.columns: Int[Tensor, "N"] = torch.zeros(slots, dtype=torch.long, device=device)
        self.source_bias: Float[Tensor, "N W"] = like.new_zeros(slots, source)
        self.tokens: Int[Tensor, "N K"] = torch.zeros(slots, beams, dtype=torch.long, device=device)
        own = torch.eye(beams, dtype=torch.bool, device=device)
        self.own: Float[Tensor, "K K"] = torch.where(own, 0.0, -math.inf).to(like.dtype)
        self.generation = 0
        self.last_position = 2**30  # tables of positions end here
        self.ends = np.zeros(slots, dtype=np.int64)
        self.widths = np.zeros(slots, dtype=np.int64)  # of the rows in which the sources were read
        self.masked = beams > 1
        self.source_masked = False
        self.compacted = 0
        self.at: int | None = None  # the column that the step under way fills in all slots alike

    def block(
        self, like: Tensor, slots: int, heads: Sequence[int], columns: int
    ) -> list[tuple[Float[Tensor, "N _ S D"], Float[Tensor, "N _ S Dv"]]]:
        """Keys and values of every layer, empty."""
        key, value = self.sizes
        # Zeros, since a column may be read (and hidden) before it is written.
        return [(like.new_zeros(slots, n, columns, key), like.new_zeros(slots, n, columns, value)) for n in heads]

    @property
    def past(self) -> list[tuple[Tensor, Tensor]]:
        """For each layer the keys and values of what was written."""
        return self.blocks

    @property
    def source(self) -> list[tuple[Tensor, Tensor]]:
        """For each layer the keys and values of the source."""
        return self.source_blocks

    @property
    def slots(self) -> int:
        """How many sentences it can hold."""
        return self.lengths.size(0)

    @property
    def capacity(self) -> int:
        """Columns."""
        return self.bias.size(2)

    @property
    def source_capacity(self) -> int:
        """How wide a source may be."""
        return self.source_bias.size(1)

    def filled(self, n: int) -> int:
        """None of the first n slots has filled more columns."""
        return int(self.ends[:n].max(initial=0))

    def source_width(self, n: int) -> int:
        """None of the first n slots has a wider source."""
        return int(self.widths[:n].max(initial=0))

    def even(self, n: int) -> int | None:
        """The column that all of the first n slots fill next; None: not the same for all."""
        if self.static or n == 0 or (self.ends[:n] != self.ends[0]).any():
            return None
        return int(self.ends[0])

    def begin(self, start: int, end: int, first: Int[Tensor, "M K"]) -> None:
        """Slots start to end are empty and read `first` at their first step."""
        self.bias[start:end] = -math.inf
        self.lengths[start:end] = 0
        self.columns[start:end] = 0
        self.tokens[start:end] = first
        self.ends[start:end] = 0
        if start == 0:
            self.compacted, self.masked, self.source_masked = 0, self.beams > 1, False
        elif self.ends[:start].any():
            self.masked = True

    def move(self, rows: Sequence[int], places: Sequence[int]) -> None:
        """These slots take the places of others, which are free."""
        if not rows:
            return
        both = on_device([rows, places], self.lengths.device)
        filled = self.filled(max(*rows, *places) + 1)
        self.ends[places], self.widths[places] = self.ends[rows], self.widths[rows]
        tensors = [self.bias, self.positions, self.lengths, self.columns, self.tokens]
        tensors += [part[:, :, :filled] for pair in self.blocks for part in pair]
        tensors += [part for pair in self.source_blocks for part in pair]
        move_rows([*tensors, self.source_bias], both[0], both[1])

    def grow(self, columns: int, source: int = 0) -> None:
        """At least so many columns, and so wide a source. Nothing happens where there is room already."""
        more, wider = max(0, columns - self.capacity), max(0, source - self.source_capacity)
        if more:
            self.blocks = [(F.pad(k, (0, 0, 0, more)), F.pad(v, (0, 0, 0, more))) for k, v in self.blocks]
            self.bias = F.pad(self.bias, (0, more), value=-math.inf)
            self.positions = F.pad(self.positions, (0, more))
        if wider:
            self.source_blocks = [
                (F.pad(k, (0, 0, 0, wider)), F.pad(v, (0, 0, 0, wider))) for k, v in self.source_blocks
            ]
            self.source_bias = F.pad(self.source_bias, (0, wider), value=-math.inf)
        self.generation += bool(more or wider)

    def mark(self, n: int) -> Int[Tensor, "n K"]:
        """The columns that a step of the first n slots fills, entered as their own beams'."""
        self.at = even = self.even(n)
        if even is not None:
            self.bias[:n, :, even : even + self.beams] = self.own
            return torch.arange(even, even + self.beams, device=self.columns.device).expand(n, -1)
        columns = self.columns[:n, None] + torch.arange(self.beams, device=self.columns.device)
        self.bias[:n].scatter_(2, columns[:, None].expand(-1, self.beams, -1), self.own.expand(n, -1, -1))
        return columns

    def append(self, layer: int, n: int, columns: Int[Tensor, "n K"], k: Tensor, v: Tensor) -> None:
        """A step's keys (n, Hk, K, D) and values (n, Hk, K, Dv) into the columns that were marked."""
        even = self.at
        for block, new in zip(self.blocks[layer], (k, v), strict=True):
            if even is not None:
                block[:n, :, even : even + self.beams] = new
            else:
                block[:n].scatter_(2, columns[:, None, :, None].expand_as(new), new.to(block.dtype))

    def advance(self, n: int) -> None:
        """The step is done: everyone's next token stands one further. Ends every step."""
        self.lengths[:n] += 1
        self.columns[:n] += self.beams
        if self.static:  # slots that are over go on until they are taken away, on the spot
            self.lengths[:n].clamp_(max=self.last_position)
            self.columns[:n].clamp_(max=self.capacity - self.beams)
        self.ends[:n] += self.beams

    def reorder(self, parents: Int[Tensor, "n K"], n_keys: int) -> None:
        """Beam k of a slot goes on from what beam parents[n, k] was."""
        n = parents.size(0)
        past = parents[:, :, None].expand(-1, -1, n_keys)
        self.bias[:n, :, :n_keys] = self.bias[:n, :, :n_keys].gather(1, past)

    def compact(self, n: int) -> None:
        """Drop the columns that no beam will see again; slots that have fewer left than others keep some of them. It asks the
        device, so it is for the CPU; and how much is dropped depends on the neighbours, so it is not for strict mode."""
        filled = self.filled(n)
        if self.beams == 1 or filled - self.compacted < COMPACT_EVERY * self.beams:
            return
        alive: Bool[Tensor, "n S"] = (self.bias[:n, :, :filled] == 0).any(dim=1)
        left = int(alive.sum(dim=1).max())
        if 3 * left <= 2 * filled:
            order = alive.logical_not().to(torch.uint8).sort(dim=1, stable=True).indices[:, :left]
            sentence = torch.arange(n, device=order.device)[:, None]
            for pair in self.blocks:
                for block in pair:
                    block[:n, :, :left] = block[sentence, :, order].transpose(1, 2)
            bias = self.bias[:n].gather(2, order[:, None].expand(-1, self.beams, -1))
            self.bias[:n, :, :left] = bias
            self.bias[:n, :, left:filled] = -math.inf
            self.positions[:n, :left] = self.positions[:n].gather(1, order)
            self.columns[:n] = left
            self.ends[:n] = left
        self.compacted = self.filled(n)


def move_rows(tensors: Sequence[Tensor], rows: Int[Tensor, "M"], places: Int[Tensor, "M"]) -> None:
    """Row rows[i] of each tensor takes the place places[i]."""
    for tensor in tensors:
        if tensor.numel():
            tensor.index_copy_(0, places, tensor.index_select(0, rows))
