"""The collections of real data, a few lines of each, in the formats in which they are published."""

from __future__ import annotations

import random
from pathlib import Path

from tests.number_pairs import pairs

SMALL = ["model.n_layer=1", "model.n_head=2", "model.n_embd=32", "model.n_hidden=64", "model.dropout=0"]
SMALL_PAIRS = [*SMALL, "data.batch_tokens=512", "data.vocab_size=400", "model.block_size=64", "train.warmup=20"]


def numbers(n: int, seed: int) -> tuple[list[str], list[str]]:
    """Tokenised, lower-cased text as the publisher of Multi30k leaves it."""
    found = pairs(n, seed)
    return [f"{a} &apos;s ." for a, _ in found], [f"{b} &quot; ." for _, b in found]


def write_multi30k(folder: Path, *, shuffled: bool = False, language: str = "de") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in (("train", 600), ("val", 40), ("test_2016_flickr", 60)):
        english, german = numbers(size, len(split))
        if shuffled and split == "train":
            random.Random(0).shuffle(german)
        for side, lines in (("en", english), (language, german)):
            (folder / f"{split}.lc.norm.tok.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_tatoeba(folder: Path) -> Path:
    """English TAB Chinese, as `data get` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = "一二三四五六七八九十"
    draw = random.Random(3)
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    for split, size in (("train", 600), ("val", 40), ("test", 60)):
        rows = [[draw.randrange(10) for _ in range(draw.randint(2, 6))] for _ in range(size)]
        lines = [" ".join(words[i] for i in row) + ".\t" + "".join(digits[i] for i in row) + "。" for row in rows]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


LINES = [
    "To be, or not to be, that is the question.\n",
    "All the world's a stage.\n",
    "The rest is silence.\n",
    "Exeunt.\n",
]


def write_shakespeare(folder: Path, characters: int = 30_000) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(5)
    text = "".join(draw.choice(LINES) for _ in range(characters // 15))[:characters]
    (folder / "input.txt").write_text(text, encoding="utf-8")
    return folder


SHAKESPEARE = [
    *SMALL,
    *("model.attention_dropout=0", "model.block_size=32", "data.batch_tokens=1024"),
    *("train.steps=150", "train.warmup=10", "train.learning_rate=1e-2", "train.validate_every=75", "train.min_rate=0"),
]
