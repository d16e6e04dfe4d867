"""Glassformer: train a Transformer on your own pairs or text, see through it, ship it."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

# Threads of OpenMP that have nothing to do spin, by default for milliseconds, and so keep the processor from the thread they
# wait for: with one of two cores busy elsewhere a step took 17 times as long. A spin of microseconds is as good on an idle
# machine (docs/log.md). The library reads this once, when torch loads it; who has set anything about it, or has torch, is
# left alone.
if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ |= {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}  # GNU's (Linux), in turns; LLVM's and Intel's, in ms

from glassformer.config import VERSION

if TYPE_CHECKING:
    from glassformer.api import (
        Classifier,
        Embedder,
        Filler,
        Generator,
        Tagger,
        Translator,
        evaluate,
        export,
        load,
        train,
    )
    from glassformer.config import DataConfig, DecodeConfig, ModelConfig, Recipe, TrainConfig
    from glassformer.inspection.report import attention_view, look
    from glassformer.models import BERT, GPT, Transformer, build_model, preset
    from glassformer.nn import MultiHeadAttention, Rows, attention
    from glassformer.probe import ablate, record, replace, run_with_cache, tap_names, tap_shapes

__version__ = VERSION

# Where each public name lives. They are fetched when they are first asked for, so that `glassformer --help` and whatever
# else needs no tensors does not wait for torch.
HOMES = {
    "glassformer.api": (
        "Classifier",
        "Embedder",
        "Filler",
        "Generator",
        "Tagger",
        "Translator",
        "evaluate",
        "export",
        "load",
        "train",
    ),
    "glassformer.config": ("DataConfig", "DecodeConfig", "ModelConfig", "Recipe", "TrainConfig"),
    "glassformer.models": ("BERT", "GPT", "Transformer", "build_model", "preset"),
    "glassformer.nn": ("MultiHeadAttention", "Rows", "attention"),
    "glassformer.probe": ("ablate", "record", "replace", "run_with_cache", "tap_names", "tap_shapes"),
    "glassformer.inspection.report": ("attention_view", "look"),
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
    "Classifier",
    "Embedder",
    "Filler",
    "Generator",
    "Tagger",
    "Translator",
    "evaluate",
    "export",
    "load",
    "train",
]
__all__ += ["DataConfig", "DecodeConfig", "ModelConfig", "Recipe", "TrainConfig"]
__all__ += ["BERT", "GPT", "Transformer", "build_model", "preset"]
__all__ += ["MultiHeadAttention", "Rows", "attention", "attention_view", "look"]
__all__ += ["ablate", "record", "replace", "run_with_cache", "tap_names", "tap_shapes"]
