"""Named points in the model where an activation can be seen or changed: its hook points.

A module that has something worth seeing calls `x = self.tap("weights", x)` there. Its full name is the module's path and
the tap's name: `decoder.3.cross.weights`. Without a hook, a tap is one look into an empty dictionary; in a compiled model it
is nothing at all.

    with record(model, "decoder.*.cross.weights") as seen:
        model(source, target)
    seen["decoder.0.cross.weights"]          # heads x target x source

    with replace(model, "encoder.1.mlp.out", lambda x: 0 * x):
        model(source, target)                # as if that MLP were not there

Attention computes its scores and weights only on the explicit path, so a hook there switches that one attention to it;
the fused kernel never holds them. Taps are for the eager model: a compiled or captured copy has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import Tensor, nn

Hook = Callable[[Tensor], Tensor]
"""Called with an activation; what it returns takes the activation's place."""

SHAPES: dict[str, tuple[str, str]] = {
    "embeddings": ("B T C", "tokens as vectors, with their positions where those are added"),
    "source_embeddings": ("B S C", "the source's tokens as vectors, with their positions where those are added"),
    "target_embeddings": ("B T C", "the target's tokens as vectors, with their positions where those are added"),
    "in": ("B T C", "what a block reads: the residual stream before it"),
    "q": ("B H T D", "queries, after norm and rotation"),
    "k": ("B K S D", "keys, after norm and rotation; K key heads"),
    "v": ("B K S D", "values"),
    "scores": ("B H T S", "how well each key answers each query, before the mask"),
    "weights": ("B H T S", "the same after mask and softmax: rows that sum to 1"),
    "heads": ("B H T D", "what each head read: its weighted mean of values"),
    "out": ("B T C", "what the part adds to the residual stream"),
    "after_attention": ("B T C", "the residual stream after self-attention"),
    "after_cross": ("B T C", "the residual stream after cross-attention"),
    "hidden": ("B T F", "the feed-forward layer before its activation (of a gated one: the gate)"),
    "activation": ("B T F", "the same after its activation"),
    "residual": ("B T C", "the residual stream after the block"),
    "logits": ("B T V", "the logit of each token of the vocabulary, or of each label, at each position"),
}
"""The shape of each activation, wherever it is recorded, and what it is. B rows (each beam of a sentence is one, and of the
source each sentence), T queries (while decoding with a cache: the new tokens), S keys, H heads, D head size, C n_embd, F hidden
width, V vocabulary or labels."""


class Tapped(nn.Module):
    """A module with taps; `tap_names` lists them."""

    tap_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.hooks: dict[str, list[Hook]] = {}

    def tap(self, name: str, value: Tensor) -> Tensor:
        """The value, or what the hooks of this name make of it."""
        if self.hooks:
            for hook in self.hooks.get(name, ()):
                value = hook(value)
        return value


def tap_names(model: nn.Module) -> list[str]:
    """Every tap of this model by its full name."""
    return list(find_taps(model, "*"))


def tap_shapes(model: nn.Module) -> dict[str, tuple[str, str]]:
    """Every tap of this model by its full name, with its shape and its meaning: see `SHAPES`."""
    return {full: SHAPES[name] for full, (_, name) in find_taps(model, "*").items()}


def find_taps(model: nn.Module, *patterns: str) -> dict[str, tuple[Tapped, str]]:
    """The taps whose full name matches any of the patterns: name -> (module, its own name for it)."""
    taps: dict[str, tuple[Tapped, str]] = {}
    for path, module in model.named_modules():
        if isinstance(module, Tapped):
            for name in module.tap_names:
                full = f"{path}.{name}" if path else name
                if any(fnmatchcase(full, pattern) for pattern in patterns):
                    taps[full] = (module, name)
    return taps


def matching(model: nn.Module, *patterns: str) -> dict[str, tuple[Tapped, str]]:
    """As find_taps, but a pattern that matches nothing is an error: it is a misspelt name."""
    found = find_taps(model, *patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise KeyError(f"{pattern!r} matches no activation; tap_names(model) lists them")
    return found


@contextmanager
def hooked(taps: Mapping[str, tuple[Tapped, str]], make: Callable[[str], Hook]) -> Iterator[None]:
    """Inside, the tap of each name has one more hook, `make(name)`; it is removed however the block ends."""
    installed = [(module, name, make(full)) for full, (module, name) in taps.items()]
    for module, name, hook in installed:
        module.hooks.setdefault(name, []).append(hook)
    try:
        yield
    finally:
        for module, name, hook in installed:
            # By identity: two equal hooks may be installed, and each block removes its own.
            module.hooks[name] = [f for f in module.hooks[name] if f is not hook]
            if not module.hooks[name]:
                del module.hooks[name]


@contextmanager
def replace(model: nn.Module, pattern: str, change: Hook) -> Iterator[None]:
    """Inside, whatever matches `pattern` is what `change` makes of it. A name that matches nothing is an error."""
    # A hook of this block's own, since the same `change` may be at work in a block around it.
    with hooked(matching(model, pattern), lambda full: lambda value: change(value)):
        yield


@contextmanager
def record(model: nn.Module, *patterns: str, into: dict[str, Tensor] | None = None) -> Iterator[dict[str, Tensor]]:
    """Inside, every run of the model leaves the matching activations in the dictionary, detached, the latest run's."""
    seen: dict[str, Tensor] = {} if into is None else into

    def keeper(full: str) -> Hook:
        def keep(value: Tensor) -> Tensor:
            seen[full] = value.detach()
            return value

        return keep

    with hooked(matching(model, *patterns), keeper):
        yield seen
