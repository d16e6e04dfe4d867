"""`glassformer sweep`: a recipe with one thing changed at a time, several seeds of each, side by side."""

from glassformer_lab.sweep.cost import Cost
from glassformer_lab.sweep.sweep import make_sweep, sweep

__all__ = ["Cost", "make_sweep", "sweep"]
