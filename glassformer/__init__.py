"""Glassformer: train a Transformer on your own pairs or text, see through it, ship it."""

from glassformer.api import load
from glassformer.config import VERSION, DataConfig, DecodeConfig, ModelConfig, Recipe, TrainConfig
from glassformer.models import BERT, GPT, Transformer, build_model, preset
from glassformer.nn import MultiHeadAttention, Rows, attention
from glassformer.probe import ablate, record, replace, tap_names

__version__ = VERSION

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
