"""Built-in data as tests open them."""

from __future__ import annotations

import hashlib
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.builtin import (
    TASKS,
    DataSet,
    open_builtin,
    stdlib,
)

SPLITS = ("train", "val", "test")
OURS = [name for name in TASKS if name != "phrases"]


def opened(name: str, split: Any, size: int | None = None) -> DataSet:
    return open_builtin(DataConfig(builtin=name, task=TASKS[name], size=size), split)  # type: ignore[arg-type]


def digest_of_all() -> str:
    texts = [str(list(opened(name, split, size=20))) for name in OURS if name != "stdlib" for split in ("train", "val")]
    files = [file.name for file in stdlib.stdlib_files("train", 20).files]
    return hashlib.sha256("".join(texts + files).encode()).hexdigest()
