"""The package from Python: `train(recipe, data)` makes a model, `load(run)` brings one back, each by what it is for."""

from glassformer.api.evaluation import evaluate
from glassformer.api.loading import export, load
from glassformer.api.models import Classifier, Embedder, Filler, Generator, LoadedModel, Tagger, Translator
from glassformer.api.results import Classification, Filling, Generation, Tagging, Translation
from glassformer.api.training import train

__all__ = [
    "Classification",
    "Classifier",
    "Embedder",
    "Filler",
    "Filling",
    "Generation",
    "Generator",
    "LoadedModel",
    "Tagger",
    "Tagging",
    "Translation",
    "Translator",
    "evaluate",
    "export",
    "load",
    "train",
]
