"""What a run is made of, as plain frozen data: a recipe, and in it the model, the data, the training, the decoding."""

from glassformer.config.data import DataConfig
from glassformer.config.decode import DecodeConfig
from glassformer.config.fields import did_you_mean, not_among
from glassformer.config.model import PRESETS, ModelConfig, preset
from glassformer.config.recipe import PARTS, RECIPE_FOLDER, Recipe, read_recipe, recipe_names
from glassformer.config.train import TrainConfig

VERSION = "0.1.0"

__all__ = [
    "PARTS",
    "PRESETS",
    "RECIPE_FOLDER",
    "VERSION",
    "DataConfig",
    "DecodeConfig",
    "ModelConfig",
    "Recipe",
    "TrainConfig",
    "did_you_mean",
    "not_among",
    "preset",
    "read_recipe",
    "recipe_names",
]
