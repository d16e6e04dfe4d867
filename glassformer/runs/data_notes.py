"""What a person should be told about the data of a run before its first step: nothing is left out without a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from glassformer.config import Recipe
from glassformer.data.batches import Batches, SentenceBatches
from glassformer.data.report import DataReport
from glassformer.language import _


def too_long(batches: Batches, split: str, recipe: Recipe) -> Iterator[str]:
    """How many examples are longer than what a model can read or was told to learn, and what would keep them whole."""
    if not isinstance(batches, SentenceBatches):
        return
    windowed = int((np.diff(np.flatnonzero(np.diff(batches.numbers, prepend=-1, append=-2))) > 1).sum())
    if not batches.dropped and not windowed:
        return
    count, total = batches.dropped or windowed, batches.dropped + len(batches.distinct)
    lengths = np.maximum(batches.examples.source_lengths, batches.examples.row_lengths)
    most = int(np.quantile(lengths, 0.99, method="higher"))
    given = recipe.data.max_length
    asked = given is not None and given < recipe.model.block_size and split == "train"
    setting, limit = ("data.max_length", given) if asked else ("model.block_size", recipe.model.block_size)
    counts = {"count": count, "total": total, "split": split, "share": count / total}
    if windowed:
        yield _(
            "{count:,} of {total:,} {split} examples ({share:.1%}) have more than {setting}={limit} tokens and are read in "
            "overlapping windows",
            **counts | {"setting": setting, "limit": limit},
        )
        return
    yield _(
        "{count:,} of {total:,} {split} examples ({share:.1%}) have more than {setting}={limit} tokens and are left "
        "out; 99% have at most {most}",
        **counts | {"setting": setting, "limit": limit, "most": most},
    )


def data_notes(folder: Path, recipe: Recipe, train: Batches, val: Batches) -> Iterator[str]:
    """A sentence for each thing that was left out, and for each source that is no longer what it was. `folder` is the run's."""
    report = DataReport.read(folder / "data")
    if report is not None:
        yield from report.notes()
    yield from too_long(train, "train", recipe)
    yield from too_long(val, "val", recipe)


def changed_sources(folder: Path) -> Iterator[str]:
    """Of a run that goes on: a sentence for each file it was made from that has changed since."""
    report = DataReport.read(folder / "data")
    if report is not None:
        yield from report.changed_files()
