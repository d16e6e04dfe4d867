"""A model that cannot fit into this machine is refused before it is built."""

from __future__ import annotations

import os

import torch

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models.costs import count_parameters, memory_needed


def check_fits_in_memory(config: ModelConfig) -> None:
    """A model larger than the machine's memory is refused before a byte of it is asked for. (On torch's meta device a model
    has no numbers, and any size is well.)"""
    if torch.get_default_device().type == "meta":
        return
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return  # a system that does not say
    needed = memory_needed(config)
    if needed > memory:
        raise ConfigError(
            "a model with {count_parameters:,} parameters and rows of {block_size:,} tokens needs "
            "{needed:,.0f} GB, and this machine has {memory:,.0f} GB; make model.n_layer, model.n_embd, "
            "model.block_size or the vocabulary smaller",
            count_parameters(config),
            config.block_size,
            needed / 2**30,
            memory / 2**30,
        )
