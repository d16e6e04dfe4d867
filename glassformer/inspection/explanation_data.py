"""The parts of a report that explain: attribution, saliency, patching, and what each head is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glassformer.files import structured
from glassformer.inspection.attribution import Attribution
from glassformer.inspection.packing import few_digits, packed
from glassformer.inspection.patching import PatchResult
from glassformer.inspection.saliency import Saliency

Number = Callable[[Sequence[int]], list[int]]
"""From token ids to their places in the page's table of names."""


def attribution_data(found: Attribution, number: Number) -> dict[str, Any]:
    """Terms as 32-bit floats: they add up to their logits to more than four digits."""
    return {
        "tokens": [number(row) for row in found.tokens.tolist()],
        "logits": few_digits(found.logits),
        "parts": found.parts,
        "terms": packed(found.terms, "float32"),
        "neurons": {
            path: [[[n, float(f"{a:.4g}"), float(f"{push:.4g}")] for n, a, push in row] for row in rows]
            for path, rows in found.neurons.items()
        },
    }


def saliency_data(found: Saliency) -> dict[str, Any]:
    """Saliency as the page reads it."""
    return {
        "gradient": {axis: packed(values, "float32") for axis, values in found.gradient.items()},
        "integrated": None
        if found.integrated is None
        else {axis: packed(values, "float32") for axis, values in found.integrated.items()},
        "difference": few_digits(found.difference),
        "gained": None if found.gained is None else few_digits(found.gained),
    }


def patching_data(found: PatchResult) -> dict[str, Any]:
    """A patching as the page reads it."""
    panels = [
        {"name": p.name, "stack": p.stack, "effects": packed(p.effects, "float32"), "tokens": p.tokens}
        for p in found.panels
    ]
    return {"texts": list(found.texts), "answers": list(found.answers), "panels": panels}


def importance_of(run: Path) -> dict[str, dict[str, Any]]:
    """What `glassformer heads` found of each part, where it was run and left its numbers: the rise of the loss when the part is
    ablated, and what kind of head it is."""
    path = run / "heads" / "heads.json"
    try:
        found = structured.read(path, dict[str, Any])
        whole = found["whole"]["loss"]
        return {
            part["part"]: {"loss": float(f"{part['without']['zero']['loss'] - whole:.4g}"), "kind": str(part["kind"])}
            for part in found["parts"]
        }
    except (OSError, structured.Unreadable, ValueError, KeyError, TypeError):
        return {}  # not there, or of another version: the page does without
