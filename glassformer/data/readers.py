"""One reader a task: every example of a file with the line it stands on, the bad lines complained of.

    pairs      (source, target)     TSV, two line-aligned files, or records with two fields
    text       Document             a line each, or records (whole files are read by `files.document_pieces`)
    classify   (text, label)        label TAB text, or records
    tag        (tokens, tags)       token TAB tag with a blank line between sentences, or records

Records are CSV, JSON, JSONL, Parquet, TMX, Hugging Face data sets, and whatever is in memory already.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.config import DataConfig
from glassformer.data.files import BadLine, Document, ErrorHandler, ReadContext, all_lines, numbered_lines
from glassformer.data.oddities import is_header
from glassformer.data.origins import Origin
from glassformer.data.records import FORMATS, Record, check_fields, dataset_records, field_of, text_of, words_of
from glassformer.errors import UserError
from glassformer.language import _


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
SYMBOLS = re.compile(r"[;\s]+")  # between the symbols of features


def records_of(origin: Origin, context: ReadContext) -> Iterator[tuple[int, Record]]:
    """The records of a file in any format that names its fields."""
    if origin.format == "datasets":
        return dataset_records(origin.path, origin.part)
    return FORMATS[origin.format][1](origin.path, context)


def record_row(
    config: DataConfig, number: int, record: Record, path: Path | str, complain: ErrorHandler
) -> LocatedExample | None:
    """The example that a record holds, by the names of fields that the configuration gives; None after a complaint."""
    read = words_of if config.task == "tag" else text_of
    fields: dict[str, str] = {setting: getattr(config, setting) for setting in FIELDS[config.task]}
    if config.features_field is not None:
        fields["features_field"] = config.features_field
    if not check_fields(record, fields, path, number, complain):
        return None
    values: list[Any] = []
    for name in fields.values():
        value = field_of(record, name, path, number, complain)
        values.append(None if value is None else read(value, name, path, number, complain))
    if None in values:
        return None
    if config.task == "text":
        return LocatedExample(Document(values[0], ends=True), path, number) if values[0].strip() else None
    if config.task == "tag":
        return tagged_row(values[0], values[1], path, number, complain)
    named = config.document_field
    if named is not None and not check_fields(record, {"document_field": named}, path, number, complain):
        return None
    document = None if named is None else field_of(record, named, path, number, complain)
    source = with_features(values[0].strip(), *values[2:])
    return LocatedExample((source, values[1].strip()), path, number, document)


def with_features(source: str, features: str = "") -> str:
    """A source with the symbols of its features before it; one that is empty stays so.

    >>> with_features("sordutater", "V;PRS;2;SG"), with_features("sordutater")
    ('V PRS 2 SG sordutater', 'sordutater')
    """
    return " ".join([*SYMBOLS.split(features.strip("; ")), source]).strip() if source and features else source


def tagged_row(
    tokens: list[str], tags: list[str], path: Path | str, number: int, complain: ErrorHandler
) -> LocatedExample | None:
    """A sentence with a tag a word; None after a complaint where they are not as many."""
    if len(tokens) != len(tags):
        problem = f"{len(tokens)} words but {len(tags)} tags; each word needs one"
        complain(BadLine("columns", path, number, problem))
        return None
    return LocatedExample((tokens, tags), path, number)


def record_rows(config: DataConfig, origin: Origin, context: ReadContext) -> Iterator[LocatedExample]:
    """The examples of a file of records."""
    for number, record in records_of(origin, context):
        row = record_row(config, number, record, origin.path, context.complain)
        if row is not None:
            yield row


def two_columns(
    path: Path, what: str, context: ReadContext, third: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """The first two of the columns that tabs part, and the one of the number `third`, if any."""
    read = [0, 1] if third is None else [0, 1, third - 1]
    for number, line in numbered_lines(path, context):
        if not line.strip() and "\t" not in line:
            continue
        columns = line.split("\t")
        if number == 1 and is_header(columns):
            names = ", ".join(column.strip() for column in columns)
            problem = _(
                "the first line looks like the names of the columns ({names}); take it out, or it is learned", names
            )
            context.remark(BadLine("header", path, number, problem))
        if len(columns) < 2:
            problem = _("only one column; each line must be {what}, with a tab between", what)
            context.complain(BadLine("columns", path, number, problem))
            continue
        if len(columns) <= read[-1]:
            problem = _("only {n_columns} columns; data.features_field={third} is not there", len(columns), third)
            context.complain(BadLine("columns", path, number, problem))
            continue
        if any(column.strip() and place not in read for place, column in enumerate(columns)):
            problem = _("{n_columns} columns; only the first two are read", len(columns))
            context.remark(BadLine("third column", path, number, problem))
        yield number, [columns[place].strip() for place in read]


def aligned_lines(first: Path, second: Path, context: ReadContext) -> Iterator[tuple[int, str, str]]:
    """Line n of one file with line n of the other; where one of them cannot be used, both are passed over."""
    counts = [0, 0]
    for left, right in itertools.zip_longest(all_lines(first, context), all_lines(second, context)):
        counts[0] += left is not None
        counts[1] += right is not None
        if left is not None and right is not None and left[1] is not None and right[1] is not None:
            yield left[0], left[1].strip(), right[1].strip()
    if counts[0] != counts[1]:
        problem = _(
            "{first_count} lines, but {second} has {second_count}; line n of one must translate line n of the other",
            counts[0],
            second,
            counts[1],
        )
        context.complain(BadLine("counts", first, None, problem))


def pair_rows(config: DataConfig, origin: Origin, context: ReadContext) -> Iterator[LocatedExample]:
    """Source and target."""
    features = config.features_field
    if features is not None and (origin.target is not None or not features.isdecimal() or int(features) < 3):
        raise UserError(
            "data.features_field={features} names no further column of {path}; of a TSV it is a number, such as 3",
            features,
            origin.path,
        )
    if origin.target is not None:
        for number, source, target in aligned_lines(origin.path, origin.target, context):
            yield LocatedExample((source, target), origin.path, number)
        return
    third = None if features is None else int(features)
    for number, columns in two_columns(origin.path, _("source and target"), context, third):
        yield LocatedExample((with_features(columns[0], *columns[2:]), columns[1]), origin.path, number)


def classify_rows(config: DataConfig, origin: Origin, context: ReadContext) -> Iterator[LocatedExample]:
    """Text and label; in the file the label comes first."""
    for number, (label, text) in two_columns(origin.path, _("label and text"), context):
        yield LocatedExample((text, label), origin.path, number)


def tag_rows(config: DataConfig, origin: Origin, context: ReadContext) -> Iterator[LocatedExample]:
    """Token first, tag last, so that files with columns between them can be read too."""
    start, tokens, tags, bad = 1, list[str](), list[str](), False
    for number, line in itertools.chain(all_lines(origin.path, context), [(-1, "")]):
        if line is not None and not line.strip():
            if tokens and not bad:
                yield LocatedExample((tokens, tags), origin.path, start)
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
            context.complain(BadLine("columns", origin.path, number, problem))


def text_rows(config: DataConfig, origin: Origin, context: ReadContext) -> Iterator[LocatedExample]:
    """Documents that are lines."""
    for number, text in numbered_lines(origin.path, context):
        if text.strip():
            yield LocatedExample(Document(text, ends=True), origin.path, number)


BY_TASK: dict[str, Callable[[DataConfig, Origin, ReadContext], Iterator[LocatedExample]]] = {
    "pairs": pair_rows,
    "classify": classify_rows,
    "tag": tag_rows,
    "text": text_rows,
}


def read_rows(config: DataConfig, origin: Origin, context: ReadContext) -> Iterator[LocatedExample]:
    """Every example of a file that is no plain text."""
    return (record_rows if origin.format in (*FORMATS, "datasets") else BY_TASK[config.task])(config, origin, context)
