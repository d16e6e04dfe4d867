"""Real runs of every task, trained for a few steps: enough to have a folder, splits and opinions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from glassformer import runs
from glassformer.config import Recipe
from glassformer.runs.folder import RunFolder

GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def write_data(folder: Path, task: str, lines: int = 160) -> None:
    draw = random.Random(0)
    rows = [[draw.randrange(10) for _ in range(draw.randint(2, 6))] for _ in range(lines)]
    texts = [" ".join(GERMAN[i] for i in row) for row in rows]
    match task:
        case "pairs":
            answers = [" ".join(ENGLISH[i] for i in row) for row in rows]
            content = "".join(f"{a}\t{b}\n" for a, b in zip(texts, answers, strict=True))
        case "classify":
            content = "".join(
                f"{'odd' if row[0] % 2 else 'even'}\t{text}\n" for row, text in zip(rows, texts, strict=True)
            )
        case "tag":
            content = "\n".join("".join(f"{GERMAN[i]}\t{'odd' if i % 2 else 'even'}\n" for i in row) for row in rows)
        case _:
            content = "\n".join(texts)
    (folder / "train.tsv").write_text(content, encoding="utf-8")


TASKS: dict[str, dict[str, Any]] = {
    "pairs": {},
    "text": {"model": {"family": "gpt"}, "data": {"task": "text", "format": "text"}},
    "masked": {"model": {"family": "bert"}, "data": {"task": "text", "format": "text"}},
    "classify": {"model": {"family": "bert", "head": "classify"}, "data": {"task": "classify"}},
    "tag": {"model": {"family": "bert", "head": "tag"}, "data": {"task": "tag"}},
    "decoder classify": {"model": {"family": "gpt", "head": "classify"}, "data": {"task": "classify"}},
    "prompts": {"model": {"family": "gpt"}, "data": {"prompt_answer": True}},
}


def small_run(
    folder: Path, kind: str, *, name: str = "run", model: dict[str, Any] | None = None, **train: Any
) -> RunFolder:
    """`kind` is one of TASKS."""
    data = TASKS[kind].get("data", {})
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "train.tsv").exists():
        write_data(folder, data.get("task", "pairs"))
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_hidden": 32, "block_size": 24, "dropout": 0.0}
    recipe = Recipe.from_dict(
        {
            "name": kind,
            "model": sizes | TASKS[kind].get("model", {}) | (model or {}),
            "data": {
                "path": str(folder),
                "train": "train.tsv",
                "tokenizer": "word",
                "batch_tokens": 256,
                "val_fraction": 0.2,
            }
            | data,
            "train": {
                "steps": 12,
                "validate_every": 12,
                "save_every": 12,
                "warmup": 2,
                "learning_rate": 1e-2,
                "device": "cpu",
                "validate_examples": 8,
            }
            | train,
            "decode": {"max_ratio": 1.0, "max_extra": 4},
        }
    )
    return runs.train(recipe, folder / name)
