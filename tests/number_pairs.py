"""A small task for tests that train: numbers in German and English, as pairs, as a file, and as a recipe of a few steps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from glassformer.config import Recipe

GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def pairs(n: int, seed: int = 0) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    rows = [[draw.randrange(10) for _ in range(draw.randint(1, 6))] for _ in range(n)]
    return [(" ".join(GERMAN[i] for i in row), " ".join(ENGLISH[i] for i in row)) for row in rows]


def recipe(folder: Path, *, model: Any = None, data: Any = None, **train: Any) -> Recipe:
    return Recipe.from_dict(
        {
            "name": "numbers",
            "model": {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_hidden": 32, "block_size": 32, "dropout": 0.0}
            | (model or {}),
            "data": {"path": str(folder), "train": "train.tsv", "tokenizer": "word", "batch_tokens": 256}
            | (data or {}),
            "train": {"steps": 6, "validate_every": 3, "save_every": 3, "log_every": 2, "warmup": 2, "device": "cpu"}
            | {"validate_examples": 8}
            | train,
            "decode": {"max_ratio": 1.0, "max_extra": 4},
        }
    )


def write_tsv(path: Path, rows: list[tuple[str, str]]) -> None:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
