"""A model with parts switched off: a sentence beside what the whole model answers, what each part is worth to one token of an
answer, and sentences of a run's own data by how hard they are, with a part and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from glassformer.errors import UserError
from glassformer.inspection.activations import forward, record_activations
from glassformer.inspection.data import page_data, statuses
from glassformer.inspection.inspection import Inspection, look_inside
from glassformer.inspection.model_input import ModelInput, make_answer_input, make_prompt_input, with_special_tokens
from glassformer.inspection.page import few_digits
from glassformer.inspection.search import NEW, search
from glassformer.probe import ablate
from glassformer.tasks import TextModel, decode_settings
from glassformer.tasks.generate import prompt_ids


def greedy_answer(model: TextModel, inside: Inspection) -> dict[str, Any] | None:
    """What the model writes by itself, the likeliest token each time; None where that is not its way."""
    if inside.answer is None or inside.forced:
        return None
    settings = decode_settings(model)
    if not inside.prefix and settings.beams == 1 and settings.temperature == 0:
        return {"text": inside.answer}  # as it is
    read = inside.input.source or inside.input.row[: inside.input.given]
    answer, _unused = search(model, read, beam=1, new=NEW, tree=False)
    return None if answer is None else {"text": model.tokenizers.target.decode(answer.ids)}


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
        data = shown()
        # What is measured is the whole model's own answer, also where nobody wrote it down.
        after = record_activations(model.model, whole.with_answer_as_labels()).outputs
    answered = [place for place, status in enumerate(statuses(whole)) if status not in ("given", "next")]
    names = whole.names(before.tokens.tolist())
    data["cut"] = {
        "parts": list(cut),
        "answer": " ".join(names) if whole.answer is None else whole.answer,
        "tokens": [names[place] for place in answered],
        "before": few_digits(before.logprob[answered]),
        "after": few_digits(after.logprob[answered]),
    }
    return data


def without_each(
    inside: Inspection, output: int, parts: Sequence[str], cut: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """For no part and then for each: the log-probability of the token at an output without it, and whether the token still comes
    first. The parts in `cut` are off all the time."""
    net, position = inside.model.model, inside.input.positions[output]
    token = int(inside.activations.outputs.tokens[output])
    for part in (None, *parts):
        with torch.no_grad(), ablate(net, [*cut, *([part] if part else [])]):
            logprobs = forward(net, inside.input)[0, position].double().log_softmax(-1)
        yield {"part": part, "logprob": float(logprobs[token]), "first": int(logprobs.argmax()) == token}


def input_of(model: TextModel, text: str, target: str | None) -> ModelInput | None:
    """The text with its right answer, or (of a GPT) by itself, as the model reads it in training; None where it cannot."""
    try:
        if target is None:
            return make_prompt_input(prompt_ids(model, text)[: model.model.config.block_size], [], [])
        source, answer, notes = with_special_tokens(model, text, target)
        return make_answer_input(model, source, answer or [], True, notes)
    except UserError:  # too long, empty, or not in the vocabulary
        return None


@torch.no_grad()
def loss_of(model: TextModel, given: ModelInput) -> float:
    """The mean cross-entropy of the labels, in nats a token."""
    asked = [position for position in given.positions if given.labels[position] is not None]
    logits = forward(model.model, given)[0, asked].double()
    labels = torch.tensor([given.labels[position] for position in asked], device=logits.device)
    return float(torch.nn.functional.cross_entropy(logits, labels))


def sentence_losses(
    model: TextModel, examples: Iterable[tuple[str, str | None]], part: str | None = None
) -> Iterator[dict[str, Any] | None]:
    """Each example with its loss, and with that of the model without `part`; None for one that the model cannot read."""
    for text, target in examples:
        given = input_of(model, text, target)
        if given is None or len(given.row) < 2:
            yield None
            continue
        losses = {"loss": loss_of(model, given)}
        if part is not None:
            with ablate(model.model, [part]):
                losses["without"] = loss_of(model, given)
        yield {"text": text, "target": target} | losses
