"""The texts on which two models are compared: a run's own test split, or what is nearest to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.store import run_examples, stored_splits
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.runs.folder import RunFolder

NO_SPLIT = _("keeps no examples to compare on; give a file of texts by --sample (Python: sample=[...])")


def own_sample(data: DataConfig, run: Path) -> tuple[str, Iterator[Any]]:
    """The name of the split, and its examples: test, else validation, else what was trained on."""
    kept = stored_splits(run / "data")
    split = next((name for name in ("test", "val", "train") if name in kept), None)
    if split is None:
        raise UserError("{run} {no_split}", run, NO_SPLIT)
    RunFolder.open(run).check_data(split)
    return _("the {split} split", split), iter(run_examples(data, split, run / "data"))
