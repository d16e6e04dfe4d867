"""Whole models in NumPy, put together from `tests/reference.py`: as slow, as readable, and as independent of the package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.reference import ACTIVATIONS, Array, Params, linear, norm, sinusoids, stack, under

# ----------------------------------------------------------------------------------------------------------- whole models


def embed(ids: Sequence[int], table: Array, positions: Array | None, config: Any, types: Array | None = None) -> Array:
    x = table[list(ids)]
    if config.scale_embeddings:
        x = x * math.sqrt(config.n_embd)
    if config.positions == "sinusoidal":
        x = x + sinusoids(len(ids), config.n_embd, config.sinusoid_base)
    if config.positions == "learned":
        assert positions is not None
        x = x + positions[: len(ids)]
    return x if types is None else x + types


def encoder_decoder(p: Params, config: Any, source: Sequence[int], target: Sequence[int]) -> Array:
    """Logits [T, V] for the token after each of `target`, having read `source`."""
    source_table = p["embedding.weight"] if "embedding.weight" in p else p["source_embedding.weight"]
    target_table = p["embedding.weight"] if "embedding.weight" in p else p["target_embedding.weight"]
    memory = embed(source, source_table, p.get("source_positions.weight"), config)
    x = embed(target, target_table, p.get("target_positions.weight"), config)
    if config.embedding_norm:
        memory = norm(memory, under(p, "source_norm"), config.norm, config.norm_eps)
        x = norm(x, under(p, "target_norm"), config.norm, config.norm_eps)
    memory = stack(memory, under(p, "encoder"), config, config.encoder_layers, causal=False)
    x = stack(x, under(p, "decoder"), config, config.n_layer, causal=True, memory=memory)
    return x @ (target_table if config.tie_output else p["output.weight"]).T + p.get("output_bias", 0.0)


def gpt(p: Params, config: Any, ids: Sequence[int]) -> Array:
    """Logits [T, V] for the token after each."""
    x = embed(ids, p["embedding.weight"], p.get("positions.weight"), config)
    if config.embedding_norm:
        x = norm(x, under(p, "embedding_norm"), config.norm, config.norm_eps)
    x = stack(x, under(p, "decoder"), config, config.n_layer, causal=True)
    logits = x @ (p["embedding.weight"] if config.tie_output else p["output.weight"]).T
    return logits + p.get("output_bias", 0.0)


def bert(p: Params, config: Any, ids: Sequence[int], token_types: Sequence[int] | None = None) -> Array:
    """Logits: of the vocabulary at each position (mlm), of the labels for the sentence (classify), or at each position (tag)."""
    types = None
    if config.n_token_type:
        types = p["type_embedding.weight"][list(token_types) if token_types is not None else [0] * len(ids)]
    x = embed(ids, p["embedding.weight"], p.get("positions.weight"), config, types)
    if config.embedding_norm:
        x = norm(x, under(p, "embedding_norm"), config.norm, config.norm_eps)
    x = stack(x, under(p, "encoder"), config, config.n_layer, causal=False)
    if config.head == "tag":
        return linear(x, under(p, "head.label"))
    if config.head == "classify":
        sentence = x.mean(axis=0) if config.pool == "mean" else x[0]
        return linear(np.tanh(linear(sentence, under(p, "head.dense"))), under(p, "head.label"))
    activation = (
        "gelu" if config.activation in ("swiglu", "geglu", "geglu_tanh") else config.activation
    )  # a head has no gate
    x = ACTIVATIONS[activation](linear(x, under(p, "head.dense")))
    x = norm(x, under(p, "head.norm"), config.norm, config.norm_eps)
    logits = x @ (p["embedding.weight"] if config.tie_output else p["output.weight"]).T
    return logits + p["head.bias"] if "head.bias" in p else logits
