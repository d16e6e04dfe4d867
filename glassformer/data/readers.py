"""One reader a task: every example of a file with the line it stands on, the bad lines complained of.

pairs      (source, target)     TSV, two line-aligned files, JSONL, Parquet, Hugging Face datasets
text       Document             a line each, JSONL, Parquet, datasets (whole files are read by `files.document_pieces`)
classify   (text, label)        label TAB text, JSONL, Parquet, datasets
tag        (tokens, tags)       token TAB tag with a blank line between sentences, JSONL, Parquet, datasets
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.files import BadLine, Complain, Document, numbered_lines
from glassformer.data.origins import Origin
from glassformer.data.records import dataset_records, field_of, json_records, parquet_records, text_of, words_of


@dataclass(frozen=True)
class Row:
    """An example with where it stands. `key` decides into which split it falls where splits are carved out of one."""

    example: Any
    key: str
    path: Path
    line: int


def records_of(origin: Origin, complain: Complain) -> Iterator[tuple[int, dict[str, Any]]]:
    if origin.format == "jsonl":
        return json_records(origin.path, complain)
    if origin.format == "parquet":
        return parquet_records(origin.path, complain)
    return dataset_records(origin.path, origin.part)


def two_fields(
    config: DataConfig, origin: Origin, first: str, second: str, read: Any, complain: Complain
) -> Iterator[tuple[int, Any, Any]]:
    for number, record in records_of(origin, complain):
        values = []
        for name in (first, second):
            value = field_of(record, name, origin.path, number, complain)
            values.append(None if value is None else read(value, name, origin.path, number, complain))
        if None not in values:
            yield number, values[0], values[1]


def two_columns(path: Path, what: str, complain: Complain) -> Iterator[tuple[int, str, str]]:
    for number, line in numbered_lines(path, complain):
        if not line.strip():
            continue
        columns = line.split("\t")
        if len(columns) < 2:
            complain(BadLine("columns", path, number, f"only one column; each line must be {what}, with a tab between"))
            continue
        yield number, columns[0].strip(), columns[1].strip()


def aligned_lines(first: Path, second: Path, complain: Complain) -> Iterator[tuple[int, str, str]]:
    counts = [0, 0]
    for one, other in itertools.zip_longest(numbered_lines(first, complain), numbered_lines(second, complain)):
        counts[0] += one is not None
        counts[1] += other is not None
        if one is not None and other is not None:
            yield one[0], one[1].strip(), other[1].strip()
    if counts[0] != counts[1]:
        problem = f"{counts[0]} lines, but {second} has {counts[1]}; line n of one must translate line n of the other"
        complain(BadLine("counts", first, None, problem))


def pair_rows(config: DataConfig, origin: Origin, complain: Complain) -> Iterator[Row]:
    rows: Iterator[tuple[int, str, str]]
    if origin.format == "tsv":
        rows = two_columns(origin.path, "source and target", complain)
    elif origin.target is not None:
        rows = aligned_lines(origin.path, origin.target, complain)
    else:
        rows = two_fields(config, origin, config.source_field, config.target_field, text_of, complain)
    for number, source, target in rows:
        yield Row((source.strip(), target.strip()), source.strip(), origin.path, number)


def classify_rows(config: DataConfig, origin: Origin, complain: Complain) -> Iterator[Row]:
    if origin.format in ("tsv", "lines"):
        rows: Iterable[tuple[int, str, str]] = (
            (number, text, label) for number, label, text in two_columns(origin.path, "label and text", complain)
        )
    else:
        rows = two_fields(config, origin, config.text_field, config.label_field, text_of, complain)
    for number, text, label in rows:
        yield Row((text.strip(), label.strip()), text.strip(), origin.path, number)


def tagged_sentences(path: Path, complain: Complain) -> Iterator[tuple[int, list[str], list[str]]]:
    """Token first, tag last, so that files with columns between them can be read too."""
    start, tokens, tags = 1, list[str](), list[str]()
    for number, line in numbered_lines(path, complain):
        if not line.strip():
            if tokens:
                yield start, tokens, tags
            start, tokens, tags = number + 1, [], []
            continue
        columns = line.split("\t")
        if len(columns) < 2:
            complain(
                BadLine("columns", path, number, "only one column; each line must be token and tag, with a tab between")
            )
            continue
        tokens.append(columns[0].strip())
        tags.append(columns[-1].strip())
    if tokens:
        yield start, tokens, tags


def tag_rows(config: DataConfig, origin: Origin, complain: Complain) -> Iterator[Row]:
    if origin.format in ("tsv", "lines"):
        rows = tagged_sentences(origin.path, complain)
    else:
        rows = two_fields(config, origin, config.text_field, config.label_field, words_of, complain)
    for number, tokens, tags in rows:
        if len(tokens) != len(tags):
            complain(
                BadLine(
                    "columns", origin.path, number, f"{len(tokens)} words but {len(tags)} tags; each word needs one"
                )
            )
            continue
        yield Row((tokens, tags), " ".join(tokens), origin.path, number)


def text_rows(config: DataConfig, origin: Origin, complain: Complain) -> Iterator[Row]:
    """Documents that are lines or records; files as documents are dealt with by `read_text`."""
    if origin.format in ("lines", "tsv"):
        rows: Iterable[tuple[int, str | None]] = numbered_lines(origin.path, complain)
    else:
        rows = (
            (number, None if value is None else text_of(value, config.text_field, origin.path, number, complain))
            for number, record in records_of(origin, complain)
            for value in [field_of(record, config.text_field, origin.path, number, complain)]
        )
    for number, text in rows:
        if text is not None and text.strip():
            yield Row(Document(text, ends=True), text, origin.path, number)


READERS: dict[str, Callable[[DataConfig, Origin, Complain], Iterator[Row]]] = {
    "pairs": pair_rows,
    "classify": classify_rows,
    "tag": tag_rows,
    "text": text_rows,
}
