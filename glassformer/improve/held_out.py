"""The data of an improvement: what cleaning keeps and what it takes, and pairs held out of both to decide on and to score on.

Held-out pairs are drawn from those that the cleaning keeps, since a step cannot be judged by pairs that are wrong. Nothing that
shares a source or a target with one of them is trained on, cleaned or not, and no text with its target is translated back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from glassformer.config import DataConfig
from glassformer.config.recipe import apply_overrides
from glassformer.data import cleaning
from glassformer.data.doctor.roles import pairs_to_clean
from glassformer.data.files import ReadContext, numbered_lines
from glassformer.data.sources import all_rows
from glassformer.data.splits import normalized, split_of
from glassformer.errors import UserError
from glassformer.files.durable import write_atomically
from glassformer.improve.trial import Pair

FRACTION, FEWEST, MOST = 0.05, 200, 2000  # held out of the pairs, for val and for test each ...
LARGEST_FRACTION = 0.15  # ... but no more than this share, where there are few
READING = ("data.format", "data.source_field", "data.target_field")  # of the files that are given


def as_asked(pairs: Sequence[Path], overrides: Sequence[str]) -> tuple[DataConfig, list[str]]:
    """How the pairs are read, and the changes that are left for the trainings, whose files are written here."""
    values: dict[str, Any] = {}
    apply_overrides(values, [change for change in overrides if change.partition("=")[0].strip() in READING])
    changes = [change for change in overrides if change.partition("=")[0].strip() not in READING]
    return pairs_to_clean(pairs, values.get("data", {})), changes


def write_jsonl(path: Path, pairs: Iterable[Pair]) -> None:
    """Pairs as they are, whatever is in them."""
    rows = (json.dumps({"source": a, "target": b}, ensure_ascii=False) + "\n" for a, b in pairs)
    write_atomically(path, "".join(rows).encode("utf-8", "replace"))


def read_jsonl(path: Path) -> list[Pair]:
    """The pairs that `write_jsonl` wrote."""
    rows = map(json.loads, path.read_bytes().splitlines())  # of bytes: a text may hold other separators of Unicode
    return [(row["source"], row["target"]) for row in rows]


def keys_of(pairs: Iterable[Pair]) -> tuple[set[str], set[str]]:
    """Sources and targets, spelling aside."""
    sides = list(zip(*pairs, strict=True)) or [(), ()]
    return {normalized(text) for text in sides[0]}, {normalized(text) for text in sides[1]}


def prepare_pairs(config: DataConfig, test: Collection[Pair] | None, files: Mapping[str, Path]) -> dict[str, int]:
    """Writes raw, clean, val and test pairs, each into its file; how many there are of each, and how many were read.
    What cleaning took and repaired stands beside them."""
    cleaned = cleaning.clean(config)
    for name, taken in (("removed", cleaned.removed), ("repaired", cleaned.repaired)):
        write_atomically(
            files["raw"].with_name(f"{name}.tsv"), cleaning.as_tsv(map(cleaned.row, taken)).encode("utf-8", "replace")
        )
    count = max(1, len(cleaned.kept))
    fraction = min(MOST / count, max(FRACTION, min(LARGEST_FRACTION, FEWEST / count)))
    held: dict[str, list[Pair]] = {"val": [], "test": []}
    for pair in cleaned.kept:
        if (split := split_of(normalized(pair[0]), fraction)) != "train":
            held[split].append(pair)
    if test is not None:
        held["test"] = list(test)
    if not held["val"] or not held["test"]:
        raise UserError(
            "{kept:,} of {read:,} pairs are left by cleaning, too few to hold some out; give more, or look at what was "
            "taken: {removed}",
            len(cleaned.kept),
            cleaned.read,
            files["raw"].with_name("removed.tsv"),
        )
    sources, targets = keys_of(held["val"] + held["test"])

    def learned(pairs: Iterable[Pair]) -> list[Pair]:
        return [(a, b) for a, b in pairs if normalized(a) not in sources and normalized(b) not in targets]

    heldout_lines = {
        line
        for line, pair in zip(cleaned.lines, cleaned.kept, strict=True)
        if normalized(pair[0]) in sources or normalized(pair[1]) in targets
    }  # a repair may have changed how they are spelled
    rows = all_rows(config, "train", ReadContext(lambda problem: None))
    raw = learned(row.example for row in rows if row.line not in heldout_lines and all(row.example))
    parts = {"raw": raw, "clean": learned(cleaned.kept), **held}
    for name, pairs in parts.items():
        write_jsonl(files[name], pairs)
    return {name: len(pairs) for name, pairs in parts.items()} | {"read": cleaned.read}


def check_text(text: Path) -> None:
    """A text without a line to translate is refused before anything is trained."""
    if not any(line.strip() for _number, line in numbered_lines(text, ReadContext())):
        raise UserError("{text} has no line to translate", text)


def write_mono(text: Path, path: Path, held: Iterable[Pair], most: int) -> int:
    """The first lines of a text, each once, without those that are held-out targets; how many."""
    _sources, targets = keys_of(held)
    lines = (" ".join(line.split()) for _number, line in numbered_lines(text, ReadContext()))
    found = [line for line in dict.fromkeys(lines) if line and normalized(line) not in targets][:most]
    if not found:
        raise UserError("every line of {text} is a held-out target; give other text", text)
    write_atomically(path, "".join(f"{line}\n" for line in found).encode("utf-8", "replace"))
    return len(found)
