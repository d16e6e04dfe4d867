"""Interventions: heads and MLPs cut (their words replaced by zeros or by their mean) and pruned (their weights gone); residual
connections and positions cut; an activation patched in from another input, to see which layer and position carries the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.data.batches import Batch
from glassformer.errors import UnknownName, UserError
from glassformer.models import build_model
from glassformer.nn import taps
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.positions import LearnedPositions, PositionalEncoding
from glassformer.nn.rows import Rows
from glassformer.probe.seeing import Component, Named, Net, attentions, find_parts, heads, mlps, net, record, replace


@torch.no_grad()
def mean_outputs(model: Any, batches: Iterable[Batch]) -> dict[str, Tensor]:
    """What every head and every MLP writes on average, over all real tokens: `….heads` (H, D) and `….mlp.out` (C)."""
    own = net(model)
    names = {part.tap for part in [*heads(own), *mlps(own)]}
    total: dict[str, Tensor] = {}
    count: dict[str, int] = dict.fromkeys(names, 0)
    with record(own, *sorted(names)) as seen:
        for batch in batches:
            own.hidden(*((batch.rows,) if batch.source is None else (batch.source, batch.rows)))
            for name in names:
                reads_source = batch.source is not None and name.startswith("encoder.")
                rows: Rows = batch.source if reads_source else batch.rows  # type: ignore[assignment]
                value = seen[name].double()
                value = value if value.dim() == 3 else value.transpose(1, 2)
                total[name] = total.get(name, 0) + value[rows.real].sum(0)
                count[name] += int(rows.real.sum())
    weight = next(own.parameters())
    return {name: (total[name] / max(1, count[name])).to(weight) for name in total}


SUBLAYERS = {"attention": "in", "cross": "after_attention", "mlp": "after_cross"}
"""The sublayers of a block, each with the tap of the residual stream that it reads."""


def residual_parts(model: Net) -> dict[str, tuple[str, str]]:
    """Every residual connection by its name (`decoder.0.mlp.residual`): the taps of what it carries past, and of what it is added
    to."""
    known = set(taps.tap_names(model)) if model.config.residual else set()
    found = {}
    for out in sorted(known):
        block, _, sublayer = out.removesuffix(".out").rpartition(".")
        if out.endswith(".out") and sublayer in SUBLAYERS:
            read = f"{block}.{SUBLAYERS[sublayer]}"
            found[f"{block}.{sublayer}.residual"] = (read if read in known else f"{block}.after_attention", out)
    return found


@contextmanager
def without_residual(model: Net, name: str) -> Iterator[None]:
    """Inside, what enters this sublayer does not go past it: f(x) takes the place of x + f(x)."""
    read, out = residual_parts(model)[name]
    stream: list[Tensor] = []

    def keep(value: Tensor) -> Tensor:
        stream[:] = [value]
        return value

    with taps.replace(model, read, keep), taps.replace(model, out, lambda value: value - stream[0]):
        yield


@contextmanager
def without_positions(model: Net) -> Iterator[None]:
    """Inside, nothing is added to the embeddings for where a token stands."""
    tables = [m for m in model.modules() if isinstance(m, PositionalEncoding | LearnedPositions)]
    if not tables:
        raise UserError(
            "this model adds no positions to its embeddings (model.positions = {kind!r}), so there are none to cut",
            model.config.positions,
        )
    # A hook of torch's: wherever one is, the model itself answers and no faster copy of it.
    hooks = [table.register_forward_hook(lambda _module, _given, value: torch.zeros_like(value)) for table in tables]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def ablate(
    model: Any, heads: Iterable[Named | Component], mode: str = "zero", *, means: Mapping[str, Tensor] | None = None
) -> Iterator[None]:
    """Inside, these heads and MLPs write zeros, or (`mode="mean"`) always the same: their average in `means`, which
    `mean_outputs` makes; without it the average over the rows and positions of the very run, padding included. A residual
    connection (`decoder.0.mlp.residual`) and the `positions` are left out, whatever the mode.

    >>> import torch
    >>> from glassformer import GPT
    >>> model = GPT(n_layer=1, n_head=2, n_embd=8, vocab_size=9)
    >>> with ablate(model, ["decoder.0.attention:1", "decoder.0.mlp"]):
    ...     without = model(torch.tensor([[1, 2, 3]]))
    """
    if mode not in ("zero", "mean"):
        raise UserError("a part is cut by mode 'zero' or 'mean', not {mode!r}", mode)
    if mode == "zero" and means is not None:
        raise UserError("means are what mode='mean' writes; say so, or leave means out")
    own = net(model)
    heads = [heads] if isinstance(heads, str) else list(heads)
    known = residual_parts(own)
    others = [name for name in dict.fromkeys(map(str, heads)) if name in known or name == "positions"]
    by_tap: dict[str, list[Component]] = {}
    for part in find_parts(own, [part for part in heads if str(part) not in others]):
        by_tap.setdefault(part.tap, []).append(part)
    found = attentions(own)
    if mode == "mean" and means is not None and (lacking := sorted(by_tap.keys() - means.keys())):
        raise UnknownName(
            "means has nothing for {what}; mean_outputs(model, batches) makes it of all parts", lacking[0]
        )

    def cutter(tap: str, parts: list[Component]) -> taps.Hook:
        if parts[0].head is None:
            which: Any = ...
        else:
            numbers = found[parts[0].module].head_ids
            which = [numbers.index(part.head) for part in parts if part.head is not None]

        def cut(value: Tensor) -> Tensor:
            value = value.clone()
            if mode == "zero":
                value[:, which] = 0.0
            elif which is ...:
                value[:] = value.mean((0, 1)) if means is None else means[tap].to(value)
            else:
                usual = value.mean((0, 2)) if means is None else means[tap].to(value)
                value[:, which] = usual[which][None, :, None]
            return value

        return cut

    with ExitStack() as stack:
        for tap, parts in by_tap.items():
            stack.enter_context(taps.replace(own, tap, cutter(tap, parts)))
        for name in others:
            stack.enter_context(without_positions(own) if name == "positions" else without_residual(own, name))
        yield


@torch.no_grad()
def pruned(model: Any, heads: Iterable[Named | Component]) -> Net:
    """A model without these heads: it answers as the ablated one (`mode="zero"`), and their weights are gone. The heads of
    grouped attention share keys and values; those go with the last head that asks them."""
    own = net(model)
    gone = find_parts(own, heads)
    for part in gone:
        if part.head is None:
            raise UserError("{part} is an MLP; only heads are pruned", part)
    if own.config.share_layers:
        raise UserError("all layers of this model are one (model.share_layers); a head cannot be pruned in one of them")
    names = (*own.config.pruned_heads, *map(str, gone))
    weight = next(own.parameters())
    smaller = build_model(changed(own.config, pruned_heads=names)).to(weight.device, weight.dtype)
    state = dict(own.state_dict())
    for name, old in attentions(own).items():
        new = smaller.get_submodule(name)
        assert isinstance(new, MultiHeadAttention)
        asked = [old.head_ids.index(number) for number in new.head_ids]
        of_head = old.kv_head_of or [i // (old.n_head // max(1, old.n_kv_head)) for i in range(old.n_head)]
        shared = sorted({of_head[i] for i in asked})
        for projection, size, kept in (
            ("query", old.head_size, asked),
            ("key", old.head_size, shared),
            ("value", old.value_size, shared),
        ):
            for tensor in ("weight", "bias"):
                if (full := f"{name}.{projection}.{tensor}") in state:
                    state[full] = state[full].unflatten(0, (-1, size))[kept].flatten(0, 1)
        out = state[f"{name}.out.weight"].unflatten(1, (-1, old.value_size))
        state[f"{name}.out.weight"] = out[:, asked].flatten(1)
    smaller.load_state_dict(state)
    return smaller.train(own.training)


# ---- activations of another input

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
            scores = score(own(*(repeated(rows, places) for rows in inputs)))
        maps[name] = ((scores - here) / (there - here)).float().cpu()
    return Effects(maps, here, there)
