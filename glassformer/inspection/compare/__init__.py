"""`glassformer compare`: two runs on the same examples."""

from glassformer.evaluation.bootstrap import (
    DRAWS,
    Interval,
    Paired,
    bleu,
    bleu_statistics,
    draw_counts,
    mean,
    paired_bootstrap,
    percent,
    perplexity,
)
from glassformer.evaluation.examples import as_units, edit_distance
from glassformer.inspection.compare.attention import HeadDistance, head_distances
from glassformer.inspection.compare.comparison import Comparison, Sentence, compare, draw

__all__ = [
    "DRAWS",
    "Comparison",
    "HeadDistance",
    "Interval",
    "Paired",
    "Sentence",
    "as_units",
    "bleu",
    "bleu_statistics",
    "compare",
    "draw",
    "draw_counts",
    "edit_distance",
    "head_distances",
    "mean",
    "paired_bootstrap",
    "percent",
    "perplexity",
]
