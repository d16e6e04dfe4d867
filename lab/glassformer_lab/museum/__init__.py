"""The museum of mistakes: those of the tutorials, each trained beside the right one, and what `audit` finds in each."""

from glassformer_lab.museum.exhibition import exhibit, museum, write
from glassformer_lab.museum.planting import plant, planting

__all__ = ["exhibit", "museum", "plant", "planting", "write"]
