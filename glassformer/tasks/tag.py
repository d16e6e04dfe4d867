"""A label for each word of a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.data.builtin.dates import date_tokens
from glassformer.decode import predict
from glassformer.errors import UserError
from glassformer.tasks.results import Tagged
from glassformer.tasks.text_model import TextModel, as_list
from glassformer.text.tokenizer import BOS


def words_of(model: TextModel, line: str) -> list[str]:
    """A line typed by a person, cut as the training lines were."""
    return date_tokens(line) if model.recipe.data.builtin == "date-parts" else line.split()


def tag(model: TextModel, sentences: Sequence[str | Sequence[str]]) -> list[list[Tagged]]:
    """For each sentence (its words, or a line that is cut into words) the likeliest label of each word. A sentence longer
    than the model reads is read in stretches."""
    model.require("tag")
    asked = as_list(sentences)
    for own in asked:
        if not isinstance(own, str | list | tuple):
            raise UserError("a sentence is a line or a list of words, not {kind}", type(own).__name__)
    words = [words_of(model, own) if isinstance(own, str) else list(own) for own in asked]
    encode, most = model.tokenizers.target.encode_batch, model.max_text_tokens
    stand_in = encode(["?"])[0]
    rows: list[list[int]] = []
    places: list[list[tuple[int, int]]] = []  # for each sentence the row and place of each word's first token
    for own in words:
        places.append([])
        for number, pieces in enumerate(encode(own)):
            pieces = (pieces or stand_in)[:most]
            if number == 0 or len(rows[-1]) + len(pieces) > most + 1:
                rows.append([BOS])
            places[-1].append((len(rows) - 1, len(rows[-1])))
            rows[-1] += pieces
    rows = [model.with_special_tokens(row[1:]) for row in rows]
    found: dict[int, tuple[list[float], list[int]]] = {}
    for row, logprobs in predict.predict(model._model, rows):
        best = logprobs.exp().max(-1)
        found[row] = best.values.tolist(), best.indices.tolist()
    labels = model.tokenizers.labels
    return [
        [Tagged(word, labels[found[row][1][at]], found[row][0][at]) for word, (row, at) in zip(own, here, strict=True)]
        for own, here in zip(words, places, strict=True)
    ]
