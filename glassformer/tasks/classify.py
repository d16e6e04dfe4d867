"""The label of a whole text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from glassformer.decode import predict
from glassformer.tasks.results import Label
from glassformer.tasks.text_model import TextModel, as_list


def classify(model: TextModel, texts: Sequence[str]) -> list[list[Label]]:
    """For each text all labels, the likeliest first. Of a text longer than the model has learned to read, the mean of its windows
    (data/examples.py), each weighing as much as the tokens it answers for."""
    model.require("classify")
    cut = model.windows(model.tokenizers.target.encode_batch(as_list(texts)))
    found = predict.classify(model._model, [row for _, _, row in cut])
    weights = [max(1, window.last - window.first) for _, window, _ in cut]
    totals = Counter[int]()
    for (number, _, _), weight in zip(cut, weights, strict=True):
        totals[number] += weight
    means = [[0.0] * len(model.tokenizers.labels) for _ in texts]
    for (number, _, _), weight, chances in zip(cut, weights, found, strict=True):
        share = weight / totals[number]  # 1.0 where there is one window
        means[number] = [mean + share * p for mean, p in zip(means[number], chances, strict=True)]
    answers = [[Label(label, p) for label, p in zip(model.tokenizers.labels, own, strict=True)] for own in means]
    return [sorted(own, key=lambda label: -label.probability) for own in answers]
