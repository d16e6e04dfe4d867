"""An activation carried from one input into another: which layer and position carries the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UserError
from glassformer.nn import taps
from glassformer.nn.rows import Rows
from glassformer.probe.seeing import net, record, replace

Score = Callable[[Float[Tensor, "B T V"]], Float[Tensor, "B"]]
"""From the scores a model gives to a number for each row: how much it leans to the one answer rather than the other."""


def position_axis(value: Tensor) -> int:
    """Residuals are (B, T, C); heads, queries and weights are (B, H, T, …)."""
    return 1 if value.dim() == 3 else 2


@contextmanager
def patch(model: Any, activations: Mapping[str, Tensor], positions: Sequence[int] | None = None) -> Iterator[None]:
    """Inside, the named activations are the given ones, as `record` left them from another input, at these positions (all
    of them, where none are named). The other input has the same number of tokens."""

    def carry(other: Tensor) -> taps.Hook:
        def change(value: Tensor) -> Tensor:
            if other.shape[1:] != value.shape[1:]:
                raise UserError(
                    "an activation of shape {other_shape} cannot stand for one of shape {own_shape}; "
                    "the two inputs must have the same number of tokens",
                    tuple(other.shape),
                    tuple(value.shape),
                )
            if positions is None:
                return other.to(value).expand_as(value)
            value, axis = value.clone(), position_axis(value)
            at = torch.tensor(list(positions), device=value.device, dtype=torch.long)
            value.index_copy_(axis, at, other.to(value).expand_as(value).index_select(axis, at))
            return value

        return change

    with ExitStack() as stack:
        for name, other in activations.items():
            stack.enter_context(replace(model, name, carry(other)))
        yield


def repeated(rows: Rows, times: int) -> Rows:
    """The same row so many times."""
    tokens, segments, positions = (t.expand(times, -1) for t in (rows.tokens, rows.segments, rows.positions))
    return Rows(tokens.contiguous(), segments.contiguous(), positions.contiguous(), rows.layout)


@dataclass(frozen=True)
class Effects:
    """For each name a number a position: 0 where the patch changed nothing, 1 where it alone turned the score into the one
    of the other input (negative or above 1 where it went the other way, or further)."""

    maps: dict[str, Float[Tensor, "T"]]
    own: float  # the score of the input
    other: float  # the score of the other input


@torch.no_grad()
def effect_map(
    model: Any, inputs: Sequence[Rows], others: Sequence[Rows], score: Score, names: Sequence[str] | None = None
) -> Effects:
    """Which layer and position carries what `others` has and `inputs` has not: each activation of `names` (by default the
    embeddings and what each block leaves in the residual stream) is taken from the run on `others`, one position at a
    time, and put into the run on `inputs`. Both are one row each, of equal lengths; a name's positions are tried as the
    rows of one batch."""
    own = net(model)
    if any(a.shape != b.shape or a.shape[0] != 1 for a, b in zip(inputs, others, strict=True)):
        raise UserError("an effect map needs two inputs of one row each and of the same number of tokens")
    names = ["*embeddings", "*.residual"] if names is None else names
    with record(own, *names) as seen:
        there = float(score(own(*others)))
        kept = dict(seen)
    here = float(score(own(*inputs)))
    if here == there:
        raise UserError("the two inputs have the same score, so there is nothing to carry from one to the other")
    maps: dict[str, Tensor] = {}
    for name, other in kept.items():
        axis = position_axis(other)
        places = other.size(axis)

        def one_each(value: Tensor, other: Tensor = other, axis: int = axis, places: int = places) -> Tensor:
            value = value.clone()
            every = torch.arange(places, device=value.device)
            where: Any = (every, every) if axis == 1 else (every, slice(None), every)
            value[where] = other[0] if axis == 1 else other[0].transpose(0, 1)
            return value

        with taps.replace(own, name, one_each):
            found = score(own(*(repeated(rows, places) for rows in inputs)))
        maps[name] = ((found - here) / (there - here)).float().cpu()
    return Effects(maps, here, there)
