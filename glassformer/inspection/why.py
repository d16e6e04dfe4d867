"""What each of a few parts is worth to one token of an answer: the part is cut, and the token asked for again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from glassformer.inspection.attribution import forward
from glassformer.inspection.inspection import Inspection
from glassformer.probe.cutting import ablate


@torch.no_grad()
def log_probabilities(inside: Inspection, output: int) -> torch.Tensor:
    """Of every token of the vocabulary, at one output of the same input."""
    return forward(inside.model.model, inside.input)[0, inside.input.positions[output]].double().log_softmax(-1)


def without_each(
    inside: Inspection, output: int, parts: Sequence[str], cut: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """For no part and then for each: the log-probability of the token at an output without it, and whether the token still comes
    first. The parts in `cut` are off all the time."""
    token = int(inside.activations.outputs.tokens[output])
    for part in (None, *parts):
        with ablate(inside.model.model, [*cut, *([part] if part else [])]):
            found = log_probabilities(inside, output)
        yield {"part": part, "logprob": float(found[token]), "first": int(found.argmax()) == token}
