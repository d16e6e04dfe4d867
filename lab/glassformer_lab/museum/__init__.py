"""The museum of mistakes: those of the tutorials, each trained beside the right one, and which of them a curve looks like."""

from glassformer_lab.museum.diagnosis import diagnose, museum
from glassformer_lab.museum.exhibition import exhibit, write
from glassformer_lab.museum.planting import plant, planting

__all__ = ["diagnose", "exhibit", "museum", "plant", "planting", "write"]
