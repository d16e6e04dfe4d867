"""`glassformer complexity`: what attention and its alternatives cost, measured against length and width."""

from glassformer.lab.complexity.complexity import complexity
from glassformer.lab.complexity.layers import LAYERS
from glassformer.lab.complexity.report import write

__all__ = ["LAYERS", "complexity", "write"]
