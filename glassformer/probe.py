"""See or change any activation by its name; cut heads and MLPs; carry an activation from one input into another.

    with record(model, "decoder.*.cross.weights") as seen: ...      what it looks at
    with replace(model, "encoder.1.mlp.out", lambda x: 0 * x): ...  what if it said something else
    with ablate(model, ["decoder.1.cross:3", "encoder.0.mlp"]): ... what if it said nothing
    effects = effect_map(model, inputs, others, score)              which layer and position carries the answer
    smaller = pruned(model, ["decoder.1.cross:3"])                  the same as ablated, with the weights gone

`model` is a Transformer, GPT or BERT, or what `glassformer.load(run)` returns. A head is named by its attention and its
number, "decoder.1.cross:3" or ("decoder.1.cross", 3); an attention's name alone stands for all its heads, "decoder.1.mlp"
for an MLP. Numbers are those of the model as it was trained: pruning renames nobody.

Cutting a head puts zeros where it writes, so that its slice of the output projection adds nothing; the projection's bias
belongs to no head and stays. Zeros are a signal the rest of the model has never seen; the mean of what the head usually
writes is a gentler cut (`mode="mean"`), and the difference between the two says how much of a head's importance is a mere
constant. A patch is the third way: not silence but what the part would have said of another input (Vig et al. 2020, Meng
et al. 2022).

This file knows nothing of text, of scores or of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.config import did_you_mean
from glassformer.data.batches import Batch
from glassformer.errors import UserError
from glassformer.models import BERT, GPT, Transformer, build_model
from glassformer.nn import taps
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.rows import Rows

Net = Transformer | GPT | BERT
Named = str | tuple[str, int]


@dataclass(frozen=True)
class Part:
    """A head (an attention's name and a number) or an MLP (its name)."""

    module: str
    head: int | None = None

    def __str__(self) -> str:
        return self.module if self.head is None else f"{self.module}:{self.head}"

    @property
    def tap(self) -> str:
        """Where what it writes can be changed."""
        return f"{self.module}.out" if self.head is None else f"{self.module}.heads"


def net(model: Any) -> Net:
    """The module behind whatever stands for a model."""
    found = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(found, Transformer | GPT | BERT):
        raise TypeError(f"a Transformer, GPT or BERT, or what load() returns, not {type(model).__name__}")
    return found


# ---- see, change


def record(model: Any, *patterns: str) -> Any:
    """Inside, every run of the model leaves the matching activations in the dictionary, detached, the latest run's.

    >>> import torch
    >>> from glassformer import GPT
    >>> model = GPT(n_layer=1, n_head=2, n_embd=8, vocab_size=9)
    >>> with record(model, "*.weights") as seen:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> seen["decoder.0.attention.weights"].shape
    torch.Size([1, 2, 3, 3])
    """
    return taps.record(net(model), *patterns)


def replace(model: Any, pattern: str, change: taps.Listener) -> Any:
    """Inside, whatever matches `pattern` is what `change` makes of it. A name that matches nothing is an error.

    >>> import torch
    >>> from glassformer import GPT
    >>> model = GPT(n_layer=1, n_head=2, n_embd=8, vocab_size=9)
    >>> with replace(model, "decoder.0.mlp.out", lambda x: 0 * x):
    ...     without = model(torch.tensor([[1, 2, 3]]))
    """
    return taps.replace(net(model), pattern, change)


def tap_names(model: Any) -> list[str]:
    """Every name that can be listened to in this model.

    >>> from glassformer import GPT
    >>> model = GPT(n_layer=1, n_head=2, n_embd=8, vocab_size=9)
    >>> tap_names(model)[:2]
    ['embeddings', 'logits']
    """
    return taps.tap_names(net(model))


def tap_shapes(model: Any) -> dict[str, tuple[str, str]]:
    """Every name that can be listened to in this model, with its shape and what it is.

    >>> from glassformer import GPT
    >>> tap_shapes(GPT(n_layer=1, n_head=2, n_embd=8, vocab_size=9))["decoder.0.attention.weights"][0]
    'B H T S'
    """
    return taps.tap_shapes(net(model))


@torch.no_grad()
def run_with_cache(model: Any, *inputs: Any, names: str | Sequence[str] = "*") -> tuple[Tensor, dict[str, Tensor]]:
    """The logits of one run, and every activation whose name matches, by name.

    >>> import torch
    >>> from glassformer import GPT
    >>> model = GPT(n_layer=1, n_head=2, n_embd=8, vocab_size=9)
    >>> logits, cache = run_with_cache(model, torch.tensor([[1, 2, 3]]))
    >>> cache["decoder.0.attention.weights"].shape
    torch.Size([1, 2, 3, 3])
    """
    own = net(model)
    with record(own, *([names] if isinstance(names, str) else names)) as seen:
        logits = own(*inputs)
    return logits, dict(seen)


# ---- parts by name


def attentions(model: Any) -> dict[str, MultiHeadAttention]:
    return {name: m for name, m in net(model).named_modules() if isinstance(m, MultiHeadAttention)}


def heads(model: Any) -> list[Part]:
    """Every head the model has, in the order in which text goes through them."""
    own = net(model)
    found = attentions(own)
    return [Part(name, number) for name in own.config.attentions for number in found[name].head_ids]


def mlps(model: Any) -> list[Part]:
    return [Part(name) for name, _ in net(model).named_modules() if name.endswith(".mlp")]


def find_parts(model: Any, names: Iterable[Named | Part]) -> list[Part]:
    """The parts that names stand for, each once; a name that stands for none is refused with a suggestion."""
    own = net(model)
    known = {str(part): part for part in [*heads(own), *mlps(own)]}
    whole = {name: [Part(name, number) for number in m.head_ids] for name, m in attentions(own).items()}
    found: dict[Part, None] = {}
    for named in names:
        name = f"{named[0]}:{named[1]}" if isinstance(named, tuple) else str(named)
        if name in whole:
            found |= dict.fromkeys(whole[name])
        elif name in known:
            found[known[name]] = None
        elif name in own.config.pruned_heads:
            raise UserError(f"the head {name} was pruned; this model no longer has it")
        else:
            raise UserError(
                f"there is no head or MLP {name!r}{did_you_mean(name, [*known, *whole])}; a head is written as "
                f"{heads(own)[0] if heads(own) else 'decoder.0.attention:0'}, an MLP as {mlps(own)[0]}"
            )
    return list(found)


# ---- cut


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


@contextmanager
def ablate(
    model: Any, heads: Iterable[Named | Part], mode: str = "zero", *, means: Mapping[str, Tensor] | None = None
) -> Iterator[None]:
    """Inside, these heads and MLPs write zeros, or (`mode="mean"`) always the same: their average in `means`, which
    `mean_outputs` makes; without it the average over the rows and positions of the very run, padding included.

    >>> import torch
    >>> from glassformer import GPT
    >>> model = GPT(n_layer=1, n_head=2, n_embd=8, vocab_size=9)
    >>> with ablate(model, ["decoder.0.attention:1", "decoder.0.mlp"]):
    ...     without = model(torch.tensor([[1, 2, 3]]))
    """
    if mode not in ("zero", "mean"):
        raise UserError(f"a part is cut by mode 'zero' or 'mean', not {mode!r}")
    own = net(model)
    by_tap: dict[str, list[Part]] = {}
    for part in find_parts(own, heads):
        by_tap.setdefault(part.tap, []).append(part)
    found = attentions(own)

    def cutter(tap: str, parts: list[Part]) -> taps.Listener:
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
        yield


@torch.no_grad()
def pruned(model: Any, heads: Iterable[Named | Part]) -> Net:
    """A model without these heads: it answers as the ablated one (`mode="zero"`), and their weights are gone. The heads of
    grouped attention share keys and values; those go with the last head that asks them."""
    own = net(model)
    gone = find_parts(own, heads)
    for part in gone:
        if part.head is None:
            raise UserError(f"{part} is an MLP; only heads are pruned")
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


# ---- patch

Score = Callable[[Float[Tensor, "B T V"]], Float[Tensor, "B"]]
"""From the scores a model gives to a number for each row: how much it leans to the one answer rather than the other."""


def position_axis(value: Tensor) -> int:
    """Residuals are (B, T, C); heads, queries and weights are (B, H, T, …)."""
    return 1 if value.dim() == 3 else 2


@contextmanager
def patch(model: Any, activations: Mapping[str, Tensor], positions: Sequence[int] | None = None) -> Iterator[None]:
    """Inside, the named activations are the given ones, as `record` left them from another input, at these positions (all
    of them, where none are named). The other input has the same number of tokens."""

    def carry(other: Tensor) -> taps.Listener:
        def change(value: Tensor) -> Tensor:
            if other.shape[1:] != value.shape[1:]:
                raise UserError(
                    f"an activation of shape {tuple(other.shape)} cannot stand for one of shape {tuple(value.shape)}; "
                    "the two inputs must have the same number of tokens"
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
            stack.enter_context(taps.replace(net(model), name, carry(other)))
        yield


def repeated(rows: Rows, times: int) -> Rows:
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


__all__ = [
    "Effects",
    "Part",
    "ablate",
    "effect_map",
    "find_parts",
    "heads",
    "mean_outputs",
    "mlps",
    "patch",
    "pruned",
    "record",
    "replace",
    "run_with_cache",
    "tap_names",
    "tap_shapes",
]
