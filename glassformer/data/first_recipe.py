"""A recipe for files that come without one: what they hold says which model learns from them, and their size how large it is and
for how long.

Nothing clever, to be seen and then changed (`glassformer init`). Of pairs a few thousand are looked at. The vocabulary
grows with their number, from three thousand pieces at 30,000 pairs to 8,000 at a million, and by the characters of a script
that has many; width and depth grow and dropout falls in a few stages (`SIZES`). For a GPU steps are larger and each batch is
read twice (R-Drop), for which a CPU has no time. docs/decisions.md says what was measured.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from glassformer.config import DataConfig
from glassformer.data.doctor.roles import arrange
from glassformer.data.files import ReadContext
from glassformer.data.origins import SPLITS
from glassformer.data.sources import all_rows
from glassformer.language import _

EPOCHS, FEWEST_STEPS, MOST_STEPS = 20, 1000, 50_000  # of text and labels; of pairs see SIZES
BYTES_A_TOKEN = 4  # of text in pieces of words, roughly
BERT: dict[str, Any] = {"family": "bert", "n_layer": 2, "n_head": 4, "n_embd": 128, "dropout": 0.3}
LOOKED_AT = 5000  # pairs; of more the number follows from the size of the file
COMMON = 5  # a character that occurs so often among them has a piece of its own
FEWEST_PIECES, MOST_PIECES = 1000, 32_000
PIECES = ((5_000, 3000), (30_000, 3000), (1_000_000, 8000))  # pairs, and pieces of words for so many
SHAPE = ("n_layer", "n_head", "n_embd", "n_hidden", "dropout")


@dataclass(frozen=True)
class Size:
    """What is chosen for at most so many pairs: the model's shape, tokens a step, epochs, the fewest steps, and what else [data]
    and [train] say."""

    pairs: float
    shape: tuple[int, int, int, int, float]
    batch_tokens: int
    epochs: int = 20
    steps: int = 1000
    data: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)


MUON = {"optimizer": "muon", "learning_rate": 2e-3, "warmup": 300, "min_rate": 0.05, "weight_decay": 0.02, "ema": 0.998}
FEW = Size(2_000, (2, 4, 128, 256, 0.3), 2048)
VARIED = {"bpe_dropout": 0.05, "augment": 0.15}
SOME = Size(50_000, (4, 4, 256, 512, 0.3), 4096, 25, 2500, VARIED, MUON)
SOME_ON_GPU = replace(SOME, batch_tokens=8192, epochs=45, steps=4000, train=MUON | {"r_drop": 1.0})
MANY = Size(
    500_000,
    (6, 4, 512, 1024, 0.3),
    8192,
    data=VARIED | {"segmentations": 0},
    train={"warmup": 2000, "learning_rate": 7e-4},
)
MORE = Size(
    float("inf"),
    (6, 8, 512, 2048, 0.1),
    16_384,
    data={"augment": 0.15, "segmentations": 0},
    train={"warmup": 4000, "learning_rate": 7e-4},
)
SIZES = {False: [FEW, SOME, MANY, MORE], True: [FEW, SOME_ON_GPU, MANY, MORE]}
"""By whether there is a GPU."""
MODELS: dict[str, dict[str, Any]] = {
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


@dataclass(frozen=True)
class PairCount:
    """About how many pairs files hold, of how many bytes each, and how many characters are common in them."""

    pairs: int
    bytes_each: float
    characters: int


def count_pairs(config: DataConfig) -> PairCount:
    """By the first pairs, and the size of the files where there are more. What cannot be read is left to training."""
    rows = all_rows(config, "train", ReadContext(lambda problem: None))
    texts = [source + target for source, target in (row.example for row in itertools.islice(rows, LOOKED_AT))]
    characters = Counter(itertools.chain.from_iterable(texts))
    each = sum(len(text.encode("utf-8", "replace")) + 2 for text in texts) / max(1, len(texts))
    named = [file for file in (config.train, config.train_target) if isinstance(file, str)]
    size = sum(size_of_files(Path(file)) for file in named)
    pairs = len(texts) if len(texts) < LOOKED_AT else max(LOOKED_AT, int(size / each))
    return PairCount(pairs, each, sum(count >= COMMON for count in characters.values()))


def vocabulary_for(found: PairCount) -> int:
    """Pieces of words, for so many pairs and characters: a power of the number of pairs between those of `PIECES` and beyond.

    >>> [vocabulary_for(PairCount(pairs, 80, 100)) for pairs in (1_000, 5_000, 30_000, 1_000_000)]
    [1100, 3100, 3100, 8100]
    """
    if found.pairs < PIECES[0][0]:
        by_pairs = PIECES[0][1] * found.pairs / PIECES[0][0]
    else:
        (few, low), (many, high) = PIECES[:2] if found.pairs < PIECES[1][0] else PIECES[1:]
        by_pairs = low * (found.pairs / few) ** (math.log(high / low) / math.log(many / few))
    return round(min(MOST_PIECES, max(FEWEST_PIECES, by_pairs) + found.characters) / 100) * 100


def recipe_for_pairs(config: DataConfig, gpu: bool) -> tuple[dict[str, dict[str, Any]], PairCount]:
    """What a recipe for pairs says besides its files, by how many there are, and how many."""
    found = count_pairs(config)
    size = next(size for size in SIZES[gpu] if found.pairs <= size.pairs)
    data = {"vocab_size": vocabulary_for(found), "batch_tokens": size.batch_tokens, **size.data}
    steps = within(size.epochs * found.pairs * found.bytes_each / BYTES_A_TOKEN / 2 / size.batch_tokens, size.steps)
    train = {"steps": steps, "label_smoothing": 0.1, **size.train}
    model = dict(zip(SHAPE, size.shape, strict=True))
    return {"model": model, "data": data, "train": train, "decode": {"beam": 5, "alpha": 1.0}}, found


def within(steps: float, fewest: int = FEWEST_STEPS) -> int:
    """Whole hundreds of steps, neither very few nor very many."""
    return min(MOST_STEPS, max(fewest, int(steps) // 100 * 100))


def recipe_for(config: DataConfig, *, device: str = "auto") -> FirstRecipe:
    """The recipe for files that are arranged already."""
    named = {f"{split}{side}": getattr(config, f"{split}{side}") for split in SPLITS for side in ("", "_target")}
    data: dict[str, Any] = {"task": config.task} | {key: value for key, value in named.items() if value is not None}
    data |= {"format": config.format} if config.format != "auto" else {}
    first = Path(str(config.train or config.val or config.test))
    name = first.name.removesuffix(".gz").partition(".")[0] or "mine"
    what = WHAT[config.task]
    if config.task == "pairs":
        gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        values, count = recipe_for_pairs(config, gpu)
        values["data"] = data | values["data"]
        chosen = _(
            "{first}: {what}; about {pairs:,} pairs: {layers}+{layers} layers of {width}, {pieces:,} pieces of words, dropout "
            "{dropout}, {steps:,} steps",
            first.name,
            what,
            count.pairs,
            values["model"]["n_layer"],
            values["model"]["n_embd"],
            values["data"]["vocab_size"],
            values["model"]["dropout"],
            values["train"]["steps"],
        )
        return FirstRecipe(values, name, chosen)
    data |= {"batch_tokens": 2048}
    steps = within(EPOCHS * size_of_files(first) / BYTES_A_TOKEN / data["batch_tokens"])
    values = {"model": MODELS[config.task], "data": data, "train": {"steps": steps}}
    if config.task == "text":
        values["decode"] = {"temperature": 0.8, "top_k": 40}
    return FirstRecipe(values, name, _("{first}: {what}; {steps:,} steps", first.name, what, steps))


def first_recipe(files: Sequence[Path], task: str | None = None, *, device: str = "auto") -> FirstRecipe:
    """The recipe for train, val and test (a file each, or two aligned ones); `task` where it is not to be guessed, `device` as
    train.device has it."""
    return recipe_for(arrange(files, task, {}), device=device)
