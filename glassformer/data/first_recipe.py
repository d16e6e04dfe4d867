"""A recipe for files that come without one: what they hold says which model learns from them, and their size for how long.

Nothing clever: a small model that learns something within minutes on a CPU, to be seen and then changed (`glassformer init`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.data.doctor.roles import arrange
from glassformer.data.origins import SPLITS
from glassformer.language import _

EPOCHS, FEWEST_STEPS, MOST_STEPS = 20, 1000, 20_000
BYTES_A_TOKEN = 4  # of text in pieces of words, roughly
BERT: dict[str, Any] = {"family": "bert", "n_layer": 2, "n_head": 4, "n_embd": 128, "dropout": 0.3}
MODELS: dict[str, dict[str, Any]] = {
    "pairs": {"preset": "transformer-tiny", "n_layer": 2},
    "text": {"preset": "shakespeare-char", "n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 128},
    "classify": BERT | {"head": "classify", "pool": "mean"},
    "tag": BERT | {"head": "tag"},
}
WHAT = {
    "pairs": _("an encoder-decoder, since it holds pairs"),
    "text": _("a GPT, since it holds text"),
    "classify": _("a BERT that classifies"),
    "tag": _("a BERT that tags words"),
}


@dataclass(frozen=True)
class FirstRecipe:
    """The tables of a recipe, its name, and what was chosen, in words."""

    values: dict[str, Any]
    name: str
    chosen: str


def size_of_files(path: Path) -> int:
    """Bytes of a file, or of all that is in a folder; what is compressed has some three times as many."""
    if path.is_dir():
        return sum(size_of_files(file) for file in path.rglob("*") if file.is_file())
    return path.stat().st_size * (3 if path.suffix == ".gz" else 1)


def first_recipe(files: Sequence[Path], task: str | None = None) -> FirstRecipe:
    """The recipe for train, val and test (a file each, or two aligned ones); `task` where it is not to be guessed."""
    config = arrange(files, task, {})
    named = {f"{split}{side}": getattr(config, f"{split}{side}") for split in SPLITS for side in ("", "_target")}
    data: dict[str, Any] = {"task": config.task} | {key: value for key, value in named.items() if value is not None}
    data |= {"format": config.format} if config.format != "auto" else {}
    data |= {"batch_tokens": 2048}
    first = Path(str(config.train or config.val or config.test))
    steps = (
        EPOCHS * size_of_files(first) // BYTES_A_TOKEN // (2 if config.task == "pairs" else 1) // data["batch_tokens"]
    )
    steps = min(MOST_STEPS, max(FEWEST_STEPS, steps // 100 * 100))
    values: dict[str, Any] = {"model": MODELS[config.task], "data": data, "train": {"steps": steps}}
    if config.task == "text":
        values["decode"] = {"temperature": 0.8, "top_k": 40}
    chosen = _("{first}: {what}; {steps:,} steps", first=first.name, what=WHAT[config.task], steps=steps)
    return FirstRecipe(values, first.name.removesuffix(".gz").partition(".")[0] or "mine", chosen)
