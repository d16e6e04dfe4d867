"""`glassformer ablate`: a recipe with one thing changed at a time, several seeds of each, side by side."""

from glassformer.lab.ablate.ablation import ablate, make_ablation
from glassformer.lab.ablate.cost import Cost

__all__ = ["Cost", "ablate", "make_ablation"]
