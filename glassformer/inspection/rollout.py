"""What follows from attention weights alone: the attention rollout (Abnar and Zuidema 2020), the mean alignment."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from glassformer.inspection.activations import Activations, Array


def head_mean(weights: Float[Array, "H T S"]) -> Float[Array, "T S"]:
    """Without heads (all pruned) nothing is passed on."""
    return weights.astype(np.float64).mean(axis=0) if len(weights) else np.zeros(weights.shape[1:])


def rollout(activations: Activations, *, residual: bool = True) -> dict[str, Float[Array, "L T S"]]:
    """How much of each input token has come to each place after each layer, if every block passes on half of what it had and
    half of what its attention looked at (the mean of its heads); of two attentions, one after the other. The rows of an
    encoder add up to one; those of a decoder that has a source do so over its own tokens and the source's together."""
    stay = 0.5 if residual else 0.0

    def through(layers: list[Array]) -> Array:
        found = np.eye(layers[0].shape[-1])
        out = []
        for weights in layers:
            # A mean of heads whose rows add up to one; without any head, all of it stays.
            keep = stay if len(weights) else 1.0
            found = keep * found + (1 - keep) * head_mean(weights) @ found
            out.append(found)
        return np.stack(out)

    out = {}
    if "encoder" in activations.attentions:
        out["encoder"] = through(activations.weights("encoder"))
    if "decoder" in activations.attentions and "cross" not in activations.attentions:
        out["decoder"] = through(activations.weights("decoder"))
    if "cross" in activations.attentions:
        source = out["encoder"][-1]
        length = activations.weights("decoder")[0].shape[-1]
        own, from_source = np.eye(length), np.zeros((length, len(source)))
        depths: tuple[list[Array], list[Array]] = ([], [])
        for self_weights, cross_weights in zip(activations.weights("decoder"), activations.weights("cross")):
            keep = stay if len(self_weights) else 1.0
            step = keep * np.eye(length) + (1 - keep) * head_mean(self_weights)
            own, from_source = step @ own, step @ from_source
            keep = stay if len(cross_weights) else 1.0
            own, from_source = keep * own, keep * from_source + (1 - keep) * head_mean(cross_weights) @ source
            depths[0].append(own)
            depths[1].append(from_source)
        out["decoder"], out["cross"] = np.stack(depths[0]), np.stack(depths[1])
    return out


def alignment(activations: Activations) -> Float[Array, "T S"] | None:
    """Where the decoder looked in the source: the mean over the layers and heads of cross-attention."""
    layers = [head_mean(w) for w in activations.weights("cross") if len(w)] if "cross" in activations.attentions else []
    return np.mean(layers, axis=0) if layers else None
