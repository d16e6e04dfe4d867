"""What a cleaning leaves, takes and changes, and how that is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from glassformer.data.cleaning.alignment import Pair
from glassformer.data.cleaning.rules import Rule, RuleMatch

SHOWN = 5  # pairs of each rule in the report
ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Removed(NamedTuple):
    """A pair that a rule took (as the repairs had left it) or a repair changed (as it was), the name of that, and the line it
    stands on; of a line that cannot be read, the whole line and why."""

    rule: str
    line: int
    source: str
    target: str


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

    def take(self, name: str, why: str, rule: Rule, languages: Sequence[str]) -> None:
        """Apply one rule to what the others left."""
        found = rule(self.kept, languages) if self.kept else RuleMatch(())
        taken, kept = set(found.places), self.kept
        removed = [Removed(name, self.lines[i], *kept[i]) for i in found.places]
        examples: list[tuple[str, ...]] = [(str(one.line), one.source, one.target) for one in removed[:SHOWN]]
        self.rules[name] = Tally(why, len(removed), found.note, examples, [kept[i] for i in found.left])
        self.removed += removed
        self.lines = [line for i, line in enumerate(self.lines) if i not in taken]
        self.kept = [pair for i, pair in enumerate(kept) if i not in taken]

    def columns(self, line: int) -> list[Any]:
        """What stands beside the pair of a line, in the order of all names, up to the last that it has."""
        own = self.further.get(line, {})
        last = max((place for place, name in enumerate(self.names, 1) if name in own), default=0)
        return [own.get(name) for name in self.names[:last]]

    def row(self, one: Removed) -> list[object]:
        """What was taken or changed, as a row of a TSV, with all columns it had."""
        return [*one, *self.columns(one.line)]

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
        """As JSON has it: counts, further columns in order, and examples; the pairs themselves are in files of their own."""
        counts: dict[str, Any] = {"read": self.read, "kept": len(self.kept), "removed": len(self.removed)}
        counts |= {"repaired": len(self.repaired), "further_columns": self.names}
        tallies = {"repairs": self.repairs, "rules": self.rules}
        return counts | {name: {k: asdict(v) for k, v in part.items()} for name, part in tallies.items()}

    def markdown(self) -> str:
        """The report for a person to read."""
        share = 100 * len(self.kept) / max(1, self.read)
        out = ["# Cleaning", "", f"{self.read:,} pairs read, {len(self.kept):,} kept ({share:.1f}%).", ""]
        out += ["| rule | pairs | why | |", "| --- | ---: | --- | --- |"]
        both = {f"repaired: {name}": tally for name, tally in self.repairs.items()} | self.rules
        out += [f"| {name} | {tally.count:,} | {tally.why} | {tally.note} |" for name, tally in both.items()]
        for name, tally in both.items():
            if tally.examples or tally.left:
                out += ["", f"## {name}", ""] + ["    " + " | ".join(map(as_cell, some)) for some in tally.examples]
            if tally.left:
                out += ["", "Just left:", ""] + ["    " + " | ".join(map(as_cell, pair)) for pair in tally.left]
        return "\n".join(out) + "\n"
