"""The label of a whole text."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.decode import predict
from glassformer.tasks.results import Label
from glassformer.tasks.text_model import TextModel, as_list


def classify(model: TextModel, texts: Sequence[str]) -> list[list[Label]]:
    """For each text all labels, the likeliest first. Of a text longer than the model reads, its beginning counts."""
    model.require("classify")
    rows = [
        model.with_special_tokens(ids[: model.max_text_tokens])
        for ids in model.tokenizers.target.encode_batch(as_list(texts))
    ]
    out = []
    for chances in predict.classify(model._model, rows):
        labels = [Label(label, p) for label, p in zip(model.tokenizers.labels, chances, strict=True)]
        out.append(sorted(labels, key=lambda label: -label.probability))
    return out
