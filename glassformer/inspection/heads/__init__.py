"""`glassformer heads`: what each head is worth, what it looks at, and how many can go."""

from glassformer.inspection.heads.importance import HeadImportances, Importance, least_important, measure, save, study
from glassformer.inspection.heads.kinds import KINDS, AttentionStats, add_attention, add_induction, kind_of, kinds
from glassformer.inspection.heads.pictures import draw
from glassformer.inspection.heads.pruning import Footprint, measure_footprints, write_pruned

__all__ = [
    "KINDS",
    "AttentionStats",
    "Footprint",
    "HeadImportances",
    "Importance",
    "add_attention",
    "add_induction",
    "draw",
    "kind_of",
    "kinds",
    "least_important",
    "measure",
    "measure_footprints",
    "save",
    "study",
    "write_pruned",
]
