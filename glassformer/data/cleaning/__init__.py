"""Cleaning of pairs: what can be repaired is, what teaches wrong things is taken out and kept in a file beside, with the rule.

The pairs are held in memory, some 500 bytes each. Beside them there may be further columns and fields, which are kept as they
are. They are rare, so they are fetched by a second reading, and only where the first has found that they are there.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from glassformer.config import DataConfig
from glassformer.data.cleaning.alignment import Pair
from glassformer.data.cleaning.rules import REPAIRS, RULES, Rule, RuleMatch, language_codes
from glassformer.data.files import BadLine, ReadContext, cure, ignore, numbered_lines
from glassformer.data.origins import Origin, origins_of, shown
from glassformer.data.readers import RECORD_FORMATS, records_of
from glassformer.data.records import Record
from glassformer.data.sources import all_rows
from glassformer.errors import UserError, install_hint
from glassformer.language import _
from glassformer.screen import watched

NEEDED = ("ftfy", "datasketch", "py3langid")
SHOWN = 5  # pairs of each rule in the report
ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Removed(NamedTuple):
    """A pair that a rule took (as the repairs had left it) or a repair changed (as it was), the name of that, and the line it
    stands on; of a line that cannot be read, why."""

    rule: str
    line: int
    source: str
    target: str


def shown_of(removed: Sequence[Removed]) -> list[tuple[str, ...]]:
    """The first of some pairs, as a report shows them."""
    return [(str(pair.line), pair.source, pair.target) for pair in removed[:SHOWN]]


@dataclass
class Tally:
    """What a rule or a repair did: to how many pairs, the first of them, and of a rule the nearest that it left."""

    why: str
    count: int = 0
    note: str = ""
    examples: list[tuple[str, ...]] = field(default_factory=list)
    left: list[Pair] = field(default_factory=list)


def as_cell(value: Any) -> str:
    """A value as the cell of a TSV: text in one line, its tabs and line breaks as escapes (`\\t`, `\\n`, `\\r`); what is no text
    as JSON."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.translate(ESCAPES)


def as_tsv(rows: Iterable[Iterable[object]]) -> str:
    """Rows with tabs between their cells."""
    return "".join("\t".join(map(as_cell, row)) + "\n" for row in rows)


