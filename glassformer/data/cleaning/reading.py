"""What a cleaning reads beside the pairs: further columns and fields, and the lines that cannot be read, as they are.

Both are rare, so they are fetched by a second reading, and only where the first has found that they are there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.cleaning.cleaned import SHOWN, Cleaned, Removed, Tally, as_cell
from glassformer.data.files import BYTE_ORDER_MARK, BadLine, ReadContext, cure, numbered_lines
from glassformer.data.origins import Origin, origins_of, shown
from glassformer.data.readers import RECORD_FORMATS, records_of
from glassformer.data.records import Record
from glassformer.data.sources import all_rows
from glassformer.errors import UserError
from glassformer.language import _

PLACES = ("json", "parquet", "tmx", "datasets")  # whose numbers are those of records, and not of lines


def ignored() -> ReadContext:
    """A reading after the first, which has complained already."""
    return ReadContext(lambda problem: None)


def raw_lines(path: Path, bad: Collection[int], good: Collection[int]) -> dict[int, str]:
    """Some lines as they stand in the file, bytes that are no UTF-8 as escapes; each with what follows up to the next one that
    is known, as a record of a CSV may go on."""
    found: dict[int, list[bytes]] = {}
    number, current = 0, 0
    with ignored().opened(path) as file:
        while block := file.read_lines():
            block = block.removeprefix(BYTE_ORDER_MARK) if number == 0 else block
            for line in block.removesuffix(b"\n").split(b"\n"):
                number += 1
                current = number if number in bad else 0 if number in good else current
                if current:
                    found.setdefault(current, []).append(line)
    return {line: b"\n".join(raw).strip().decode("utf-8", "backslashreplace") for line, raw in found.items()}


def unreadable(origin: Origin, bad: Collection[int], good: Collection[int]) -> dict[int, str]:
    """What stands on the lines that cannot be read; of two aligned files on that line of both."""
    if not bad:
        return {}
    if origin.format in PLACES:
        return {place: as_cell(record) for place, record in records_of(origin, ignored()) if place in bad}
    paths = [path for path in (origin.path, origin.target) if path is not None]
    sides = [raw_lines(path, bad, good) for path in paths]
    return {line: "\t".join(side.get(line, "") for side in sides) for line in bad}


def without_fields(record: Record, names: Sequence[str]) -> Record:
    """A record without these fields, `translation.en` being a field of a field."""
    left = dict(record)
    for name in names:
        first, _dot, rest = name.partition(".")
        if left.pop(name, None) is None and isinstance(inner := left.pop(first, None), dict):
            left |= {first: kept} if (kept := without_fields(inner, [rest])) else {}
    return left


def further_fields(config: DataConfig, origin: Origin) -> dict[int, dict[str, Any]]:
    """What stands beside the pairs, by line: the third column of a TSV and those behind it, by their numbers, or fields."""
    if origin.format not in RECORD_FORMATS:
        lines = ((n, line.split("\t")[2:]) for n, line in numbered_lines(origin.path, ignored()))
        return {n: {str(place): cell for place, cell in enumerate(cells, 3)} for n, cells in lines if cells}
    found = {}
    names = [config.source_field, config.target_field]
    for number, record in records_of(origin, ignored()):
        further = without_fields(record, names)
        if origin.format == "tmx":  # which has both sides twice, by their languages as well
            sides = [record.get(name) for name in names]
            further = {name: text for name, text in further.items() if text not in sides}
        if further:
            found[number] = further
    return found


def read_pairs(config: DataConfig) -> Cleaned:
    """All pairs of data.train, with what stands beside them; nothing is cleaned yet, but what cannot be read is taken."""
    bad: dict[int, BadLine] = {}
    wide: list[BadLine] = []

    def complain(problem: BadLine) -> None:
        if problem.line is None:
            raise problem
        bad.setdefault(problem.line, problem)

    rows = list(all_rows(config, "train", ReadContext(complain, wide.append)))
    (origin,) = origins_of(config, "train")
    if not rows and bad:
        first = next(iter(bad.values()))
        raise UserError("no pair of {name} can be read; {problem}", shown(origin.path), first)
    if not rows:
        raise UserError("{names} holds no pairs", shown(origin.path))
    if sum("\0" in row.example[0] for row in rows) > len(rows) / 2:  # without its mark, each ASCII letter has a NUL
        why = _("UTF-16 without a byte order mark; {cure}", cure(origin.path, "utf-16le"))
        raise BadLine("encoding", origin.path, None, why)
    lines = [row.line for row in rows]
    good = set(lines)
    bad = {line: problem for line, problem in bad.items() if line not in good}
    cleaned = Cleaned(len(rows) + len(bad), [row.example for row in rows], lines)
    texts = unreadable(origin, bad, good)
    cleaned.removed = [Removed("unreadable", line, texts.get(line, ""), str(why)) for line, why in bad.items()]
    examples: list[tuple[str, ...]] = [(str(one.line), one.source, one.target) for one in cleaned.removed[:SHOWN]]
    cleaned.rules["unreadable"] = Tally(_("the line cannot be read"), len(bad), examples=examples)
    is_lines = origin.format not in RECORD_FORMATS
    cleaned.has_documents = is_lines and cleaned.read < max((*lines, *bad))
    if wide or not is_lines:
        cleaned.further = {line: own for line, own in further_fields(config, origin).items() if line in good}
    cleaned.names = list(dict.fromkeys(name for further in cleaned.further.values() for name in further))
    return cleaned
