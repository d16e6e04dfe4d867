"""Records with named fields: CSV, JSON, JSONL, Parquet, and Hugging Face data sets, one record at a time.

Parquet and datasets are extras; their libraries are imported when a file of theirs is opened, and not before.
"""

from __future__ import annotations

import csv
import functools
import importlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from glassformer.data.files import BYTE_ORDER_MARK, BadLine, ReadContext, Unusable, decode, numbered_lines
from glassformer.errors import UserError, install_hint
from glassformer.language import _

Record = dict[str, Any]
LARGEST_JSON = 256 << 20  # bytes of a .json file, which is read whole; JSONL has no such limit
LARGEST_CELL = 16 << 20  # characters of a field of a CSV file


def import_extra(module: str, extra: str, path: str | Path) -> Any:
    """A library of an extra, or a sentence that says how to install it; `path`: the file, or the setting, that needs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(
            "{path} needs {module}; install it with: {command}", path, module, install_hint(extra)
        ) from None


def json_value(text: str) -> Any:
    """A JSON value. Nesting without end and numbers of thousands of digits are no data."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Unusable("json", _("not valid JSON ({msg} at column {colno})", error.msg, error.colno)) from None
    except RecursionError:
        raise Unusable("json", _("not valid JSON (it is nested too deeply)")) from None
    except ValueError:
        raise Unusable("json", _("not valid JSON (a number has thousands of digits)")) from None


def json_record(value: Any) -> Record:
    """A JSON value that is an object and holds whole characters."""
    if not isinstance(value, dict):
        raise Unusable("json", _('not a JSON object such as {"source": "...", "target": "..."}'))
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:  # such as \\ud800, which no UTF-8 file can hold
        raise Unusable("encoding", _("an escape stands for a lone surrogate, half a character")) from None
    return value


def parsed_record(line: str) -> Record:
    """The JSON object of a line."""
    return json_record(json_value(line))


def kept_pair(line: str) -> Record:
    """A pair that a run keeps (data/train.examples.gz and its sisters): a JSON array of source and target."""
    row = json_value(line)
    if not isinstance(row, list) or len(row) < 2:
        raise Unusable("json", _("not a pair such as a run keeps"))
    return {"source": row[0], "target": row[1]}


def line_records(parse: Callable[[str], Record], path: Path, context: ReadContext) -> Iterator[tuple[int, Record]]:
    """A record a line."""
    for number, line in numbered_lines(path, context):
        if line.strip() and (record := context.attempt(path, number, parse, line)) is not None:
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
    numbered: Iterable[tuple[int, Any]] = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    lines = [line.strip() for _number, line in numbered]
    if len(lines) > 1 and lines[0].startswith("{") and lines[0].endswith("}"):
        read: Callable[[Any], Record] = parsed_record
    else:
        numbered = enumerate(rows_of(context.attempt(path, None, json_value, text), path), 1)
        read = json_record
    for number, value in numbered:
        record = context.attempt(path, number, read, value)
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
    "examples": ((".examples",), functools.partial(line_records, kept_pair)),
    "json": ((".json",), json_records),
    "jsonl": ((".jsonl", ".ndjson"), functools.partial(line_records, parsed_record)),
    "parquet": ((".parquet",), parquet_records),
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


def value_at(record: Record, name: str) -> Any:
    """The value of a field. `translation.en` reaches into a field that is itself a record; a KeyError where there is none."""
    value: Any = record
    for step in [name] if name in record else name.split("."):
        if not isinstance(value, dict):
            raise KeyError(name)
        value = value[step]
    return value


def values_of(record: Record, fields: Mapping[str, str]) -> list[Any]:
    """The values of the fields that these settings name, none of them missing or null."""
    values: list[Any] = []
    missing: list[str] = []
    for name in fields.values():
        try:
            values.append(value_at(record, name))
        except KeyError:
            missing.append(name)
    if missing:
        lacking = repr(missing[0]) if len(missing) == 1 else _("{first!r} or {second!r}", *missing[:2])
        known, command = ", ".join(map(str, record)), field_command(fields, list(record))
        raise Unusable("field", _("there is no field {lacking}; there are {known}{command}", lacking, known, command))
    for name, value in zip(fields.values(), values, strict=True):
        if value is None:
            raise Unusable("field", _("the field {name!r} is null", name))
    return values


def field_command(settings: Iterable[str], names: Sequence[Any]) -> str:
    """The changes on a command line that say what is read from these fields, after a colon; nothing where there are too few."""
    settings = list(settings)
    words = [str(name) if re.fullmatch(r"[\w.+-]+", str(name)) else shlex.quote(str(name)) for name in names]
    changes = [f"data.{key}={word}" for key, word in zip(settings, words, strict=False)]
    return f": {' '.join(changes)}" if len(changes) == len(settings) else ""


def text_of(value: Any, name: str) -> str:
    """Text, or a number as text."""
    if isinstance(value, bool | int):
        try:
            return str(value)
        except ValueError:
            problem = _("the field {name!r} is a number of thousands of digits", name)
            raise Unusable("field", problem) from None
    if not isinstance(value, str):
        raise Unusable("field", _("the field {name!r} must hold text, not {kind}", name, type(value).__name__))
    return value


def words_of(value: Any, name: str) -> list[str]:
    """A list of words."""
    if not isinstance(value, list):
        problem = _("the field {name!r} must hold a list of words, not {kind}", name, type(value).__name__)
        raise Unusable("field", problem)
    return [text_of(item, name) for item in value]
