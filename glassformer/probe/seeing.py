"""See or change any activation by its name; the heads and MLPs of a model by theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from glassformer.config import did_you_mean
from glassformer.errors import UnknownName, UserError
from glassformer.models import BERT, GPT, Transformer
from glassformer.nn import taps
from glassformer.nn.attention import MultiHeadAttention

Net = Transformer | GPT | BERT
Named = str | tuple[str, int]
T = TypeVar("T")


class ByName(dict[str, T]):
    """Activations, or what there is to say of them, by their names; one that is not there is asked back."""

    def __missing__(self, name: str) -> T:
        raise UnknownName(
            "there is no activation {name!r} among these {n_self}{suggestion}",
            name,
            len(self),
            did_you_mean(str(name), list(self)),
        )


@dataclass(frozen=True)
class Component:
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


def check_names(model: Net, patterns: Iterable[str]) -> None:
    """Refuse a pattern that matches no activation: it is a misspelt name."""
    for pattern in patterns:
        if not taps.find_taps(model, pattern):
            close = did_you_mean(pattern, taps.tap_names(model))
            raise UnknownName("{pattern!r} matches no activation{close}; tap_names(model) lists them", pattern, close)


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
    check_names(net(model), patterns)
    return taps.record(net(model), *patterns, into=ByName())


def replace(model: Any, pattern: str, change: taps.Hook) -> Any:
    """Inside, whatever matches `pattern` is what `change` makes of it. A name that matches nothing is an error.

    >>> import torch
    >>> from glassformer import GPT
    >>> model = GPT(n_layer=1, n_head=2, n_embd=8, vocab_size=9)
    >>> with replace(model, "decoder.0.mlp.out", lambda x: 0 * x):
    ...     without = model(torch.tensor([[1, 2, 3]]))
    """
    check_names(net(model), [pattern])
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
    return ByName(taps.tap_shapes(net(model)))


@torch.no_grad()
def run_with_cache(model: Any, *inputs: Any, names: str | Sequence[str] = "*") -> tuple[Tensor, dict[str, Tensor]]:
    """The logits of one run, and every activation whose name matches, by name. What `glassformer.load(run)` gives may be
    handed a text, or a list of texts.

    >>> import torch
    >>> from glassformer import GPT
    >>> model = GPT(n_layer=1, n_head=2, n_embd=8, vocab_size=9)
    >>> logits, cache = run_with_cache(model, torch.tensor([[1, 2, 3]]))
    >>> cache["decoder.0.attention.weights"].shape
    torch.Size([1, 2, 3, 3])
    """
    if inputs and isinstance(inputs[0], str | list | tuple) and hasattr(model, "run_with_cache"):
        return model.run_with_cache(*inputs, names=names)
    own = net(model)
    with record(own, *([names] if isinstance(names, str) else names)) as seen:
        logits = own(*inputs)
    return logits, seen


# ---- parts by name


def attentions(model: Any) -> dict[str, MultiHeadAttention]:
    """Every attention of a model by its name."""
    return {name: m for name, m in net(model).named_modules() if isinstance(m, MultiHeadAttention)}


def heads(model: Any) -> list[Component]:
    """Every head the model has, in the order in which text goes through them."""
    own = net(model)
    found = attentions(own)
    return [Component(name, number) for name in own.config.attentions for number in found[name].head_ids]


def mlps(model: Any) -> list[Component]:
    """Every feed-forward layer of a model."""
    return [Component(name) for name, _ in net(model).named_modules() if name.endswith(".mlp")]


def find_parts(model: Any, names: Iterable[Named | Component]) -> list[Component]:
    """The parts that names stand for, each once; a name that stands for none is refused with a suggestion."""
    own = net(model)
    names = [names] if isinstance(names, str) else names
    known = {str(part): part for part in [*heads(own), *mlps(own)]}
    whole = {name: [Component(name, number) for number in m.head_ids] for name, m in attentions(own).items()}
    found: dict[Component, None] = {}
    for named in names:
        name = f"{named[0]}:{named[1]}" if isinstance(named, tuple) else str(named)
        if name in whole:
            found |= dict.fromkeys(whole[name])
        elif name in known:
            found[known[name]] = None
        elif name in own.config.pruned_heads:
            raise UserError("the head {name} was pruned; this model no longer has it", name)
        else:
            raise UserError(
                "there is no head or MLP {name!r}{suggestion}; a head is written as {heads}, an MLP as {mlps}",
                name,
                did_you_mean(name, [*known, *whole]),
                heads(own)[0] if heads(own) else "decoder.0.attention:0",
                mlps(own)[0],
            )
    return list(found)
