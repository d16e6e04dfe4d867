"""Scores of a finished run on a split or on files."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.api import load
from glassformer.config import DataConfig
from glassformer.data.batches import Batch, make_batches
from glassformer.data.prepare import encode_split, open_files
from glassformer.data.sources import open_split
from glassformer.data.store import run_examples
from glassformer.errors import UserError
from glassformer.evaluate import Scores, teacher_forced
from glassformer.run_folder import RunFolder
from glassformer.runs.validation import example_scores
from glassformer.tasks.settings import changed


def score(
    path: Path,
    data: DataConfig,
    split: str,
    all_examples: Iterable[Any],
    *,
    device: str,
    limit: int | None,
    engine: str | None = None,
) -> tuple[Scores, int]:
    """The scores, and on how many examples (of a text: blocks). `limit`: at most so many, from the first on. Examples that
    are longer than the model's block have no loss; how many they are is said. `engine` writes in place of the recipe's; the
    loss is the model's own."""
    talk = load(path, device=device)
    recipe = talk.recipe
    if engine is not None:
        recipe = dataclasses.replace(recipe, decode=changed(recipe.decode, {"engine": engine}))
    budget = max(256, 2**25 // max(1, recipe.model.vocab_size))
    count = 0

    def counted(batches: Iterable[Batch]) -> Iterator[Batch]:
        nonlocal count
        for batch in batches:
            count += len(batch.examples)
            yield batch

    with TemporaryDirectory() as folder:
        encode_split(data, split, all_examples, talk.tokenizers, Path(folder))
        batches = make_batches(
            data,
            recipe.model.family,
            recipe.model.head,
            open_files(data, split, Path(folder)),
            recipe.model.block_size,
            recipe.train.seed,
            layout="padded",
            training=False,
        )
        scores = teacher_forced(talk.model, counted(batches.in_order(budget, limit=limit)), device)
    if batches.dropped:
        scores = scores | Scores({"too_long_for_a_loss": float(batches.dropped)})
    if data.task != "text":
        examples = list(itertools.islice(all_examples, limit))
        scores = scores | example_scores(talk.model, talk.tokenizers, recipe, examples)
        count = len(examples)
    return scores, count


def score_split(
    path: Path, split: str, *, device: str = "cpu", limit: int | None = None, engine: str | None = None
) -> tuple[Scores, int]:
    run = RunFolder.open(path)
    examples = run_examples(run.recipe.data, split, run.path / "data")  # type: ignore[arg-type]
    return score(path, run.recipe.data, split, examples, device=device, limit=limit, engine=engine)


def score_files(
    path: Path,
    source: Path,
    target: Path,
    *,
    device: str = "cpu",
    limit: int | None = None,
    engine: str | None = None,
) -> tuple[Scores, int]:
    run = RunFolder.open(path)
    if run.recipe.data.task != "pairs":
        raise UserError(f"{path} does not learn from pairs; evaluate it on one of its splits")
    data = dataclasses.replace(
        run.recipe.data,
        builtin=None,
        path=None,
        train=None,
        train_target=None,
        val=None,
        val_target=None,
        test=str(source),
        test_target=str(target),
        format="lines",
        swap=False,
    )
    return score(path, data, "test", open_split(data, "test"), device=device, limit=limit, engine=engine)
