"""Arrays in, figures out: a module a subject, one style for all."""

from glassformer.plots.ablation import CurvePanel, ablation_curves, layer_gradients
from glassformer.plots.comparison import differences, losses_apart
from glassformer.plots.complexity import cost_curves
from glassformer.plots.heads import cut_curve, head_distances, kind_map, number, part_maps
from glassformer.plots.maps import attention_maps, cell_maps, effects, small_map
from glassformer.plots.style import (
    COLOURS,
    MAP,
    SIGNED,
    figure,
    heading,
    missing_glyphs,
    pale_colours,
    save,
    size_colours,
    visible,
)
from glassformer.plots.training import curves, histogram

__all__ = [
    "COLOURS",
    "MAP",
    "SIGNED",
    "CurvePanel",
    "ablation_curves",
    "attention_maps",
    "cell_maps",
    "cost_curves",
    "curves",
    "cut_curve",
    "differences",
    "effects",
    "figure",
    "head_distances",
    "heading",
    "histogram",
    "kind_map",
    "layer_gradients",
    "losses_apart",
    "missing_glyphs",
    "number",
    "pale_colours",
    "part_maps",
    "save",
    "size_colours",
    "small_map",
    "visible",
]
