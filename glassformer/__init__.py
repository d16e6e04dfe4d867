"""Glassformer: train a Transformer on your own pairs or text, see through it, ship it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from glassformer.config import VERSION

if TYPE_CHECKING:
    from glassformer.api import load
    from glassformer.config import DataConfig, DecodeConfig, ModelConfig, Recipe, TrainConfig
    from glassformer.models import BERT, GPT, Transformer, build_model, preset
    from glassformer.nn import MultiHeadAttention, Rows, attention
    from glassformer.probe import ablate, record, replace, tap_names

__version__ = VERSION

# Where each public name lives. They are fetched when they are first asked for, so that `glassformer --help` and whatever
# else needs no tensors does not wait for torch.
HOMES = {
    "glassformer.api": ("load",),
    "glassformer.config": ("DataConfig", "DecodeConfig", "ModelConfig", "Recipe", "TrainConfig"),
    "glassformer.models": ("BERT", "GPT", "Transformer", "build_model", "preset"),
    "glassformer.nn": ("MultiHeadAttention", "Rows", "attention"),
    "glassformer.probe": ("ablate", "record", "replace", "tap_names"),
}


def __getattr__(name: str) -> Any:
    for home, names in HOMES.items():
        if name in names:
            found = getattr(importlib.import_module(home), name)
            globals()[name] = found
            return found
        if name == home.partition(".")[2]:
            return importlib.import_module(home)
    raise AttributeError(f"module 'glassformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


__all__ = [
    "BERT",
    "GPT",
    "DataConfig",
    "DecodeConfig",
    "ModelConfig",
    "MultiHeadAttention",
    "Recipe",
    "Rows",
    "TrainConfig",
    "Transformer",
    "ablate",
    "attention",
    "build_model",
    "load",
    "preset",
    "record",
    "replace",
    "tap_names",
]
