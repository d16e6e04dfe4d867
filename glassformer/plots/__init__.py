"""Arrays in, figures out: a module a subject, one style for all."""

from glassformer.plots.curves import curves, differences, histogram
from glassformer.plots.maps import cut_curve, effects, kind_map, number, part_maps
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

__all__ = [
    "COLOURS",
    "MAP",
    "SIGNED",
    "curves",
    "cut_curve",
    "differences",
    "effects",
    "figure",
    "heading",
    "histogram",
    "kind_map",
    "missing_glyphs",
    "number",
    "pale_colours",
    "part_maps",
    "save",
    "size_colours",
    "visible",
]
