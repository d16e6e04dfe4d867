"""Sentences of a run's own data by what the model makes of them: how hard each is, and how much harder without a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from glassformer.errors import UserError
from glassformer.inspection.attribution import forward
from glassformer.inspection.model_input import ModelInput, make_answer_input, make_prompt_input, with_special_tokens
from glassformer.probe.cutting import ablate
from glassformer.tasks import TextModel
from glassformer.tasks.generate import prompt_ids


def input_of(model: TextModel, text: str, target: str | None) -> ModelInput | None:
    """The text with its right answer, or (of a GPT) by itself, as the model reads it in training; None where it cannot."""
    try:
        if target is None:
            return make_prompt_input(model, prompt_ids(model, text)[: model.model.config.block_size], [], [])
        source, wanted, notes = with_special_tokens(model, text, target)
        return make_answer_input(model, source, wanted or [], True, notes)
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
        found = {"text": text, "target": target, "loss": loss_of(model, given)}
        if part is not None:
            with ablate(model.model, [part]):
                found["without"] = loss_of(model, given)
        yield found
