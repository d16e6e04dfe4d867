"""A training that goes on where it was, and two runs on the same held-out pairs, by a paired bootstrap."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer import runs
from glassformer.api import load
from glassformer.config import Recipe
from glassformer.config.changes import as_prepared, changes
from glassformer.data.files import ReadContext, numbered_lines
from glassformer.errors import UserError
from glassformer.evaluation.examples import COMBINE, HeldOut, answer_statistics
from glassformer.evaluation.generated import metric_of
from glassformer.evaluation.significance import Paired, Statistics, paired_bootstrap
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel, translations

Pair = tuple[str, str]
WritePairs = Callable[[Path, Path, Path], None]
"""A run, a file of texts and a new file: the pairs of each text and what the run says to it. Broken off, it goes on."""


def lines_of(text: Path) -> list[str]:
    """The different lines of a text, blanks evened out; a text without any is refused."""
    lines = (" ".join(line.split()) for _number, line in numbered_lines(text, ReadContext()))
    different = [line for line in dict.fromkeys(lines) if line]
    if not different:
        raise UserError("{text} has no line to translate", text)
    return different


def train_or_resume(recipe: Recipe, folder: Path, start: RunFolder | None = None) -> RunFolder:
    """The run of a recipe in a folder: begun, gone on with, or already there. A run with other settings is refused."""
    if RunFolder.is_run(folder):
        there = RunFolder.open(folder)
        if differences := changes(there.recipe, as_prepared(recipe, there.recipe)):
            raise UserError(
                "{folder} was trained with other settings ({found}); choose another --out",
                folder=folder,
                found="; ".join(map(str, differences[:3])),
            )
        if there.finished() is None:
            runs.resume(folder, recipe)
        return RunFolder.open(folder)
    return runs.train(recipe, folder, start=start)


@dataclass(frozen=True)
class Answered:
    """A run's answers to held-out pairs: the numbers its score is made of, and how many sentences a second it wrote."""

    metric: str
    statistics: Statistics
    speed: float

    @property
    def score(self) -> float:
        """The score of all pairs."""
        return float(COMBINE[self.metric](self.statistics.sum(0, keepdims=True))[0])

    def beside(self, second: Answered) -> Paired:
        """The second less this one on the same pairs, with its interval and p."""
        return paired_bootstrap(self.statistics, second.statistics, COMBINE[self.metric])


def answered(
    run: Path | TextModel, pairs: Sequence[Pair], metric: str, device: str = "auto", **options: Any
) -> Answered:
    """A run's answers to the sources, written as its recipe's [decode] says, against the targets."""
    model = load(run, device=device) if isinstance(run, Path) else run
    translations(model, [pairs[0][0]], **options)  # whatever is made once is not timed
    began = time.perf_counter()
    answers = translations(model, [source for source, _target in pairs], **options)
    speed = len(pairs) / max(1e-9, time.perf_counter() - began)
    return Answered(metric, answer_statistics(model, HeldOut([], list(pairs), len(pairs)), answers)[metric], speed)


def metric_for(recipe: Recipe) -> str:
    """What runs are compared by: exact match where the recipe of a prepared run says so, else BLEU."""
    return "exact_match" if metric_of(recipe) == "exact_match" else "bleu"
