"""Records with named fields: CSV, JSON, JSONL, Parquet, TMX, and Hugging Face data sets, one record at a time.

Parquet and datasets are extras; their libraries are imported when a file of theirs is opened, and not before.
"""

from __future__ import annotations

import csv
import functools
import importlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from glassformer.data.files import BYTE_ORDER_MARK, BadLine, ErrorHandler, ReadContext, decode, numbered_lines
from glassformer.data.tmx import tmx_records
from glassformer.errors import UserError, install_hint
from glassformer.language import _

Record = dict[str, Any]
LARGEST_JSON = 256 << 20  # bytes of a .json file, which is read whole; JSONL has no such limit
LARGEST_CELL = 16 << 20  # characters of a field of a CSV file


def import_extra(module: str, extra: str, path: Path) -> Any:
    """A library of an extra, or a sentence that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(
            "{path} needs {module}; install it with: {command}", path, module, install_hint(extra)
        ) from None


def parsed(text: str, path: Path, number: int | None, complain: ErrorHandler) -> Any:
    """A JSON value; None after a complaint. Nesting without end and numbers of thousands of digits are no data."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = _("not valid JSON ({msg} at column {colno})", error.msg, error.colno)
    except RecursionError:
        problem = _("not valid JSON (it is nested too deeply)")
    except ValueError:
        problem = _("not valid JSON (a number has thousands of digits)")
    complain(BadLine("json", path, number, problem))
    return None


def has_half_characters(record: Any) -> bool:
    """Whether an escape such as \\ud800 spells half a character, which no UTF-8 file can hold."""
    try:
        json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def as_record(value: Any, path: Path, number: int, complain: ErrorHandler) -> Record | None:
    """A JSON value that is an object and holds whole characters; else None after a complaint."""
    if not isinstance(value, dict):
        complain(BadLine("json", path, number, _('not a JSON object such as {"source": "...", "target": "..."}')))
        return None
    if has_half_characters(value):
        complain(BadLine("encoding", path, number, _("an escape stands for a lone surrogate, half a character")))
        return None
    return value


def jsonl_records(path: Path, context: ReadContext) -> Iterator[tuple[int, Record]]:
    """One JSON object a line."""
    for number, line in numbered_lines(path, context):
        if not line.strip():
            continue
        value = parsed(line, path, number, context.complain)
        if value is None and line.strip() != "null":
            continue  # complained of already
        record = as_record(value, path, number, context.complain)
        if record is not None:
            yield number, record


