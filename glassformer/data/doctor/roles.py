"""Which of some files is train, val or test, by its name or else by its place."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.files import ReadContext, ignore, numbered_lines
from glassformer.data.origins import SUFFIXES, Origin
from glassformer.data.readers import FIELDS, records_of
from glassformer.data.records import field_command
from glassformer.data.splits import SPLITS
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.text.languages import is_unspaced

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


NAMED_FIELDS = ("csv", "json", "jsonl", "parquet")
LOOKED_AT = 200  # records of a table
LINES_LOOKED_AT = 2000  # of a file with tabs
MOST = 0.99  # the share of columns without a blank, where they are words and tags
MOST_LABELS, LONGEST_LABEL = 100, 40  # different ones, and characters of one


def first_records(path: Path, format: str) -> list[dict[str, Any]]:
    """The first records of a table, those inside a field with a dot in their names; none where it cannot be read."""
    rows = records_of(Origin(path, format), ReadContext(ignore))
    try:
        return [flat(record) for _number, record in itertools.islice(rows, LOOKED_AT)]
    except UserError:  # it is said where the data are read
        return []


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose fields are none.

    >>> flat({"id": 1, "translation": {"en": "yes", "de": "ja"}})
    {'id': 1, 'translation.en': 'yes', 'translation.de': 'ja'}
    """
    inner = {
        f"{name}.{key}": v for name, value in record.items() if isinstance(value, dict) for key, v in value.items()
    }
    return {name: value for name, value in record.items() if not isinstance(value, dict)} | inner


def text_columns(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields that mostly hold a text with letters, and no numbers."""

    def is_text(value: Any) -> bool:
        return isinstance(value, str) and any(map(str.isalpha, value))

    names = dict.fromkeys(name for record in records for name in record)
    return [name for name in names if sum(is_text(record.get(name)) for record in records) > len(records) / 2]


def fields_of_table(path: Path, task: str | None, fields: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The task of a file whose fields have names, and the settings that name them, where they were not given: two columns of text
    are pairs. Where it cannot be told, an error with the command that says it."""
    given = dict(fields)
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    format = str(given.get("format", SUFFIXES.get(suffix, "")))
    if given.keys() & set(FIELDS["pairs"]):
        return task or "pairs", given
    if given.keys() & set(FIELDS["classify"]):
        return task or ("classify" if "label_field" in given else "text"), given
    if format not in NAMED_FIELDS or not path.is_file() or task not in (None, "pairs"):
        return task, given
    records = first_records(path, format)
    names = list(dict.fromkeys(name for record in records for name in record))
    if not records or {"source", "target"} <= set(names):
        return "pairs" if records else task, given
    if task is None and "text" in names:
        return "text", given
    columns = [name for name in text_columns(records) if name != given.get("features_field")]
    if len(columns) == 2:
        return "pairs", given | dict(zip(FIELDS["pairs"], columns, strict=True))
    if len(columns) == 1 and task is None:
        return "text", given | {"text_field": columns[0]}
    raise UserError(
        "{path} has the columns {names}; say which are source and target{command}",
        path,
        ", ".join(names),
        field_command(("task", *FIELDS["pairs"]), ["pairs", *(columns if len(columns) > 1 else names)]),
    )


def fields_in_words(config: DataConfig) -> str:
    """Which columns are read, with the changes on a command line that say so; nothing where they have their usual names."""
    names = {key: getattr(config, key) for key in FIELDS[config.task]}
    usual = {key: getattr(DataConfig, key) for key in names}
    if names == usual:
        return ""
    return _("the columns that are read{command}", field_command(names, list(names.values())))


def arrange(files: Sequence[Path], task: str | None, fields: Mapping[str, Any]) -> DataConfig:
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
    if len(files) > 0 and not any(len(group) == 2 for group in roles.values()):
        task, fields = fields_of_table(roles.get("train", list(files))[0], task, fields)
    pairs_of_files = [group for group in roles.values() if len(group) == 2]
    if task is None:
        first = files[0]
        columns = [] if pairs_of_files or not first.is_file() else first_columns(first)
        if "\t" in "".join(columns):
            task, features = task_of_columns(columns)
            fields = {**features, **fields}
        else:
            task = "pairs" if pairs_of_files or holds_pairs(first) else "text"
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
    return path.name.removesuffix(".gz").endswith((".tsv", ".jsonl", ".ndjson", ".parquet"))


def has_tab(path: Path) -> bool:
    """Whether the first line that is not blank has two columns."""
    lines = (line for _, line in numbered_lines(path, ReadContext(ignore)) if line.strip())
    return "\t" in next(lines, "")


def first_columns(path: Path) -> list[str]:
    """The first lines of a file with tabs, blank ones as they are; none of any other file."""
    if not (path.name.removesuffix(".gz").endswith(".tsv") or has_tab(path)):
        return []
    return [line for _, line in itertools.islice(numbered_lines(path, ReadContext(ignore)), LINES_LOOKED_AT)]


def task_of_columns(lines: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """What lines with tabs hold, and the settings that follow: a word and its tag, with a blank line between sentences; a label
    and a text; else pairs, whose third column may be features.

    >>> task_of_columns(["The\\tDT", "cat\\tNN", ""] * 20)[0], task_of_columns([f"good\\ta film {n}" for n in range(50)])[0]
    ('tag', 'classify')
    >>> task_of_columns(["sing\\tsang\\tV;PST"] * 50)
    ('pairs', {'features_field': '3'})
    """
    rows = [[column.strip() for column in line.split("\t")] for line in lines if line.strip()]
    firsts, seconds = Counter(row[0] for row in rows), Counter(row[1] for row in rows if len(row) > 1)
    single = sum(" " not in column for row in rows for column in row[:2]) / max(1, sum(len(row[:2]) for row in rows))
    blank = any(not line.strip() for line in lines[:-1])
    if blank and single > MOST and len(seconds) <= min(MOST_LABELS, len(rows) / 5):
        return "tag", {}
    texts = sum(" " in row[1] or any(map(is_unspaced, row[1])) for row in rows if len(row) > 1)
    short = max(map(len, firsts), default=0) <= LONGEST_LABEL
    if (
        len(firsts) <= min(MOST_LABELS, len(rows) / 20)
        and short
        and texts > len(rows) / 2
        and len(seconds) > len(rows) / 2
    ):
        return "classify", {}
    features = sum(len(row) > 2 and ";" in row[2] and " " not in row[2] for row in rows)
    return "pairs", {"features_field": "3"} if features > len(rows) / 2 else {}


def is_plain_lines(path: Path) -> bool:
    """Neither a table nor records nor a folder: possibly one of two aligned files."""
    return path.is_file() and not holds_pairs(path) and not has_tab(path)


def pairs_to_clean(files: Sequence[Path], settings: Mapping[str, Any]) -> DataConfig:
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
    if len(files) == 1:
        _task, settings = fields_of_table(files[0], "pairs", settings)
    target = {"train_target": str(files[1]), "format": "lines"} if len(files) == 2 else {}
    return DataConfig(task="pairs", train=str(files[0]), **{**settings, **target})  # type: ignore[arg-type]
