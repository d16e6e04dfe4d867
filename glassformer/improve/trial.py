"""A training that goes on where it was, and two runs on the same held-out pairs, by a paired bootstrap."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from glassformer import runs
from glassformer.api import load
from glassformer.config import Recipe
from glassformer.config.changes import as_prepared, changes
from glassformer.errors import UserError
from glassformer.evaluation.examples import COMBINE, HeldOut, answer_statistics
from glassformer.evaluation.generated import metric_of
from glassformer.evaluation.significance import Paired, Statistics, paired_bootstrap
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel, translations

Pair = tuple[str, str]
WritePairs = Callable[[Path, Path, Path], None]
"""A run, a file of texts and a new file: the pairs of each text and what the run says to it. Broken off, it goes on."""


def train_or_resume(recipe: Recipe, folder: Path, start: RunFolder | None = None) -> RunFolder:
    """The run of a recipe in a folder: begun, gone on with, or already there. A run with other settings is refused."""
    if RunFolder.is_run(folder):
        there = RunFolder.open(folder)
        if found := changes(there.recipe, as_prepared(recipe, there.recipe)):
            raise UserError(
                "{folder} was trained with other settings ({found}); choose another --out",
                folder=folder,
                found="; ".join(map(str, found[:3])),
            )
        if there.finished() is None:
            runs.resume(folder, recipe)
        return RunFolder.open(folder)
    return runs.train(recipe, folder, start=start)


@dataclass(frozen=True)
class Answered:
    """What a run said to held-out pairs: the numbers its score is made of, and how many sentences a second it wrote."""

    metric: str
    statistics: Statistics
    speed: float

    @property
    def score(self) -> float:
        """The score of all pairs."""
        return float(COMBINE[self.metric](self.statistics.sum(0, keepdims=True))[0])


def answered(folder: Path, pairs: Sequence[Pair], metric: str, device: str = "auto") -> Answered:
    """A run's answers to the sources, written as its recipe's [decode] says, against the targets."""
    return answered_by(load(folder, device=device), pairs, metric)


def answered_by(model: TextModel, pairs: Sequence[Pair], metric: str, **options: Any) -> Answered:
    """A model's answers to the sources against the targets."""
    translations(model, [pairs[0][0]], **options)  # whatever is made once is not timed
    began = time.perf_counter()
    said = translations(model, [source for source, _target in pairs], **options)
    speed = len(pairs) / max(1e-9, time.perf_counter() - began)
    return Answered(metric, answer_statistics(model, HeldOut([], list(pairs), len(pairs)), said)[metric], speed)


def writing_speed(model: TextModel, texts: Sequence[str]) -> float:
    """How many sentences a second a model writes of very many: these over and over, as many as take it a second or more."""
    translations(model, [texts[0]])  # whatever is made once is not timed
    count = len(texts)
    while True:
        asked = list(islice(cycle(texts), count))
        began = time.perf_counter()
        translations(model, asked)
        if (seconds := time.perf_counter() - began) >= 1:
            return count / seconds
        count *= 4


def metric_for(recipe: Recipe) -> str:
    """What runs are compared by: exact match where the recipe of a prepared run says so, else BLEU."""
    return "exact_match" if metric_of(recipe) == "exact_match" else "bleu"


def compared(first: Answered, second: Answered) -> Paired:
    """The second less the first on the same pairs, with its interval and p."""
    return paired_bootstrap(first.statistics, second.statistics, COMBINE[first.metric])
