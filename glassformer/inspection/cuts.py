"""One sentence in a model with parts switched off, beside what the whole model answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassformer.inspection.activations import record_activations
from glassformer.inspection.data import page_data, statuses
from glassformer.inspection.inspection import look_inside
from glassformer.inspection.packing import few_digits
from glassformer.probe.cutting import ablate
from glassformer.tasks import TextModel


def live_data(
    model: TextModel, text: str, target: str | None, title: str, cut: Sequence[str] = (), *, explained: bool = True
) -> dict[str, Any]:
    """The data of a report, of the model without the parts named in `cut` where there are any. Then `cut` holds the whole model's
    answer, token by token, with the log-probability of each before and after the cut."""
    if not cut:
        return page_data(look_inside(model, text, target, explained=explained), title)
    whole = look_inside(model, text, target, explained=False)
    with ablate(model.model, cut):
        found = page_data(look_inside(model, text, target, explained=explained), title)
        after = record_activations(model.model, whole.input).outputs
    before = whole.activations.outputs
    answered = [place for place, status in enumerate(statuses(whole)) if status in ("written", "forced")]
    found["cut"] = {
        "parts": list(cut),
        "answer": whole.answer,
        "tokens": [whole.names(before.tokens.tolist())[place] for place in answered],
        "before": few_digits(before.logprob[answered]),
        "after": few_digits(after.logprob[answered]),
    }
    return found
