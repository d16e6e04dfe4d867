"""What is remembered of a split while it is read once: 40 bytes an example, hashes and lengths, never its text."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.cleaning.alignment import anchors
from glassformer.data.files import BadLine, ReadContext, ignore
from glassformer.data.oddities import ODD, QUOTES, is_quoted_alone
from glassformer.data.readers import LocatedExample
from glassformer.data.sources import all_rows, has_empty_side
from glassformer.data.splits import Split, hash_of, normalized, source_of
from glassformer.errors import UserError
from glassformer.language import _

SHOWN_LINES = 5
FIRST_LINES = 5000
FEW_LINES = 20  # a text of many lines that has no more different ones is a list of labels


@dataclass
class Seen:
    """How often something was seen, and the first lines it was seen in."""

    count: int = 0
    lines: list[int] = field(default_factory=list)

    def add(self, line: int | None) -> None:
        """Once more."""
        self.count += 1
        if line is not None and len(self.lines) < SHOWN_LINES:
            self.lines.append(line)


@dataclass(frozen=True)
class Finding:
    """Something about the data that a person should know, with the first lines it was seen in."""

    level: Literal["error", "warning"]
    split: str
    kind: str
    message: str
    count: int
    lines: tuple[int, ...] = ()  # the first few


@dataclass
class SplitFacts:
    """What is remembered of a split: a number or two an example."""

    name: Split
    source: array[int] = field(default_factory=lambda: array("Q"))  # hashes
    whole: array[int] = field(default_factory=lambda: array("Q"))
    lines: array[int] = field(default_factory=lambda: array("Q"))
    source_lengths: array[int] = field(default_factory=lambda: array("Q"))  # characters; of a text, of its lines
    target_lengths: array[int] = field(default_factory=lambda: array("Q"))  # pairs only
    empty: Seen = field(default_factory=Seen)
    identical: Seen = field(default_factory=Seen)
    odd: defaultdict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))  # NUL and its like, by kind
    source_marks: array[int] = field(default_factory=lambda: array("Q"))  # of pairs: see cleaning/alignment.py
    target_marks: array[int] = field(default_factory=lambda: array("Q"))
    labels: Counter[str] = field(default_factory=Counter)
    different_lines: set[int] = field(default_factory=set)  # of a text: hashes of the first few, to know labels by

    @property
    def examples(self) -> int:
        """The number of examples that were read."""
        return len(self.lines)


@dataclass
class DoctorReport:
    """What the doctor found, split by split."""

    task: str
    splits: dict[str, SplitFacts]
    findings: list[Finding]
    unknown: dict[str, float]  # of val and test: the share of words that train does not know
    tokenizer: str  # in what sense they are words

    @property
    def mistake(self) -> bool:
        """Whether training on this would be one."""
        return any(finding.level == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON-serialisable dict."""
        splits = {
            name: {
                "examples": facts.examples,
                "source_length": quantiles(facts.source_lengths),
                "target_length": quantiles(facts.target_lengths),
                "labels": dict(sorted(facts.labels.items())),
                "unknown": self.unknown.get(name),
            }
            for name, facts in self.splits.items()
        }
        findings = [vars(finding) | {"lines": list(finding.lines)} for finding in self.findings]
        return {"task": self.task, "mistake": self.mistake, "splits": splits, "findings": findings}


def quantiles(lengths: array[int]) -> dict[str, int]:
    """Median, 95th percentile and longest of some lengths."""
    if not lengths:
        return {}
    values = np.frombuffer(lengths, np.uint64)
    names = {"median": 0.5, "p95": 0.95, "max": 1.0}
    return {name: int(np.quantile(values, q, method="higher")) for name, q in names.items()}


def remark_in_words(config: DataConfig, first: BadLine, count: int, examples: int) -> str:
    """What so many lines have beside what is read, or that a first line names columns, by the first such line."""
    if first.kind == "header":
        return str(first)
    both = count, examples
    message = _("{counts} of {examples} lines have more than two columns; only the first two are read", *both)
    if config.task != "pairs" or count <= examples / 2:
        return message
    return _("{columns} (data.features_field=3 puts the third before the source)", message)


