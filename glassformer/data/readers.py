"""One reader a task: every example of a file with the line it stands on, the bad lines complained of.

    pairs      (source, target)     TSV, two line-aligned files, or records with two fields
    text       Document             a line each, or records (whole files are read by `files.document_pieces`)
    classify   (text, label)        label TAB text, or records
    tag        (tokens, tags)       token TAB tag with a blank line between sentences, or records

Records are CSV, JSON, JSONL, Parquet, Hugging Face data sets, and whatever is in memory already:

    [("Guten Tag", "good day"), …]          pairs, classes or tags, as tuples
    [{"source": "…", "target": "…"}, …]     records, by the names of fields that the configuration gives
    ["a text", …]                           documents
    a datasets.Dataset, a pandas or a polars DataFrame
    {"train": …, "val": …, "test": …}       any of these for each split, such as a DatasetDict
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.config import DataConfig, did_you_mean
from glassformer.data.files import BadLine, Document, ReadContext, Unusable, all_lines, numbered_lines
from glassformer.data.oddities import is_header
from glassformer.data.origins import Origin
from glassformer.data.records import (
    FORMATS,
    PART_NAMES,
    Record,
    dataset_records,
    labelled_rows,
    text_of,
    values_of,
    words_of,
)
from glassformer.data.splits import Split
from glassformer.errors import UserError
from glassformer.language import _

WHERE = "the data in memory"
SHAPES = {"pairs": "(source, target)", "classify": "(text, label)", "tag": "(words, tags)", "text": "a text"}
"""By task, what an example in memory is."""


class LocatedExample(NamedTuple):
    """An example with where it stands."""

    example: Any
    path: Path | str
    line: int
    document: Any = None  # which it belongs to, where a field says so


FIELDS: dict[str, tuple[str, ...]] = {
    "pairs": ("source_field", "target_field"),
    "classify": ("text_field", "label_field"),
    "tag": ("text_field", "label_field"),
    "text": ("text_field",),
}
"""By task, the settings that name the fields of its records."""
RECORD_FORMATS = (*FORMATS, "datasets")
SYMBOLS = re.compile(r"[;\s]+")  # between the symbols of features
FEATURE = r"<[^<>\s]+> ?"  # one of them, as it stands before a source


def records_of(origin: Origin, context: ReadContext) -> Iterator[tuple[int, Record]]:
    """The records of a file in any format that names its fields."""
    if origin.format == "datasets":
        return dataset_records(origin.path, origin.part)
    return FORMATS[origin.format][1](origin.path, context)


def record_example(config: DataConfig, record: Record) -> tuple[Any, Any] | None:
    """The example that a record holds, by the names of fields that the configuration gives, and the document it belongs to,
    where a field says so; None of a blank text."""
    fields: dict[str, str] = {setting: getattr(config, setting) for setting in FIELDS[config.task]}
    if config.features_field is not None:
        fields["features_field"] = config.features_field
    read = words_of if config.task == "tag" else text_of
    values: list[Any] = list(map(read, values_of(record, fields), fields.values()))
    if config.task == "text":
        return (Document(values[0], ends=True), None) if values[0].strip() else None
    if config.task == "tag":
        return tagged(*values), None
    document = None
    if config.document_field is not None:
        (document,) = values_of(record, {"document_field": config.document_field})
    return (with_features(values[0].strip(), *values[2:]), values[1].strip()), document


def with_features(source: str, features: str = "") -> str:
    """A source with the symbols of its features before it; one that is empty stays so.

    >>> with_features("sordutater", "V;PRS;2;SG"), with_features("sordutater")
    ('<V> <PRS> <2> <SG> sordutater', 'sordutater')
    """
    symbols = [f"<{symbol}>" for symbol in SYMBOLS.split(features) if symbol]
    return " ".join([*symbols, source]) if source else source


def tagged(tokens: list[str], tags: list[str]) -> tuple[list[str], list[str]]:
    """A sentence with a tag a word."""
    if len(tokens) != len(tags):
        raise Unusable("columns", f"{len(tokens)} words but {len(tags)} tags; each word needs one")
    return tokens, tags


def given_splits(data: Any) -> dict[Split, Any]:
    """What was handed in, by split: one collection is all training data."""
    if isinstance(data, Mapping):
        splits: dict[Split, Any] = {}
        for split, names in PART_NAMES.items():
            name = next((name for name in names if name in data), None)
            if name is not None:
                splits[split] = data[name]  # type: ignore[index]
        known = {name for names in PART_NAMES.values() for name in names}
        if type(data) is dict and (others := [str(name) for name in data if name not in known]):
            raise UserError(
                "data in memory has no part {name!r}{suggestion}; its parts are train, val and test",
                others[0],
                did_you_mean(others[0], sorted(known)),
            )
        if "train" not in splits:
            raise UserError("data in memory needs a 'train'; it has {data}", ", ".join(map(str, data)) or "nothing")
        return splits
    return {"train": data}


def records_in(data: Any) -> Iterator[Any]:
    """The rows of a table as records; the items of anything else."""
    if hasattr(data, "features"):  # datasets.Dataset
        yield from labelled_rows(data)
    elif hasattr(data, "iter_rows"):  # polars
        yield from data.iter_rows(named=True)
    elif hasattr(data, "itertuples"):  # pandas
        names = list(map(str, data.columns))
        for values in data.itertuples(index=False, name=None):
            yield dict(zip(names, values, strict=True))
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        yield from data
    else:
        raise UserError("data in memory must be a list of examples or a table, not {kind}", type(data).__name__)


def item_example(config: DataConfig, item: Any) -> tuple[Any, Any] | None:
    """The example that a record or anything else in memory is, and its document."""
    if isinstance(item, Mapping):
        return record_example(config, dict(item))
    if config.task == "text" and isinstance(item, str):
        return (Document(item, ends=True), None) if item.strip() else None
    kind = list | tuple if config.task == "tag" else str
    is_pair = isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(side, kind) for side in item)
    if config.task == "text" or not is_pair:
        shown = repr(item)[:60]
        raise Unusable("field", _("an example must be {shapes} or a record, not {shown}", SHAPES[config.task], shown))
    if config.task == "tag":
        return tagged(list(map(str, item[0])), list(map(str, item[1]))), None
    return (item[0].strip(), item[1].strip()), None


def rows_of(
    config: DataConfig, items: Iterable[tuple[int, Any]], path: Path | str, context: ReadContext
) -> Iterator[LocatedExample]:
    """The examples of records, or of what else is in memory, each with its number."""
    for number, item in items:
        row = context.attempt(path, number, item_example, config, item)
        if row is not None:
            yield LocatedExample(row[0], path, number, row[1])


def column_rows(config: DataConfig, origin: Origin, context: ReadContext) -> Iterator[LocatedExample]:
    """The examples of a TSV: source TAB target, and perhaps a column of features; or label TAB text."""
    third = None if config.features_field is None else int(config.features_field)
    read = [0, 1] if third is None else [0, 1, third - 1]
    what = _("source and target") if config.task == "pairs" else _("label and text")
    for number, line in numbered_lines(origin.path, context):
        if not line.strip() and "\t" not in line:
            continue
        columns = line.split("\t")
        if number == 1 and is_header(columns):
            names = ", ".join(column.strip() for column in columns)
            problem = _(
                "the first line looks like the names of the columns ({names}); take it out, or it is learned", names
            )
            context.remark(BadLine("header", origin.path, number, problem))
        if len(columns) <= read[-1]:
            problem = _("only {n_columns} columns; data.features_field={third} is not there", len(columns), third)
            if len(columns) < 2:
                problem = _("only one column; each line must be {what}, with a tab between", what)
            context.complain(BadLine("columns", origin.path, number, problem))
            continue
        if any(column.strip() and place not in read for place, column in enumerate(columns)):
            problem = _("{n_columns} columns; only the first two are read", len(columns))
            context.remark(BadLine("third column", origin.path, number, problem))
        first, second, *features = (columns[place].strip() for place in read)
        example = (with_features(first, *features), second) if config.task == "pairs" else (second, first)
        yield LocatedExample(example, origin.path, number)


def aligned_rows(first: Path, second: Path, context: ReadContext) -> Iterator[LocatedExample]:
    """Line n of one file with line n of the other; where one of them cannot be used, both are passed over."""
    counts = [0, 0]
    for left, right in itertools.zip_longest(all_lines(first, context), all_lines(second, context)):
        counts[0] += left is not None
        counts[1] += right is not None
        if left is not None and right is not None and left[1] is not None and right[1] is not None:
            yield LocatedExample((left[1].strip(), right[1].strip()), first, left[0])
    if counts[0] != counts[1]:
        problem = _(
            "{first_count} lines, but {second} has {second_count}; line n of one must translate line n of the other",
            counts[0],
            second,
            counts[1],
        )
        context.complain(BadLine("counts", first, None, problem))


def tag_rows(path: Path, context: ReadContext) -> Iterator[LocatedExample]:
    """Token first, tag last, so that files with columns between them can be read too."""
    start, tokens, tags, bad = 1, list[str](), list[str](), False
    for number, line in itertools.chain(all_lines(path, context), [(-1, "")]):
        if line is not None and not line.strip():
            if tokens and not bad:
                yield LocatedExample((tokens, tags), path, start)
            start, tokens, tags, bad = number + 1, [], [], False
            continue
        columns = line.split("\t") if line is not None else []
        if len(columns) >= 2:
            tokens.append(columns[0].strip())
            tags.append(columns[-1].strip())
            continue
        bad = True  # a sentence with a word missing is no sentence
        if line is not None:
            problem = _("only one column; each line must be token and tag, with a tab between")
            context.complain(BadLine("columns", path, number, problem))


def text_rows(path: Path, context: ReadContext) -> Iterator[LocatedExample]:
    """Documents that are lines."""
    for number, text in numbered_lines(path, context):
        if text.strip():
            yield LocatedExample(Document(text, ends=True), path, number)


def read_rows(config: DataConfig, origin: Origin, context: ReadContext) -> Iterator[LocatedExample]:
    """Every example of a file that is no plain text."""
    if origin.format in RECORD_FORMATS:
        return rows_of(config, records_of(origin, context), origin.path, context)
    if config.task == "text":
        return text_rows(origin.path, context)
    if config.task == "tag":
        return tag_rows(origin.path, context)
    features = config.features_field
    if features is not None and (origin.target is not None or not features.isdecimal() or int(features) < 3):
        raise UserError(
            "data.features_field={features} names no further column of {path}; of a TSV it is a number, such as 3",
            features,
            origin.path,
        )
    if origin.target is not None:
        return aligned_rows(origin.path, origin.target, context)
    return column_rows(config, origin, context)
