"""The package from Python: `load(run)` gives a model to work with, by what it was trained for."""

from glassformer.api.loading import load
from glassformer.api.models import Classifier, Filler, Generator, LoadedModel, Tagger, Translator
from glassformer.api.results import Classification, Filling, Generation, Tagging, Translation

__all__ = [
    "Classification",
    "Classifier",
    "Filler",
    "Filling",
    "Generation",
    "Generator",
    "LoadedModel",
    "Tagger",
    "Tagging",
    "Translation",
    "Translator",
    "load",
]
