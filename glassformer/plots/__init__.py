"""Arrays in, figures out: a module a subject, one style for all."""

from glassformer.plots.ablation import CurvePanel, ablation_curves, layer_gradients
from glassformer.plots.comparison import differences, losses_apart
from glassformer.plots.complexity import cost_curves
from glassformer.plots.heads import cut_curve, head_distances, kind_map, number, part_maps
from glassformer.plots.maps import attention_maps, cell_maps, effects, small_map
from glassformer.plots.parts import (
    activations,
    alibi,
    dictionary,
    gradient_by_depth,
    length_divisors,
    masks,
    norm_reach,
    rotary,
    schedules,
    sinusoids,
    smoothing,
    softmax_scaling,
    sum_of_tables,
    turns,
    worked_attention,
)
from glassformer.plots.style import COLOURS, MAP, SIGNED, figure, heading, missing_glyphs, save, visible
from glassformer.plots.training import curves, histogram

__all__ = [
    "COLOURS",
    "MAP",
    "SIGNED",
    "CurvePanel",
    "ablation_curves",
    "activations",
    "alibi",
    "attention_maps",
    "cell_maps",
    "cost_curves",
    "curves",
    "cut_curve",
    "dictionary",
    "differences",
    "effects",
    "figure",
    "gradient_by_depth",
    "head_distances",
    "heading",
    "histogram",
    "kind_map",
    "layer_gradients",
    "length_divisors",
    "losses_apart",
    "masks",
    "missing_glyphs",
    "norm_reach",
    "number",
    "part_maps",
    "rotary",
    "save",
    "schedules",
    "sinusoids",
    "small_map",
    "smoothing",
    "softmax_scaling",
    "sum_of_tables",
    "turns",
    "visible",
    "worked_attention",
]