def json_records(path: Path, context: ReadContext) -> Iterator[tuple[int, Record]]:
    """A .json file: a list of objects; an object that holds one such list; an object of equally long columns; or, as many are
    named so, one object a line. The number of a record is its place in the list."""
    with context.opened(path) as file:
        raw = file.read(LARGEST_JSON + 1)
        if len(raw) > LARGEST_JSON:
            raise UserError(
                "{path} has more than {largest_json} MiB, and a .json file is read whole; save it as .jsonl, one "
                "object a line",
                path,
                LARGEST_JSON >> 20,
            )
    text = decode(raw.removeprefix(BYTE_ORDER_MARK), path, 1, context.complain)
    if text is None:
        return
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and lines[0].strip().startswith("{") and lines[0].strip().endswith("}"):
        values = [
            (n, parsed(line, path, n, context.complain)) for n, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
        numbered = [(number, value) for number, value in values if value is not None]
    else:
        numbered = list(enumerate(rows_of(parsed(text, path, None, context.complain), path), 1))
    for number, value in numbered:
        record = as_record(value, path, number, context.complain)
        if record is not None:
            yield number, record


def rows_of(value: Any, path: Path) -> list[Any]:
    """The list of records that a JSON value is or holds."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list)]
        if len(lists) == 1 and all(isinstance(row, dict) for row in lists[0]):
            return lists[0]
        columns = [list(v.values()) if isinstance(v, dict) else v for v in value.values()]
        if columns and all(isinstance(c, list) and len(c) == len(columns[0]) for c in columns):
            return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
    raise UserError('{path} is no list of records such as [{{"source": "...", "target": "..."}}]', path)


def example_records(path: Path, context: ReadContext) -> Iterator[tuple[int, Record]]:
    """The pairs that a run keeps (data/train.examples.gz and its sisters): a JSON array of source and target a line."""
    for number, line in numbered_lines(path, context):
        row = parsed(line, path, number, context.complain)
        if not isinstance(row, list) or len(row) < 2:
            context.complain(BadLine("json", path, number, _("not a pair such as a run keeps")))
        else:
            yield number, {"source": row[0], "target": row[1]}


def csv_records(path: Path, context: ReadContext) -> Iterator[tuple[int, Record]]:
    """A table whose first line names its columns; between them commas, semicolons or tabs, whichever the first line has."""
    csv.field_size_limit(LARGEST_CELL)
    read: list[int] = []  # the lines of one row

    def lines() -> Iterator[str]:
        for place, line in numbered_lines(path, context):
            if "\0" in line:
                context.complain(BadLine("csv", path, place, _("it holds a NUL character")))
                continue
            read.append(place)
            yield line + "\n"

    source = lines()
    first = next(source, None)
    if first is None:
        return
    delimiter = max(",;\t", key=first.count)
    names = next(csv.reader([first], delimiter=delimiter))
    rows = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        read.clear()
        try:
            row = next(rows, None)
        except csv.Error as error:
            context.complain(BadLine("csv", path, read[0], _("not valid CSV ({error})", error)))
            rows = csv.reader(source, delimiter=delimiter, strict=True)
            continue
        if row is None:
            return
        if not row:
            continue
        if len(row) != len(names):
            problem = f"{len(row)} columns, but the first line names {len(names)}: {', '.join(names)}"
            context.complain(BadLine("columns", path, read[0], problem))
            continue
        yield read[0], dict(zip(names, row, strict=True))


def parquet_records(path: Path, context: ReadContext) -> Iterator[tuple[int, Record]]:
    """The rows of a Parquet file, a thousand at a time."""
    parquet = import_extra("pyarrow.parquet", "parquet", path)
    number = 0
    with context.opened(path) as file:
        try:
            table = parquet.ParquetFile(file.random_access())
            for batch in table.iter_batches(batch_size=1024):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
        except (UserError, GeneratorExit):
            raise
        except Exception as error:  # pyarrow has a family of errors of its own, and plain ones for what is damaged
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError("{path} is not a readable Parquet file: {why}", path, why) from None


FORMATS: dict[str, tuple[tuple[str, ...], Callable[[Path, ReadContext], Iterator[tuple[int, Record]]]]] = {
    "csv": ((".csv",), csv_records),
    "examples": ((".examples",), example_records),
    "json": ((".json",), json_records),
    "jsonl": ((".jsonl", ".ndjson"), jsonl_records),
    "parquet": ((".parquet",), parquet_records),
    "tmx": ((".tmx",), tmx_records),
}
"""Every format of files whose fields have names: how the names of its files end, and what reads it."""


@functools.lru_cache(maxsize=4)
def open_datasets(path: Path) -> Any:
    """A folder that `save_to_disk` wrote, or the name of a data set, with its configuration after a colon."""
    datasets = import_extra("datasets", "datasets", path)
    try:
        if path.exists():
            return datasets.load_from_disk(str(path))
        name, _unused, configuration = path.as_posix().partition(":")
        return datasets.load_dataset(name, configuration or None)
    except Exception as error:  # whatever went wrong on the way, the person sees its first line
        raise UserError("the data set {path} cannot be loaded: {reason}", path, str(error).splitlines()[0]) from None


PART_NAMES = {"train": ("train",), "val": ("validation", "val", "valid", "dev"), "test": ("test",)}


def dataset_part(path: Path, split: str) -> str | None:
    """The name of a split inside a data set that has several; None where it has no such split or no splits at all."""
    content = open_datasets(path)
    return next((name for name in PART_NAMES[split] if isinstance(content, dict) and name in content), None)


def dataset_records(path: Path, part: str | None) -> Iterator[tuple[int, Record]]:
    """The rows of a data set, or of one split of it."""
    content = open_datasets(path)
    if isinstance(content, dict):
        if part is None:
            raise UserError("the data set {path} has no such split; it has {content}", path, ", ".join(content))
        content = content[part]
    yield from enumerate(labelled_rows(content), 1)


def labelled_rows(content: Any) -> Iterator[Record]:
    """The rows of a Hugging Face data set with the words of its class labels in place of their numbers."""
    names = {field: words for field, feature in content.features.items() if (words := class_names(feature))}
    for record in content:
        for field, classes in names.items():
            value = record[field]
            record[field] = [classes[v] for v in value] if isinstance(value, list) else classes[value]
        yield record


def class_names(feature: Any) -> list[str] | None:
    """The words behind the numbers of a class label, or of a list of them."""
    names = getattr(feature, "names", None)
    return names if names is not None else getattr(getattr(feature, "feature", None), "names", None)


def has_field(record: Record, name: str) -> bool:
    """Whether a record has a field, be it in one that is itself a record."""
    value: Any = record
    for step in [name] if name in record else name.split("."):
        if not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    return True


def check_fields(record: Record, fields: dict[str, str], path: Path | str, number: int, complain: ErrorHandler) -> bool:
    """Whether a record has these fields, by the settings that name them; else False after one complaint of all it lacks."""
    missing = [name for name in fields.values() if not has_field(record, name)]
    if not missing:
        return True
    lacking = repr(missing[0]) if len(missing) == 1 else _("{first!r} or {second!r}", *missing[:2])
    known, command = ", ".join(map(str, record)), field_command(fields, list(record))
    problem = _("there is no field {lacking}; there are {known}{command}", lacking, known, command)
    complain(BadLine("field", path, number, problem))
    return False


def field_command(settings: Iterable[str], names: Sequence[Any]) -> str:
    """The changes on a command line that say what is read from these fields, after a colon; nothing where there are too few."""
    settings = list(settings)
    words = [str(name) if re.fullmatch(r"[\w.+-]+", str(name)) else shlex.quote(str(name)) for name in names]
    changes = [f"data.{key}={word}" for key, word in zip(settings, words, strict=False)]
    return f": {' '.join(changes)}" if len(changes) == len(settings) else ""


def field_of(record: Record, name: str, path: Path | str, number: int, complain: ErrorHandler) -> Any:
    """The value of a field that is there, or None after a complaint. `translation.en` reaches into a field that is itself a
    record."""
    value: Any = record
    for step in [name] if name in record else name.split("."):
        value = value[step]
    if value is None:
        complain(BadLine("field", path, number, _("the field {name!r} is null", name)))
    return value


def text_of(value: Any, name: str, path: Path | str, number: int, complain: ErrorHandler) -> str | None:
    """Text, or a number as text; else None after a complaint."""
    if isinstance(value, bool | int):
        try:
            value = str(value)
        except ValueError:  # thousands of digits
            complain(BadLine("field", path, number, _("the field {name!r} is a number of thousands of digits", name)))
            return None
    if not isinstance(value, str):
        problem = _("the field {name!r} must hold text, not {kind}", name, type(value).__name__)
        complain(BadLine("field", path, number, problem))
        return None
    return value


def words_of(value: Any, name: str, path: Path | str, number: int, complain: ErrorHandler) -> list[str] | None:
    """A list of words; else None after a complaint."""
    if not isinstance(value, list):
        problem = _("the field {name!r} must hold a list of words, not {kind}", name, type(value).__name__)
        complain(BadLine("field", path, number, problem))
        return None
    words = [text_of(item, name, path, number, complain) for item in value]
    return None if None in words else cast(list[str], words)