@dataclass
class Cleaned:
    """What a cleaning left, what it took and changed, and what each rule did."""

    read: int
    kept: list[Pair] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    repaired: list[Removed] = field(default_factory=list)
    further: dict[int, dict[str, Any]] = field(
        default_factory=dict
    )  # by line: what stands beside the pair, by its name
    names: list[str] = field(default_factory=list)  # of all that stands beside pairs, in order
    has_documents: bool = False  # between which are blank lines
    repairs: dict[str, Tally] = field(default_factory=dict)
    rules: dict[str, Tally] = field(default_factory=dict)

    def repair(self, pair: Pair, line: int) -> Pair:
        """The pair of a line with all that can be put right."""
        for name, tally in self.repairs.items():
            fixed = REPAIRS[name](*pair)
            if fixed != pair:
                tally.count += 1
                tally.examples += [(str(line), *pair, *fixed)] * (len(tally.examples) < SHOWN)
                self.repaired.append(Removed(name, line, *pair))
            pair = fixed
        return pair

    def take(self, name: str, why: str, rule: Rule, languages: Sequence[str]) -> None:
        """Apply one rule to what the others left."""
        match = rule(self.kept, languages) if self.kept else RuleMatch(())
        taken, kept = set(match.places), self.kept
        removed = [Removed(name, self.lines[i], *kept[i]) for i in match.places]
        self.rules[name] = Tally(why, len(removed), match.note, shown_of(removed), [kept[i] for i in match.left])
        self.removed += removed
        self.lines = [line for i, line in enumerate(self.lines) if i not in taken]
        self.kept = [pair for i, pair in enumerate(kept) if i not in taken]

    def columns(self, line: int) -> list[Any]:
        """What stands beside the pair of a line, in the order of all names, up to the last that it has."""
        further = self.further.get(line, {})
        last = max((place for place, name in enumerate(self.names, 1) if name in further), default=0)
        return [further.get(name) for name in self.names[:last]]

    def row(self, removed: Removed) -> list[object]:
        """What was taken or changed, as a row of a TSV, with all columns it had."""
        return [*removed, *self.columns(removed.line)]

    def rows(self) -> Iterator[list[Any]]:
        """The pairs that are left, with all columns they had. Where documents are parted by blank lines, one stands wherever two
        pairs were not neighbours."""
        last = 0
        for line, pair in zip(self.lines, self.kept, strict=True):
            if self.has_documents and last and line != last + 1:
                yield []
            yield [*pair, *self.columns(line)]
            last = line

    def as_jsonl(self, source: str, target: str) -> str:
        """The pairs that are left as records, a line each: the sides by these names, and all other fields as they were."""
        pairs = zip(self.lines, self.kept, strict=True)
        records = ({source: pair[0], target: pair[1], **self.further.get(line, {})} for line, pair in pairs)
        return "".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records)

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON-serialisable dict: counts, further columns in order, and examples. The pairs themselves are in
        files of their own."""
        counts: dict[str, Any] = {"read": self.read, "kept": len(self.kept), "removed": len(self.removed)}
        counts |= {"repaired": len(self.repaired), "further_columns": self.names}
        tallies = {"repairs": self.repairs, "rules": self.rules}
        return counts | {name: {k: asdict(v) for k, v in part.items()} for name, part in tallies.items()}


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
        lines = ((n, line.split("\t")[2:]) for n, line in numbered_lines(origin.path, ReadContext(ignore)))
        return {n: {str(place): cell for place, cell in enumerate(cells, 3)} for n, cells in lines if cells}
    found = {}
    names = [config.source_field, config.target_field]
    for number, record in records_of(origin, ReadContext(ignore)):
        further = without_fields(record, names)
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
    cleaned.removed = [Removed("unreadable", line, "", str(why)) for line, why in bad.items()]
    cleaned.rules["unreadable"] = Tally(_("the line cannot be read"), len(bad), examples=shown_of(cleaned.removed))
    is_lines = origin.format not in RECORD_FORMATS
    cleaned.has_documents = is_lines and cleaned.read < max((*lines, *bad))
    if wide or not is_lines:
        cleaned.further = {line: fields for line, fields in further_fields(config, origin).items() if line in good}
    cleaned.names = list(dict.fromkeys(name for further in cleaned.further.values() for name in further))
    return cleaned


def need_extra() -> None:
    """A sentence that says how to get what is missing, before anything is read."""
    for module in NEEDED:
        try:
            importlib.import_module(module)
        except ImportError:
            raise UserError(
                "cleaning needs {module}; install it with: {command}", module, install_hint("clean")
            ) from None


def clean(
    config: DataConfig,
    *,
    languages: Sequence[str] = (),
    without: Collection[str] = (),
) -> Cleaned:
    """The pairs of data.train without what the rules take. `languages`: of source and target, where they are not to be found out;
    `without`: rules and repairs to be left out."""
    need_extra()
    languages = language_codes(languages)
    if unknown := sorted(set(without) - {*RULES, *REPAIRS}):
        raise UserError("there is no rule {name!r}; there are {known}", unknown[0], ", ".join({**REPAIRS, **RULES}))
    cleaned = read_pairs(config)
    cleaned.repairs = {name: Tally(_("repaired")) for name in REPAIRS if name not in without}
    pairs = watched(cleaned.kept, _("repairing"), len(cleaned.kept), every=1000)
    cleaned.kept = [cleaned.repair(pair, line) for pair, line in zip(pairs, cleaned.lines, strict=True)]
    rules = {name: rule for name, rule in RULES.items() if name not in without}
    for name, (why, rule) in watched(rules.items(), _("cleaning"), len(rules)):
        cleaned.take(name, why, rule, languages)
    return cleaned
