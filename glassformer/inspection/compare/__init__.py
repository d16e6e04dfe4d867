"""`glassformer compare`: two runs on the same examples."""

from glassformer.inspection.compare.comparison import compare, draw

__all__ = ["compare", "draw"]
