"""Weights and configs, there and back. (Folders, tokenizers and the model card: see the rest of this room.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.interop.dialects import Dialect
from glassformer.interop.tables import from_half_split, to_half_split, to_ours, to_theirs
from glassformer.models import build_model

OUTPUT_OF_SCALED = "lm_head.weight"


def scales_by_hand(dialect: Dialect, config: ModelConfig) -> bool:
    """Must sqrt(n_embd) be multiplied into the embedding table, because the dialect's model would not?"""
    return config.scale_embeddings and not dialect.half_split


def tensors_to(
    dialect: Dialect, config: ModelConfig, own: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Our parameters under the dialect's names, and what its config must say besides `dialect.to_config`."""
    own = {name: tensor.detach() for name, tensor in own.items()}
    if dialect.half_split:
        own = to_half_split(own, config.n_embd)
    tensors = to_theirs(dialect.table(config), own)
    if dialect.half_split and "model.shared.weight" in tensors and not config.tie_output:
        # An output layer of its own makes their model forget that the two tables are one.
        for side in ("encoder", "decoder"):
            tensors[f"model.{side}.embed_tokens.weight"] = tensors["model.shared.weight"].clone()
    if not scales_by_hand(dialect, config):
        return tensors, {}
    table = next(entry.theirs for entry in dialect.table(config) if entry.ours == ("embedding.weight",))
    # The output layer keeps the table as it is, so that the way back is exact.
    tensors.setdefault(OUTPUT_OF_SCALED, tensors[table])
    tensors[table] = tensors[table] * config.n_embd**0.5
    return tensors, {"tie_word_embeddings": False}


def tensors_from(dialect: Dialect, config: ModelConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The dialect's tensors as the parameters of our model of this config; anything missing, left over or of another
    shape is an error."""
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in build_model(config).named_parameters()}
    table = dialect.table(config)
    found = dict(tensors)
    if scales_by_hand(dialect, config):
        name = next(entry.theirs for entry in table if entry.ours == ("embedding.weight",))
        if config.tie_output and OUTPUT_OF_SCALED in found:
            found[name] = found.pop(OUTPUT_OF_SCALED)
        else:
            found[name] = found[name] / config.n_embd**0.5
    own = to_ours(table, found, shapes, ignored=dialect.ignored(config))
    return from_half_split(own, config.n_embd) if dialect.half_split else own
