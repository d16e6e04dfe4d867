"""The museum of mistakes: those of the tutorials, each trained beside the right one, and which of them a curve looks like."""

from glassformer.lab.museum.diagnosis import diagnose, museum
from glassformer.lab.museum.exhibition import exhibit, write

__all__ = ["diagnose", "exhibit", "museum", "write"]
