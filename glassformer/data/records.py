"""Records with named fields: JSONL, Parquet, and Hugging Face data sets, one record at a time.

Parquet and datasets are extras; their libraries are imported when a file of theirs is opened, and not before.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from glassformer.data.files import BadLine, Complain, numbered_lines
from glassformer.errors import UserError


def import_extra(module: str, extra: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"{path} needs {module}: install the extra with pip install 'glassformer[{extra}]'") from None


def json_records(path: Path, complain: Complain) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in numbered_lines(path, complain):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            complain(BadLine("json", path, number, f"not valid JSON ({error.msg} at column {error.colno})"))
            continue
        if not isinstance(record, dict):
            complain(BadLine("json", path, number, 'not a JSON object such as {"source": "...", "target": "..."}'))
            continue
        if "\\u" in line:  # an escape may spell half a character
            try:
                json.dumps(record, ensure_ascii=False).encode("utf-8")
            except UnicodeEncodeError:
                complain(BadLine("encoding", path, number, "an escape stands for a lone surrogate, half a character"))
                continue
        yield number, record


def parquet_records(path: Path, complain: Complain) -> Iterator[tuple[int, dict[str, Any]]]:
    parquet = import_extra("pyarrow.parquet", "parquet", path)
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:  # pyarrow has a family of errors of its own
        raise UserError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None
    number = 0
    with file:
        for batch in file.iter_batches(batch_size=1024):
            for record in batch.to_pylist():
                number += 1
                yield number, record


@functools.lru_cache(maxsize=4)
def open_datasets(path: Path) -> Any:
    """A folder that `save_to_disk` wrote, or the name of a data set, with its configuration after a colon."""
    datasets = import_extra("datasets", "datasets", path)
    try:
        if path.exists():
            return datasets.load_from_disk(str(path))
        name, _, configuration = path.as_posix().partition(":")
        return datasets.load_dataset(name, configuration or None)
    except Exception as error:  # whatever went wrong on the way, the person sees its first line
        raise UserError(f"the data set {path} cannot be loaded: {str(error).splitlines()[0]}") from None


PART_NAMES = {"train": ("train",), "val": ("validation", "val", "valid", "dev"), "test": ("test",)}


def dataset_part(path: Path, split: str) -> str | None:
    """The name of a split inside a data set that has several; None where it has no such split or no splits at all."""
    content = open_datasets(path)
    return next((name for name in PART_NAMES[split] if isinstance(content, dict) and name in content), None)


def dataset_records(path: Path, part: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    content = open_datasets(path)
    if isinstance(content, dict):
        if part is None:
            raise UserError(f"the data set {path} has no such split; it has {', '.join(content)}")
        content = content[part]
    names = {field: found for field, feature in content.features.items() if (found := class_names(feature))}
    for number, record in enumerate(content, 1):
        for field, classes in names.items():
            value = record[field]
            record[field] = [classes[v] for v in value] if isinstance(value, list) else classes[value]
        yield number, record


def class_names(feature: Any) -> list[str] | None:
    """The words behind the numbers of a class label, or of a list of them."""
    names = getattr(feature, "names", None)
    return names if names is not None else getattr(getattr(feature, "feature", None), "names", None)


def field_of(record: dict[str, Any], name: str, path: Path, number: int, complain: Complain) -> Any:
    """The value, or None after a complaint. `translation.en` reaches into a field that is itself a record."""
    value: Any = record
    for step in [name] if name in record else name.split("."):
        if not isinstance(value, dict) or step not in value:
            complain(
                BadLine("field", path, number, f"there is no field {name!r}; there are {', '.join(map(str, record))}")
            )
            return None
        value = value[step]
    if value is None:
        complain(BadLine("field", path, number, f"the field {name!r} is null"))
    return value


def text_of(value: Any, name: str, path: Path, number: int, complain: Complain) -> str | None:
    if isinstance(value, bool | int):
        value = str(value)
    if not isinstance(value, str):
        complain(BadLine("field", path, number, f"the field {name!r} must hold text, not {type(value).__name__}"))
        return None
    return value


def words_of(value: Any, name: str, path: Path, number: int, complain: Complain) -> list[str] | None:
    if not isinstance(value, list):
        complain(
            BadLine("field", path, number, f"the field {name!r} must hold a list of words, not {type(value).__name__}")
        )
        return None
    words = [text_of(item, name, path, number, complain) for item in value]
    return None if None in words else cast(list[str], words)
