"""`glassformer ablate`: a recipe with one thing changed at a time, several seeds of each, side by side."""

from glassformer.lab.ablate.ablation import EXAMPLES, Ablation, ablate, make_ablation
from glassformer.lab.ablate.cost import Cost
from glassformer.lab.ablate.ready import ReadySet, ready_sets
from glassformer.lab.ablate.report import AblationReport, cells, columns
from glassformer.lab.ablate.table import VariantRow, make_rows, paired
from glassformer.lab.ablate.variants import Variant, make_variants, parse_vary

__all__ = [
    "EXAMPLES",
    "Ablation",
    "AblationReport",
    "Cost",
    "ReadySet",
    "Variant",
    "VariantRow",
    "ablate",
    "cells",
    "columns",
    "make_ablation",
    "make_rows",
    "make_variants",
    "paired",
    "parse_vary",
    "ready_sets",
]
