"""`glassformer complexity`: what attention and its alternatives cost, measured against length and width."""

from glassformer_lab.complexity.complexity import complexity
from glassformer_lab.complexity.layers import LAYERS
from glassformer_lab.complexity.report import write

__all__ = ["LAYERS", "complexity", "write"]
