"""Which of some files is train, val or test, by its name or else by its place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.files import ReadContext, numbered_lines
from glassformer.data.origins import SPLITS
from glassformer.errors import UserError

ROLES = {
    "train": re.compile(r"(^|[^a-z])train(ing)?([^a-z]|$)"),
    "val": re.compile(r"(^|[^a-z])(val|valid|validation|dev)([^a-z]|$)"),
    "test": re.compile(r"(^|[^a-z])(test|eval)([^a-z]|$)"),
}


def check_there(files: Sequence[Path]) -> None:
    """An error for the first file that is not there."""
    for file in files:
        if not file.exists():
            raise UserError("there is no file {path}", file)


def arrange(files: Sequence[Path], task: str | None, fields: dict[str, str]) -> DataConfig:
    """A data configuration in which each file has its role, by its name or else by its place."""
    check_there(files)
    roles: dict[str, list[Path]] = {}
    nameless: list[Path] = []
    for file in files:
        role = next((role for role, pattern in ROLES.items() if pattern.search(file.name.lower())), None)
        (nameless if role is None else roles.setdefault(role, [])).append(file)
    aligned = task in (None, "pairs") and all(map(is_plain_lines, files))
    free = [role for role in SPLITS if role not in roles]
    size = 2 if aligned and len(nameless) % 2 == 0 else 1
    for role, start in zip(free, range(0, len(nameless), size), strict=False):
        roles[role] = nameless[start : start + size]
    if not files or sum(map(len, roles.values())) < len(files) or any(len(group) > 2 for group in roles.values()):
        raise UserError(
            "give one file, or two aligned ones, for each of train, val and test; {files} cannot be told apart by name",
            ", ".join(file.name for file in files) or "nothing",
        )
    pairs_of_files = [group for group in roles.values() if len(group) == 2]
    if task is None:
        first = files[0]
        task = "pairs" if pairs_of_files or holds_pairs(first) or (first.is_file() and has_tab(first)) else "text"
    if pairs_of_files and task != "pairs":
        names = " and ".join(file.name for file in pairs_of_files[0])
        raise UserError("{names} would both be {task} for the same split; give them one by one", names, task)
    settings: dict[str, Any] = dict(fields)
    for role, group in roles.items():
        settings[role] = str(group[0])
        if len(group) == 2:
            settings[f"{role}_target"] = str(group[1])
    if pairs_of_files:
        settings["format"] = "lines"
    return DataConfig(task=task, **settings)  # type: ignore[arg-type]


def holds_pairs(path: Path) -> bool:
    """Whether files whose names end so mostly hold pairs."""
    return path.name.removesuffix(".gz").endswith((".tsv", ".jsonl", ".ndjson", ".parquet", ".tmx"))


def has_tab(path: Path) -> bool:
    """Whether the first line that is not blank has two columns."""
    lines = (line for _, line in numbered_lines(path, ReadContext(lambda _: None)) if line.strip())
    return "\t" in next(lines, "")


def is_plain_lines(path: Path) -> bool:
    """Neither a table nor records nor a folder: possibly one of two aligned files."""
    return path.is_file() and not holds_pairs(path) and not has_tab(path)


def pairs_to_clean(files: Sequence[Path], settings: Mapping[str, str]) -> DataConfig:
    """The configuration of one file of pairs, or of two aligned ones, whatever their names say."""
    check_there(files)
    for file in files:
        if not (file.is_file() or file.is_dir()):
            raise UserError("{file} is read more than once, which a pipe cannot be; write it into a file first", file)
    if len(files) > 2 or (len(files) == 2 and not all(map(is_plain_lines, files))):
        raise UserError(
            "{files}: give one file of pairs, or two aligned ones with a sentence a line; put several files of pairs together "
            "first (cat a.tsv b.tsv > all.tsv)",
            ", ".join(file.name for file in files),
        )
    target = {"train_target": str(files[1]), "format": "lines"} if len(files) == 2 else {}
    return DataConfig(task="pairs", train=str(files[0]), **{**settings, **target})  # type: ignore[arg-type]
