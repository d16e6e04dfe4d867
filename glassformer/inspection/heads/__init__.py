"""`glassformer heads`: what each head is worth, what it looks at, and how many can go."""

from glassformer.inspection.heads.importance import draw, least_important, measure, save, study
from glassformer.inspection.heads.pruning import measure_footprints, write_pruned

__all__ = ["draw", "least_important", "measure", "measure_footprints", "save", "study", "write_pruned"]
