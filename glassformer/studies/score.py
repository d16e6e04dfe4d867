"""Scores of a finished run on a split or on files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

from glassformer.config import DataConfig, UserError
from glassformer.data.batches import make_batches
from glassformer.data.prepare import encode_split, open_files
from glassformer.data.sources import open_split
from glassformer.evaluate import Scores, teacher_forced
from glassformer.run_folder import RunFolder
from glassformer.runs import example_scores


def score(run: RunFolder, data: DataConfig, split: str, *, device: str, limit: int | None) -> tuple[Scores, int]:
    model = run.load_model(device=device)
    recipe = run.recipe
    budget = max(256, 2**25 // max(1, recipe.model.vocab_size))
    with TemporaryDirectory() as folder:
        encode_split(data, split, run.texts, Path(folder))
        files = open_files(data, split, Path(folder))
        batches = make_batches(
            data,
            recipe.model.family,
            recipe.model.head,
            files,
            recipe.model.block_size,
            recipe.train.seed,
            layout="padded",
            training=False,
        )
        scores = teacher_forced(model, batches.in_order(budget, limit=limit), device)
        count = len(next(iter(files.values())))
    if data.task != "text":
        examples = list(open_split(data, split))[:limit]  # type: ignore[arg-type]
        scores = scores | example_scores(model, run.texts, recipe, examples)
        count = len(examples)
    return scores, count


def score_split(path: Path, split: str, *, device: str = "cpu", limit: int | None = None) -> tuple[Scores, int]:
    run = RunFolder.open(path)
    return score(run, run.recipe.data, split, device=device, limit=limit)


def score_files(
    path: Path, source: Path, target: Path, *, device: str = "cpu", limit: int | None = None
) -> tuple[Scores, int]:
    run = RunFolder.open(path)
    if run.recipe.data.task != "pairs":
        raise UserError(f"{path} does not learn from pairs; evaluate it on one of its splits")
    data = dataclasses.replace(
        run.recipe.data,
        builtin=None,
        path=None,
        train=None,
        test=str(source),
        test_target=str(target),
        format="lines",
        swap=False,
    )
    return score(run, data, "test", device=device, limit=limit)
