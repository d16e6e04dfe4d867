"""`glassformer complexity`: what attention and its alternatives cost, measured against length and width."""

from glassformer.lab.complexity.chains import chain_lengths, equations, longest_chain
from glassformer.lab.complexity.complexity import Sizes, complexity, sizes_for
from glassformer.lab.complexity.fit import Exponent, asymptotic, fit_exponent
from glassformer.lab.complexity.layers import LAYERS, LayerKind
from glassformer.lab.complexity.measure import Point, most_memory, shortest_time
from glassformer.lab.complexity.reach import Reach, gradient_reach, layers_needed
from glassformer.lab.complexity.report import HEADS, ComplexityReport, LayerMeasurements, cells, write

__all__ = [
    "HEADS",
    "LAYERS",
    "ComplexityReport",
    "Exponent",
    "LayerKind",
    "LayerMeasurements",
    "Point",
    "Reach",
    "Sizes",
    "asymptotic",
    "cells",
    "chain_lengths",
    "complexity",
    "equations",
    "fit_exponent",
    "gradient_reach",
    "layers_needed",
    "longest_chain",
    "most_memory",
    "shortest_time",
    "sizes_for",
    "write",
]