@dataclass
class Problems:
    """What is wrong with some lines, or worth a look, by its kind: the first of each, and how often it was seen where."""

    first: dict[str, BadLine] = field(default_factory=dict)
    seen: defaultdict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))

    def note(self, problem: BadLine) -> None:
        """One more line."""
        self.first.setdefault(problem.kind, problem)
        self.seen[problem.kind].add(problem.line)


def first_remarks(config: DataConfig) -> list[str]:
    """What is to be said of the columns of a training file, by its first lines."""
    remarks = Problems()
    rows = all_rows(config, "train", ReadContext(ignore, remarks.note))
    examples = sum(1 for _row in islice(rows, FIRST_LINES))
    return [remark_in_words(config, first, remarks.seen[kind].count, examples) for kind, first in remarks.first.items()]


def examine(config: DataConfig, split: Split, findings: list[Finding]) -> SplitFacts:
    """Reads a split once and remembers what the findings need; what cannot be read becomes a finding."""
    facts, problems, remarks = SplitFacts(split), Problems(), Problems()
    try:
        rows = all_rows(config, split, ReadContext(problems.note, remarks.note))
        for row in whole_documents(rows, facts) if config.task == "text" else rows:
            remember(config.task, facts, row)
    except UserError as error:  # the file as a whole cannot be read on
        findings.append(Finding("error", split, "unreadable", str(error), 1))
    for kind, first in remarks.first.items():
        seen = remarks.seen[kind]
        message = remark_in_words(config, first, seen.count, facts.examples)
        findings.append(Finding("warning", split, kind, message, seen.count, tuple(seen.lines)))
    for kind, first in problems.first.items():
        seen = problems.seen[kind]
        message = str(first)
        if kind == "field" and not facts.examples:
            message = _("{path}: {problem} (all {count:,} lines)", first.path, first.problem, seen.count)
        elif seen.count > 1:
            message = _("{problem} (and {count} more like it)", message, seen.count - 1)
        findings.append(Finding("error", split, kind, message, seen.count, tuple(seen.lines)))
    return facts


def whole_documents(rows: Iterable[LocatedExample], facts: SplitFacts) -> Iterator[LocatedExample]:
    """A document's pieces as one row, which is its hash; of its text the lengths of lines are kept."""
    digest, documents = hashlib.blake2b(digest_size=8), 0
    for row in rows:
        digest.update(row.example.text.encode("utf-8", errors="surrogatepass"))
        look_at(facts, row.line, row.example.text)
        lines = row.example.text.splitlines()
        facts.source_lengths.extend(map(len, lines))
        if len(facts.different_lines) <= FEW_LINES:
            facts.different_lines.update(map(hash, lines))
        if row.example.ends:
            documents += 1
            yield LocatedExample(int.from_bytes(digest.digest(), "big"), row.path, documents)
            digest = hashlib.blake2b(digest_size=8)


def look_at(facts: SplitFacts, line: int, text: str) -> None:
    """Notes what a text should not hold: see oddities.py."""
    for kind, is_there in ODD.items():
        if is_there(text):
            facts.odd[kind].add(line)


def remember(task: str, facts: SplitFacts, row: LocatedExample) -> None:
    """Notes an example's line, lengths and fingerprints."""
    if task == "text":
        source = whole = row.example
    elif has_empty_side(task, row.example):
        facts.empty.add(row.line)
        return
    else:
        text, (first, second) = source_of(task, row.example), row.example
        facts.source_lengths.append(len(text))
        look_at(facts, row.line, f"{text}\n{second if isinstance(second, str) else ''}")
        source = whole = hash_of(normalized(text))
        if task == "pairs":
            if is_quoted_alone(text, second) or is_quoted_alone(second, text):
                facts.odd[QUOTES].add(row.line)
            whole = hash_of(normalized(text), normalized(second))
            facts.source_marks.append(anchors(text))
            facts.target_marks.append(anchors(second))
            facts.target_lengths.append(len(second))
            if first == second:
                facts.identical.add(row.line)
        else:
            facts.labels.update([second] if task == "classify" else second)
    facts.source.append(source)
    facts.whole.append(whole)
    facts.lines.append(row.line)
