"""One sentence in a model with parts switched off, beside what the whole model answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from glassformer.inspection.activations import record_activations
from glassformer.inspection.data import page_data, statuses
from glassformer.inspection.inspection import NEW, Inspection, look_inside
from glassformer.inspection.packing import few_digits
from glassformer.inspection.search import search
from glassformer.probe.cutting import ablate
from glassformer.tasks import TextModel, decode_settings


def greedy_answer(model: TextModel, inside: Inspection) -> dict[str, Any] | None:
    """What the model writes by itself, the likeliest token each time; None where that is not its way."""
    if inside.answer is None or inside.forced:
        return None
    own = decode_settings(model)
    if not inside.prefix and own.beams == 1 and own.temperature == 0:
        return {"text": inside.answer}  # as it is
    read = inside.input.source or inside.input.row[: inside.input.given]
    said, _unused = search(model, read, beam=1, new=NEW, tree=False)
    return None if said is None else {"text": model.tokenizers.target.decode(said.ids)}


def cut_data(
    model: TextModel,
    text: str,
    target: str | None,
    title: str,
    cut: Sequence[str] = (),
    *,
    prefix: Sequence[int] = (),
    explained: bool = True,
    draft: Sequence[int] = (),
    between: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """The data of a report, of the model without the parts named in `cut` where there are any. Then `cut` holds the whole model's
    answer, token by token, with the log-probability of each before and after the cut. `prefix`: token ids that the answer is
    made to begin with; `greedy` is what the model would have said without. `draft`: ids that the answer may be.
    `between` is called in the middle of long work."""

    def seen(**how: Any) -> Inspection:
        return look_inside(model, text, target, prefix=prefix, draft=draft, between=between, **how)

    def shown() -> dict[str, Any]:
        inside = seen(explained=explained, tree=explained)
        return page_data(inside, title) | {"greedy": greedy_answer(model, inside), "prefix": list(prefix)}

    if not cut:
        return shown()
    whole = seen(explained=False, tree=False)
    before = whole.activations.outputs
    with ablate(model.model, cut):
        found = shown()
        # What is measured is the whole model's own answer, also where nobody wrote it down.
        labels = list(whole.input.labels)
        for place, token in zip(whole.input.positions, before.tokens.tolist()):
            labels[place] = token
        after = record_activations(model.model, replace(whole.input, labels=labels)).outputs
    answered = [place for place, status in enumerate(statuses(whole)) if status not in ("given", "next")]
    names = whole.names(before.tokens.tolist())
    found["cut"] = {
        "parts": list(cut),
        "answer": " ".join(names) if whole.answer is None else whole.answer,
        "tokens": [names[place] for place in answered],
        "before": few_digits(before.logprob[answered]),
        "after": few_digits(after.logprob[answered]),
    }
    return found
