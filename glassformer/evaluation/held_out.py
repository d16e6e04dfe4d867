"""A few examples a run has not learned from, as text and as batches, and what a model makes of them: for the studies that
measure one model many times, or two models on the same examples.

The losses are teacher-forced and kept apart for each example; what is written is written greedily, since most of these
studies ask how an answer changes and not how good it could get (`glassformer evaluate` writes as the recipe says).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.data.batches import Batch, recipe_batches
from glassformer.data.encoding import encode_split, open_files
from glassformer.data.store import run_examples
from glassformer.errors import UserError
from glassformer.evaluation.generated import greedy
from glassformer.tasks import TextModel, translations

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class HeldOut:
    """`examples` are as the data has them: pairs, (text, label), (words, tags). A text has none; its examples are blocks."""

    batches: list[Batch]
    examples: list[Any]
    count: int


def held_out(
    model: TextModel,
    split: str,
    limit: int,
    folder: Path | None = None,
    *,
    block_size: int | None = None,
    examples: Sequence[Any] | None = None,
) -> HeldOut:
    """The first `limit` examples of a split. `folder`: the data folder of the run, where they and their token files lie.
    `block_size`: no longer than this, where the model could read more. `examples`: these instead of the run's own."""
    if split not in SPLITS:
        raise UserError("split is train, val or test, not {split!r}", split)
    if limit < 1:
        raise UserError("examples must be at least 1, not {limit}", limit)
    limit = min(limit, sys.maxsize)
    recipe = model.recipe
    data = recipe.data
    budget = max(256, min(8192, 2**23 // max(1, recipe.model.vocab_size)))
    stored = run_examples(data, split, folder or Path()) if examples is None else examples  # type: ignore[arg-type]
    with TemporaryDirectory() as temporary:
        multiplied = split == "train" and data.multiplied  # what was learned from is not one example a pair
        there = folder is not None and not multiplied and any(folder.glob(f"{split}.*.tokens")) and examples is None
        if not there:
            some = stored if data.task == "text" else list(itertools.islice(stored, limit))
            encode_split(data, split, some, model.tokenizers, Path(temporary))
        files = open_files(data, split, folder if there and folder is not None else Path(temporary))
        made = recipe_batches(recipe, files, block_size=block_size, layout="padded", training=False)
        batches = [batch.to(model.device) for batch in made.in_order(budget, limit=limit)]
    if not batches:
        raise UserError("the {split} split of this run has nothing to measure on; choose another split", split)
    texts = [] if data.task == "text" else list(itertools.islice(stored, limit))
    return HeldOut(batches, texts, len(texts) or sum(len(b.examples) for b in batches))


def writes(model: TextModel) -> bool:
    """Whether it is asked for texts, and its texts can be compared with those wanted."""
    return model.kind in ("transformer", "gpt on pairs") and model.recipe.data.task == "pairs"


def written(model: TextModel, examples: list[Any]) -> list[str]:
    """What the model writes for each example's source, greedily."""
    quick = TextModel(model._model, model.tokenizers, replace(model.recipe, decode=greedy(model.recipe.decode)))
    return translations(quick, [source for source, _ in examples])
