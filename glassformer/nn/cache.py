"""The one cache: keys and values of what has been read and written, so that the next token costs one token's work.

A slot is one sentence (or one sample) with its `beams` rows. Active sentences always fill the first slots; when one leaves, the
last one moves to its place (`move`), so every step works on views `[:n]` of memory that stays where it is.

  past        for each layer the keys (N, Hk, S, D) and values (N, Hk, S, Dv) of S columns. A step appends columns for every beam,
              from `columns[n]` of its own slot on: slots may have begun at different times.
  bias        (N, K, S): 0 where a column is one of the beam's own ancestors, -inf elsewhere. When hypotheses are reordered
              only this moves; no key ever does. Columns that nobody has filled are -inf.
  positions   (N, S): the position of each column's token, for windows and biases of distance.
  lengths     (N,): the position of the slot's next token.      columns   (N,): the first column its next step fills.
  source      for each layer the keys and values of the source, (N, Hk, W, D) and (N, Hk, W, Dv), once a sentence whatever
              the beam; `source_bias` (N, W) is -inf at its padding. W is 0 where there is no source.

The verbs, in the order of a step: `reserve` columns for the new tokens, `append` their keys and values layer by layer, `advance`.
Between steps: `reorder` beams, `move` slots, `grow`. A prompt is read with `reserve_prompts` in the place of `reserve`.

All of this is on the device and is only ever written in place, so a step can be captured as a CUDA graph: `columns` and
`lengths` are read there, and the shapes depend on three numbers of the host, the buckets (sentences, n_keys, n_source).
Only `grow` gives the cache new memory; a capture made before it must be thrown away (`generation` counts them).

What the host knows of a step without asking the device (`columns_host`: the columns each slot has filled; `masked`: is there a
column that a row must not see) lets the CPU take short cuts, and is never needed for an answer to be right. A `static`
cache never takes them: every step is then the same work on the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.nn.masks import AttentionMask
from glassformer.nn.rows import Rows, most_of, move_slots, on_device

COMPACT_EVERY = 4  # steps


@dataclass
class CacheStep:
    """The step under way: `new` tokens for every row of the first n slots, the columns they fill, and what they may attend to of
    the first n_keys columns and n_source tokens of the source: `hidden` and `source_bias` are 0 where attention is allowed and
    -inf elsewhere (None: all is allowed), and `bias` is `hidden` with the bias of distances (ALiBi's, T5's)."""

    n: int
    new: int
    n_keys: int
    n_source: int
    columns: Int[Tensor, "n Kn"]
    first_column: int | None  # of the columns of all slots alike
    hidden: Float[Tensor, "n 1 Kn S"] | None = None
    distance_bias: Float[Tensor, "n H Kn S"] | None = None
    bias: Float[Tensor, "n _ Kn S"] | None = None
    source_bias: Float[Tensor, "n 1 1 W"] | None = None


@dataclass
class CachePrefill:
    """Prompts that are being read into empty slots: `rows` of them each (one for all beams, or one for each), for `copies` slots
    that begin alike."""

    slots: Int[Tensor, "M"]
    rows: int
    copies: int
    width: int


class KVCache:
    """Memory for `n_slots` sentences of `beams` rows each: `columns` of past and `source` tokens of source."""

    under_way: CacheStep | CachePrefill

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
        self.columns_host = torch.zeros(n_slots, dtype=torch.long)
        self.lengths_host = torch.zeros(n_slots, dtype=torch.long)
        self.source_widths = torch.zeros(n_slots, dtype=torch.long)  # of the rows in which the sources were encoded
        self.masked = beams > 1
        self.source_masked = False
        self.compacted = 0

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
        return most_of(self.columns_host[:n])

    def source_width(self, n: int) -> int:
        """The widest source of the first n slots."""
        return most_of(self.source_widths[:n])

    def shared_column(self, n: int) -> int | None:
        """The column that all of the first n slots fill next; None: not the same for all."""
        if self.static or n == 0 or bool((self.columns_host[:n] != self.columns_host[0]).any()):
            return None
        return int(self.columns_host[0])

    # ---- slots

    def begin(self, start: int, end: int) -> None:
        """Slots start to end are empty."""
        self.bias[start:end] = -math.inf
        self.lengths[start:end] = 0
        self.columns[start:end] = 0
        self.columns_host[start:end] = self.lengths_host[start:end] = 0
        if start == 0:
            self.compacted, self.masked, self.source_masked = 0, self.beams > 1, False
        elif bool(self.columns_host[:start].any()):
            self.masked = True

    def move(self, from_slots: Sequence[int], to_slots: Sequence[int]) -> None:
        """Slots move to the places of others, which are free."""
        if not from_slots:
            return
        n = max(*from_slots, *to_slots) + 1
        filled, width = self.filled(n), self.source_width(n)
        for known in (self.columns_host, self.lengths_host, self.source_widths):
            known[to_slots] = known[from_slots]
        tensors = [self.bias, self.positions, self.lengths, self.columns, self.tokens]
        tensors += [block[:, :, :filled] for pair in self.past for block in pair]
        tensors += [block[:, :, :width] for pair in self.source for block in pair]
        move_slots([*tensors, self.source_bias], from_slots, to_slots)

    def grow(self, columns: int, source: int = 0) -> None:
        """Memory for at least `columns` columns and `source` tokens of a source; nothing happens where there is enough."""
        more, wider = max(0, columns - self.capacity), max(0, source - self.source_capacity)
        if more:
            self.past = [(F.pad(k, (0, 0, 0, more)), F.pad(v, (0, 0, 0, more))) for k, v in self.past]
            self.bias = F.pad(self.bias, (0, more), value=-math.inf)
            self.positions = F.pad(self.positions, (0, more))
        if wider:
            self.source = [(F.pad(k, (0, 0, 0, wider)), F.pad(v, (0, 0, 0, wider))) for k, v in self.source]
            self.source_bias = F.pad(self.source_bias, (0, wider), value=-math.inf)
        self.generation += bool(more or wider)

    def store_source(
        self, memory: Sequence[tuple[Tensor, Tensor]], source: Rows, start: int = 0, *, copies: int = 1
    ) -> None:
        """Each layer's keys and values of these sources, each for `copies` slots from `start` on."""
        n, width = source.shape
        slots = slice(start, start + n * copies)
        for blocks, keys_values in zip(self.source, memory, strict=True):
            for block, new in zip(blocks, keys_values, strict=True):
                block[slots, :, :width] = new if copies == 1 else new.repeat_interleave(copies, 0)
        hidden = torch.where(source.real, 0.0, -math.inf).repeat_interleave(copies, 0)
        self.source_bias[slots, :width] = hidden.to(self.source_bias.dtype)
        self.source_bias[slots, width:] = -math.inf
        self.source_widths[slots] = width
        self.source_masked |= source.layout != "whole" or bool((self.source_widths[:start] != width).any())

    # ---- a step

    def reserve(self, n: int, new: int = 1, *, n_keys: int | None = None, n_source: int | None = None) -> CacheStep:
        """Columns for `new` tokens of every row of the first n slots. The bias lets each beam attend to its own."""
        width, column = self.beams * new, self.shared_column(n)
        n_keys = self.filled(n) + width if n_keys is None else n_keys
        if n_keys > self.capacity:
            rows = self.capacity // self.beams, n_keys // self.beams
            raise ValueError(f"the cache holds {rows[0]} tokens a row; {rows[1]} were asked of it")
        if column is not None:
            columns = torch.arange(column, column + width, device=self.columns.device).expand(n, -1)
        else:
            columns = self.columns[:n, None] + torch.arange(width, device=self.columns.device)
        step = CacheStep(n, new, n_keys, self.source_width(n) if n_source is None else n_source, columns, column)
        if new > 1:
            self.reserve_chunk(step)
        elif column is not None:
            self.bias[:n, :, column : column + width] = self.own_bias
        else:
            self.bias[:n].scatter_(2, columns[:, None].expand(-1, width, -1), self.own_bias.expand(n, -1, -1))
        self.under_way = step
        return step

    def reserve_chunk(self, step: CacheStep) -> None:
        """Several tokens of every row at once: each sees those of its own row up to itself; later ones see them all."""
        n, new, beams = step.n, step.new, self.beams
        earlier = torch.ones(new, new, dtype=torch.bool, device=self.bias.device).tril()
        ancestors = torch.block_diag(*[earlier] * beams)
        hidden = torch.where(ancestors, 0.0, -math.inf).to(self.bias.dtype)
        bias = self.bias[:n, :, None, : step.n_keys].repeat(1, 1, new, 1).flatten(1, 2)
        bias.scatter_(2, step.columns[:, None].expand(-1, beams * new, -1), hidden.expand(n, -1, -1))
        step.hidden = bias[:, None]
        later = self.own_bias.repeat_interleave(new, 1)
        self.bias[:n].scatter_(2, step.columns[:, None].expand(-1, beams, -1), later.expand(n, -1, -1))

    def query_positions(self) -> Int[Tensor, "R new"]:
        """The positions of the step's tokens, a row each."""
        step = self.under_way
        assert isinstance(step, CacheStep)
        positions = self.lengths[: step.n, None]
        if step.new > 1:
            positions = positions + torch.arange(step.new, device=positions.device)
        return positions if self.beams == 1 else positions.repeat_interleave(self.beams, 0)

    def set_biases(self, window: int | None = None, distance_bias: Callable[..., Tensor] | None = None) -> None:
        """What the step's tokens may attend to of the past, themselves included, and of the source. A window counts the keys
        seen, self included; `distance_bias` gives the bias of positions of queries and keys."""
        step = self.under_way
        assert isinstance(step, CacheStep)
        n = step.n
        near = window is not None or distance_bias is not None  # does it matter how far a key is away?
        if step.hidden is None and (near or self.masked or self.static):
            step.hidden = self.bias[:n, None, :, : step.n_keys]
        if near:
            assert step.hidden is not None
            queries = self.query_positions().reshape(n, -1)
            self.positions[:n].scatter_(1, step.columns, queries)
            keys = self.positions[:n, : step.n_keys]
            if window is not None:
                far = queries[:, :, None] - keys[:, None] >= window
                step.hidden = step.hidden.masked_fill(far[:, None], -math.inf)
            if distance_bias is not None:
                step.distance_bias = distance_bias(queries, keys)
        near_bias = step.distance_bias
        step.bias = step.hidden if near_bias is None or step.hidden is None else step.hidden + near_bias
        if self.source and (self.source_masked or self.static):
            step.source_bias = self.source_bias[:n, None, None, : step.n_source]

    def masks(self) -> tuple[AttentionMask, AttentionMask]:
        """The step's biases as masks: of the past, and of the source."""
        step = self.under_way
        assert isinstance(step, CacheStep)
        allowed = (None if hidden is None else hidden == 0 for hidden in (step.hidden, step.source_bias))
        return AttentionMask(next(allowed), bias=step.distance_bias), AttentionMask(next(allowed))

    def memory(self) -> list[tuple[Float[Tensor, "n _ W D"], Float[Tensor, "n _ W Dv"]]]:
        """Each layer's keys and values of the step's sources."""
        step = self.under_way
        assert isinstance(step, CacheStep)
        return [(k[: step.n, :, : step.n_source], v[: step.n, :, : step.n_source]) for k, v in self.source]

    def append(
        self, layer: int, k: Float[Tensor, "R _ new D"], v: Float[Tensor, "R _ new Dv"]
    ) -> tuple[Float[Tensor, "n _ S D"], Float[Tensor, "n _ S Dv"]]:
        """Keys and values of new tokens, by rows or by slots, into the columns that were reserved. Gives all that these tokens
        attend to: of a step the slot's first n_keys columns, of prompts themselves."""
        step, pairs = self.under_way, tuple(zip(self.past[layer], (k, v), strict=True))
        if isinstance(step, CachePrefill):
            for block, rows in pairs:
                new = rows.unflatten(0, (-1, step.rows)).transpose(1, 2).flatten(2, 3)
                block[step.slots, :, : new.size(2)] = new.repeat_interleave(step.copies, 0).to(block.dtype)
            return k, v
        column, width = step.first_column, self.beams * step.new
        for block, rows in pairs:
            grouped = rows.size(0) == step.n
            new = rows if grouped else rows.unflatten(0, (step.n, -1)).transpose(1, 2).flatten(2, 3)
            if column is not None:
                block[: step.n, :, column : column + width] = new
            else:
                block[: step.n].scatter_(2, step.columns[:, None, :, None].expand_as(new), new.to(block.dtype))
        (keys, _), (values, _) = pairs
        return keys[: step.n, :, : step.n_keys], values[: step.n, :, : step.n_keys]

    def advance(self) -> None:
        """The step is done: everyone's next token stands further. Ends every step."""
        step = self.under_way
        assert isinstance(step, CacheStep)
        n, width = step.n, self.beams * step.new
        self.lengths[:n] += step.new
        self.columns[:n] += width
        if self.static:  # slots that are over go on until they are taken away, on the spot
            self.lengths[:n].clamp_(max=self.last_position)
            self.columns[:n].clamp_(max=self.capacity - self.beams)
        self.columns_host[:n] += width
        self.lengths_host[:n] += step.new

    # ---- prompts

    def reserve_prompts(self, slots: Sequence[int], lengths: Sequence[int], width: int, *, copies: int = 1) -> None:
        """The first columns of these slots, which are empty, for prompts in rows of `width` tokens, of which lengths[row] are
        real: one prompt for all beams of each slot (and of `copies` slots that begin alike), or one for each beam."""
        rows = copies * len(lengths) // len(slots)
        where = on_device(list(slots), self.lengths.device)
        firsts = torch.tensor(list(lengths)[::rows]).repeat_interleave(copies)
        self.columns_host[list(slots)], self.lengths_host[list(slots)] = rows * width, firsts
        self.lengths[where], self.columns[where] = on_device(firsts, where.device), rows * width
        self.bias[where] = -math.inf
        self.masked |= rows > 1 or min(lengths) < width or min(slots) > 0
        self.grow(rows * width)
        self.under_way = CachePrefill(where, rows, copies, width)
        real = torch.arange(width, device=where.device) < on_device(list(lengths), where.device)[:, None]
        hidden = torch.where(real, 0.0, -math.inf).to(self.bias.dtype)
        hidden = hidden.unflatten(0, (-1, rows)).repeat_interleave(copies, 0)
        for k in range(self.beams):
            row = k if rows > 1 else 0
            self.bias[where, k, row * width : (row + 1) * width] = hidden[:, row]
        self.positions[where, : rows * width] = torch.arange(width, device=where.device).repeat(rows)

    # ---- beams

    def reorder(self, parents: Int[Tensor, "n K"], n_keys: int | None = None) -> None:
        """Beam k of a slot continues beam parents[n, k]: its ancestors' columns become its own."""
        n = parents.size(0)
        n_keys = self.filled(n) if n_keys is None else n_keys
        past = parents[:, :, None].expand(-1, -1, n_keys)
        self.bias[:n, :, :n_keys] = self.bias[:n, :, :n_keys].gather(1, past)

    def compact(self, n: int) -> None:
        """Drop the columns that are no beam's ancestor; slots that have fewer left than others keep some of them. It reads
        values of the device, so it is for the CPU."""
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
