"""The gradient norm of every layer: where in a deep model the gradient fades or grows.

A layer is a group of parameters whose names begin alike, up to the first number in them: `decoder.3.mlp.up.weight` belongs
to `decoder.3`. That is how torch names the members of a list, so nothing here knows what kind of model it looks at; what
stands in no list (embeddings, a last norm) belongs to no layer. Layers that share one set of parameters are one layer.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.training.processes import whole


def layer_of(name: str) -> str | None:
    """The shortest prefix of a parameter's name that ends in a number; None where there is no number in it.

    >>> layer_of("decoder.3.mlp.layers.0.weight"), layer_of("embedding.weight")
    ('decoder.3', None)
    """
    parts = name.split(".")
    end = next((place for place, part in enumerate(parts, 1) if part.isdecimal()), None)
    return None if end is None else ".".join(parts[:end])


def layers_of(named: Iterable[tuple[str, nn.Parameter]]) -> dict[str, list[nn.Parameter]]:
    """The parameters that learn, by the layer they belong to, in the model's order."""
    layers: dict[str, list[nn.Parameter]] = {}
    for name, parameter in named:
        layer = layer_of(name)
        if layer is not None and parameter.requires_grad:
            layers.setdefault(layer, []).append(parameter)
    return layers


def gradient_norms(layers: Iterable[list[nn.Parameter]], device: torch.device) -> Float[Tensor, " layers"]:
    """The norm of each layer's gradients together, on the device; zero for a layer that has none."""
    norms = []
    for parameters in layers:
        grads = [p.grad for p in parameters if p.grad is not None]
        norms.append(whole(torch.nn.utils.get_total_norm(grads)) if grads else torch.zeros((), device=device))
    return torch.stack([norm.float() for norm in norms])
