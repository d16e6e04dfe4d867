"""Which split an example belongs to where splits are carved out of the training data: always the same ones, by hashes.

Pairs, classes and tags go by a hash of what the model reads, the source as it will be learned. Two examples that differ only
in case, in spacing or in how Unicode writes a letter have the same hash whatever the settings, so that no setting can make
one sentence stand on both sides of a border. (To hash too many alike is harmless: they only stay together.)

A text has no lines to hash: a single file gives its last part; of many, whole files are held out, by a hash of their names,
until they make up the share that was asked for; and where no choice of whole files comes near it, the end of the largest is.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
NEAR = 2.0  # held-out files must make up at least the share asked for, divided by this


def fraction_of(key: str) -> float:
    """A number in [0, 1) that belongs to a text for ever, on every machine."""
    return hash_of(key) / 2**64


def hash_of(*texts: str) -> int:
    """64 bits of a hash of some texts."""
    digest = hashlib.blake2b("\0".join(texts).encode("utf-8", errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def normalized(text: str) -> str:
    """A text without case and without blanks, letters in one form: what two spellings of one sentence share."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(text.casefold().split())


def look_like_texts(labels: int, texts: int, examples: int) -> bool:
    """Whether so many different labels and texts of a classification are each other: nearly every label another one, and texts
    that come again and again."""
    return examples >= 20 and labels > 0.5 * examples and texts < 0.5 * labels


def source_of(task: str, example: Any) -> str:
    """What a model reads of an example."""
    match task:
        case "tag":
            return " ".join(example[0])
        case "text":
            return str(example.text)
        case _:
            return str(example[0])


def split_of(key: str, fraction: float) -> Split:
    """The split a key would fall into if val and test were both missing: val first, then test, then the rest."""
    place = fraction_of(key)
    return "val" if place < fraction else "test" if place < 2 * fraction else "train"


def times_of(weight: float, key: str) -> int:
    """How often an example is learned in an epoch: the weight, and where it is no whole number the hash decides."""
    whole = int(weight)
    return whole + (weight > whole and fraction_of(f"weight {key}") < weight - whole)


def held_out_files(files: Sequence[tuple[str, Path, int]], fraction: float) -> tuple[set[Path], Path | None]:
    """Of files with a name and a size each: those to hold out whole; or, where that cannot come near the fraction, none, and
    the one whose end is held out."""
    if fraction == 0 or not files:
        return set(), None
    if len(files) == 1:
        return set(), files[0][1]
    target_size = fraction * sum(size for _, _, size in files)
    chosen: dict[Path, int] = {}
    for _, path, size in sorted(files, key=lambda file: (fraction_of(file[0]), file[0])):
        missing = target_size - sum(chosen.values())
        if len(chosen) < len(files) - 1 and abs(missing - size) < missing:  # nearer with it than without it
            chosen[path] = size
    if sum(chosen.values()) * NEAR >= target_size:
        return set(chosen), None
    return set(), max(files, key=lambda file: (file[2], file[0]))[1]
