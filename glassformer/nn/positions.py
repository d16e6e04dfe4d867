"""Where a token stands. Attention by itself cannot tell: permute its input and its output is permuted the same way.

Sinusoidal (Vaswani et al. 2017), added to the embedding:
    PE(pos, 2i) = sin(pos / base^(2i/C)),  PE(pos, 2i+1) = cos(pos / base^(2i/C))
where 2i and 2i+1 are *dimensions*. The wavelengths form a geometric series from 2 pi towards base * 2 pi; PE(pos + k) is
a rotation of PE(pos), the same for every pos; PE(p) . PE(q) depends on p - q alone.

Learned (GPT-2, BERT): a table of block_size rows, added. It has no row past its last one.

Rotary (RoPE; Su et al. 2021): queries and keys are rotated, pair by pair, by an angle proportional to their position, so that
their product depends on the distance. Half-split: dimension i is paired with i + D/2.

ALiBi (Press et al. 2021): nothing is added to tokens; each head's scores are lowered in proportion to the distance.
Relative (T5; Raffel et al. 2020): each head's scores have a learned number added for each bucket of distances.

Tables are made in float64 and rounded once, whatever dtype the model is cast to and in whatever order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


def sinusoids(length: int, width: int, base: float = 10000.0) -> Float[Tensor, "length width"]:
    """The table of the paper, interleaved: sine in the even dimensions, cosine in the odd ones."""
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = positions * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


class FixedTable(nn.Module):
    """A fixed table looked up by position. It has no last row: for positions past it a table of twice the length is made beside
    it, of four times the length, and so on. A table that was made is never replaced or freed, since compiled and captured steps
    go on reading it where it was.

    A subclass says what stands in it (`make`). It is no parameter and in no checkpoint: a model whose weights arrive after it
    was built without memory (on torch's meta device) makes it when it is first used."""

    table: Tensor

    def __init__(self, length: int) -> None:
        super().__init__()
        device = torch.get_default_device()
        # On the meta device the arithmetic would import torch's compiler, which takes seconds.
        with torch.device("cpu") if device.type == "meta" else nullcontext():
            table = self.make(length)
        self.register_buffer("table", table.to(device, torch.get_default_dtype()), persistent=False)
        self.doublings = 0  # how many longer tables there are: table_x2, table_x4, …

    def make(self, length: int) -> Float[Tensor, "length width"]:
        """The first `length` rows, in float64."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # A cast of the module must not inherit the rounding of the dtype it had before.
        super()._apply(fn, recurse)
        for name in self._buffers:
            table = getattr(self, name)
            if not table.is_meta:
                setattr(self, name, self.make(table.size(0)).to(table))
        return self

    @property
    def n_positions(self) -> int:
        """The number of positions the tables cover."""
        return self.table.size(0) << self.doublings

    def covering(self, n_positions: int | None, width: int = 0) -> Float[Tensor, "length width"]:
        """The shortest table that has all positions below `n_positions`; where that is not known, below the width of the rows."""
        needed = width if n_positions is None else n_positions
        if needed <= self.table.size(0):
            return self.table
        doubling = ((needed - 1) // self.table.size(0)).bit_length()
        while self.doublings < doubling:
            self.doublings += 1
            longer = self.make(self.table.size(0) << self.doublings).to(self.table)
            self.register_buffer(f"table_x{1 << self.doublings}", longer, persistent=False)
        return getattr(self, f"table_x{1 << doubling}")  # type: ignore[no-any-return]

    def materialise(self, device: torch.device) -> None:
        """Makes the table where it has none because the model was built on the meta device."""
        if self.table.is_meta and device.type != "meta":
            self.table = self.make(self.table.size(0)).to(device, self.table.dtype)

    def forward(self, positions: Int[Tensor, "P T"], n_positions: int | None = None) -> Float[Tensor, "P T width"]:
        """The rows at these positions, all below `n_positions`; where that is not known, below their number."""
        if self.table.is_meta:
            self.materialise(positions.device)
        return F.embedding(positions, self.covering(n_positions, positions.size(-1)))


class PositionalEncoding(FixedTable):
    """The sinusoidal encoding as a module."""

    def __init__(self, length: int, width: int, base: float = 10000.0) -> None:
        self.width, self.base = width, base
        super().__init__(length)

    def make(self, length: int) -> Float[Tensor, "length width"]:
        """`sinusoids`"""
        return sinusoids(length, self.width, self.base)


class LearnedPositions(nn.Module):
    """A vector for each of `length` positions, learned like any weight (GPT-2, BERT)."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width))
        nn.init.normal_(self.weight, std=0.02)

    @property
    def n_positions(self) -> int:
        """The number of positions that were learned."""
        return self.weight.size(0)

    def covering(self, n_positions: int | None, width: int = 0) -> Float[Tensor, "length width"]:
        """The learned vectors; nothing can be made, so a position that was not learned is an error. (Of packed rows in a
        compiled step the largest position is not known, and torch's own check of the index has to do.)"""
        if n_positions is not None and n_positions > self.weight.size(0):
            raise ValueError(
                f"a row of {n_positions} tokens is longer than the {self.weight.size(0)} positions this model has learned; "
                "shorten it, or train with a larger model.block_size or with positions that have no end (rotary, alibi)"
            )
        return self.weight

    def forward(self, positions: Int[Tensor, "P T"], n_positions: int | None = None) -> Float[Tensor, "P T width"]:
        """The rows at these positions, all below `n_positions`, where that is known."""
        return self.covering(n_positions)[positions]


@dataclass(frozen=True)
class Rotation:
    """The angle of every token, as cosine and sine, for one pass through the model."""

    cos: Float[Tensor, "P 1 T half"]
    sin: Float[Tensor, "P 1 T half"]

    def rotate(self, x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B H T D"]:
        """Every pair (i, i + D/2) of a head rotated by its token's angle."""
        first, second = x.chunk(2, dim=-1)
        rotated = (first * self.cos - second * self.sin, first * self.sin + second * self.cos)
        return torch.cat(rotated, dim=-1).type_as(x)


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's frequency scaling for longer texts (Hugging Face's rope_type "llama3"): frequencies of less than
    `low_freq_factor` turns within the `original_length` trained on are divided by `factor`, those of more than
    `high_freq_factor` turns stay, and those between are interpolated."""

    factor: float
    original_length: int
    low_freq_factor: float
    high_freq_factor: float

    def __call__(self, frequencies: Float[Tensor, "half"]) -> Float[Tensor, "half"]:
        """The frequencies, the low ones divided by `factor`."""
        turns = self.original_length * frequencies / (2 * math.pi)
        smooth = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return frequencies * (smooth + (1 - smooth) / self.factor)


class Rotary(FixedTable):
    """Rotary position embedding (RoPE): angles pos / linear_factor * base^(-2i/D) for the D/2 pairs of a head; the table holds
    their cosines, then their sines. For texts longer than those trained on, a `linear_factor` above 1 is position interpolation
    (Chen et al. 2023), and `frequency_scaling` changes the frequencies one by one."""

    def __init__(
        self,
        length: int,
        head_size: int,
        base: float = 10000.0,
        linear_factor: float = 1.0,
        frequency_scaling: Llama3Scaling | None = None,
    ) -> None:
        if head_size % 2:
            raise ValueError(
                f"rotary positions rotate pairs of numbers, so the head size must be even, not {head_size}"
            )
        self.head_size, self.base = head_size, base
        self.linear_factor, self.frequency_scaling = linear_factor, frequency_scaling
        super().__init__(length)

    def make(self, length: int) -> Float[Tensor, "length width"]:
        """cos and sin of pos / linear_factor * base^(-2i/D), side by side."""
        frequencies = self.base ** (-torch.arange(0, self.head_size, 2, dtype=torch.float64) / self.head_size)
        if self.frequency_scaling is not None:
            frequencies = self.frequency_scaling(frequencies)
        angle = torch.arange(length, dtype=torch.float64)[:, None] / self.linear_factor * frequencies
        return torch.cat([angle.cos(), angle.sin()], dim=-1)

    def rotation(self, positions: Int[Tensor, "P T"], n_positions: int | None = None) -> Rotation:
        """The angles of tokens at these positions, all below `n_positions`; where that is not known, below their number."""
        cos, sin = self(positions, n_positions)[:, None].chunk(2, dim=-1)
        return Rotation(cos, sin)


def alibi_slopes(n_head: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), … for a power of two; otherwise every second one of the next power fills up, as published."""

    def powers(n: int) -> list[float]:
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]

    whole = 2 ** math.floor(math.log2(n_head))
    return powers(whole) + powers(2 * whole)[0::2][: n_head - whole]


