"""A label for each word of a sentence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from glassformer.data.builtin.dates import date_tokens
from glassformer.decode import predict
from glassformer.errors import UserError
from glassformer.tasks.results import Tagged
from glassformer.tasks.text_model import TextModel, as_list


def words_of(model: TextModel, line: str) -> list[str]:
    """A line typed by a person, cut as the training lines were."""
    return date_tokens(line) if model.recipe.data.builtin == "date-parts" else line.split()


def tag(model: TextModel, sentences: Sequence[str | Sequence[str]]) -> list[list[Tagged]]:
    """For each sentence (its words, or a line that is cut into words) the likeliest label of each word. A sentence longer
    than the model has learned to read is read in overlapping windows (data/examples.py)."""
    model.require("tag")
    asked = as_list(sentences)
    for own in asked:
        if not isinstance(own, str | list | tuple):
            raise UserError("a sentence is a line or a list of words, not {kind}", type(own).__name__)
    words = [words_of(model, own) if isinstance(own, str) else list(own) for own in asked]
    encode = model.tokenizers.target.encode_batch
    stand_in = encode(["?"])[0]
    pieces = [[ids or stand_in for ids in encode(own)] for own in words]
    cut = model.windows([[token for ids in own for token in ids] for own in pieces])
    labels = model.tokenizers.labels
    best: dict[int, tuple[list[float], list[int]]] = {}
    for row, logprobs in predict.predict(model._model, [row for _, _, row in cut]):
        likeliest = logprobs.exp().max(-1)
        best[row] = likeliest.values.tolist(), likeliest.indices.tolist()
    out: list[list[Tagged]] = [[] for _ in words]
    for row, (number, window, _ids) in enumerate(cut):
        probabilities, numbers = best[row]
        places = itertools.accumulate(map(len, pieces[number]), initial=0)  # where each word begins
        for word, place in zip(words[number], places, strict=False):
            if window.first <= place < window.last:
                at = place - window.start + 1
                out[number].append(Tagged(word, labels[numbers[at]], probabilities[at]))
    return out