def alibi_bias(
    slopes: Float[Tensor, "H"], queries: Int[Tensor, "P T"], keys: Int[Tensor, "P S"]
) -> Float[Tensor, "P H T S"]:
    """-slope * |query position - key position|, for each head: what ALiBi adds to the scores."""
    distance = (queries[:, :, None] - keys[:, None, :]).abs()
    return -slopes[None, :, None, None] * distance[:, None].to(slopes.dtype)


class ALiBiSlopes(FixedTable):
    """ALiBi's slopes, one for each head. (H,)"""

    def make(self, length: int) -> Float[Tensor, "length"]:
        """`alibi_slopes`"""
        return torch.tensor(alibi_slopes(length), dtype=torch.float64)

    def bias(self, queries: Int[Tensor, "P T"], keys: Int[Tensor, "P S"]) -> Float[Tensor, "P H T S"]:
        """`alibi_bias` of these slopes."""
        return alibi_bias(self.table, queries, keys)


class RelativePositions(nn.Module):
    """T5's bias: a learned number for each bucket of distances and each head, one table for all layers of a stack (n_buckets, H).

    Near distances have a bucket each, further ones share buckets that widen with the logarithm up to `max_distance`; all beyond
    are in the last. A stack that sees both ways has half of the buckets for keys after the query."""

    def __init__(self, n_head: int, *, causal: bool, n_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__()
        self.causal, self.max_distance = causal, max_distance
        self.weight = nn.Parameter(torch.zeros(n_buckets, n_head))

    def buckets(self, after: Int[Tensor, "P T S"]) -> Int[Tensor, "P T S"]:
        """The bucket of a key that stands so many tokens after its query (before it: less than 0)."""
        n = self.weight.size(0) if self.causal else self.weight.size(0) // 2
        first = 0 if self.causal else n * (after > 0)
        distance = (-after).clamp(min=0) if self.causal else after.abs()
        exact = n // 2
        # The quotient of whole numbers is a whole number at the edges of buckets, and double precision keeps it one.
        share = (distance.clamp(min=1).double() / exact).log() / math.log(self.max_distance / exact)
        wide = (exact + (share * (n - exact)).long()).clamp(max=n - 1)
        return first + torch.where(distance < exact, distance, wide)

    def bias(self, queries: Int[Tensor, "P T"], keys: Int[Tensor, "P S"]) -> Float[Tensor, "P H T S"]:
        """What is added to the scores of queries and keys at these positions."""
        return self.weight[self.buckets(keys[:, None, :] - queries[:, :, None])].permute(0, 3, 1, 2)
