"""What is remembered of a split while it is read once: 40 bytes an example, hashes and lengths, never its text."""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.doctor.sides import anchors
from glassformer.data.files import BadLine, ReadContext
from glassformer.data.oddities import ODD, QUOTES, is_blank, is_quoted_alone
from glassformer.data.readers import LocatedExample
from glassformer.data.sources import all_rows
from glassformer.data.splits import Split, hash_of, normalized
from glassformer.errors import UserError
from glassformer.language import _

SHOWN_LINES = 5
FIRST_LINES = 5000
FEW_LINES = 20  # a text of many lines that has no more different ones is a list of labels


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

    name: str
    source: array[int] = field(default_factory=lambda: array("Q"))  # hashes
    whole: array[int] = field(default_factory=lambda: array("Q"))
    lines: array[int] = field(default_factory=lambda: array("Q"))
    source_lengths: array[int] = field(default_factory=lambda: array("Q"))  # characters; of a text, of its lines
    target_lengths: array[int] = field(default_factory=lambda: array("Q"))  # pairs only
    empty: list[int] = field(default_factory=list)  # lines, the first few; the counts are beside them
    identical: list[int] = field(default_factory=list)
    source_marks: array[int] = field(default_factory=lambda: array("Q"))  # of pairs: see sides.py
    target_marks: array[int] = field(default_factory=lambda: array("Q"))
    odd: dict[str, list[int]] = field(default_factory=dict)  # NUL and its like: the first lines, by kind
    n_odd: Counter[str] = field(default_factory=Counter)
    n_empty: int = 0
    n_identical: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    different_lines: set[int] = field(default_factory=set)  # of a text: hashes of the first few, to know labels by

    @property
    def examples(self) -> int:
        """How many were read."""
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
        """As JSON has it."""
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


def first_remarks(config: DataConfig) -> list[str]:
    """What is to be said of the columns of a training file, by its first lines."""
    remarks: list[BadLine] = []
    rows = all_rows(config, "train", ReadContext(lambda problem: None, remarks.append))
    examples = sum(1 for _row in itertools.islice(rows, FIRST_LINES))
    counts = Counter(remark.kind for remark in remarks)
    first = {remark.kind: remark for remark in reversed(remarks)}
    return [remark_in_words(config, first[kind], count, examples) for kind, count in counts.items()]


def examine(config: DataConfig, split: Split, findings: list[Finding]) -> SplitFacts:
    """Reads a split once and remembers what the findings need; what cannot be read becomes a finding."""
    facts = SplitFacts(split)
    problems: dict[str, list[BadLine]] = {}
    counts: Counter[str] = Counter()
    remarks: dict[str, list[BadLine]] = {}

    def note(noted: dict[str, list[BadLine]], problem: BadLine) -> None:
        counts[problem.kind] += 1
        if counts[problem.kind] <= SHOWN_LINES:
            noted.setdefault(problem.kind, []).append(problem)

    try:
        rows = all_rows(config, split, ReadContext(partial(note, problems), partial(note, remarks)))
        for row in whole_documents(rows, facts) if config.task == "text" else rows:
            remember(config.task, facts, row)
    except UserError as error:  # the file as a whole cannot be read on
        findings.append(Finding("error", split, "unreadable", str(error), 1))
    for kind, remarked in remarks.items():
        lines = tuple(problem.line for problem in remarked if problem.line is not None)
        message = remark_in_words(config, remarked[0], counts[kind], facts.examples)
        findings.append(Finding("warning", split, kind, message, counts[kind], lines))
    for kind, remarked in problems.items():
        said = str(remarked[0])
        if kind == "field" and not facts.examples:
            said = _("{path}: {problem} (all {count:,} lines)", remarked[0].path, remarked[0].problem, counts[kind])
        elif counts[kind] > 1:
            said = _("{problem} (and {count} more like it)", said, counts[kind] - 1)
        lines = tuple(problem.line for problem in remarked if problem.line is not None)
        findings.append(Finding("error", split, kind, said, counts[kind], lines))
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


def note_odd(facts: SplitFacts, line: int, kind: str) -> None:
    """Counts what a text should not hold, and keeps the first lines."""
    facts.n_odd[kind] += 1
    lines = facts.odd.setdefault(kind, [])
    lines += [line] * (len(lines) < SHOWN_LINES)


def look_at(facts: SplitFacts, line: int, text: str) -> None:
    """What a text should not hold: see oddities.py."""
    for kind, is_there in ODD.items():
        if is_there(text):
            note_odd(facts, line, kind)


def remember(task: str, facts: SplitFacts, row: LocatedExample) -> None:
    """Notes an example's line, lengths and fingerprints."""
    if task == "text":
        source = whole = row.example
    else:
        first, second = row.example
        text = " ".join(first) if task == "tag" else first
        if not first or not second or (task != "tag" and (is_blank(first) or is_blank(second))):
            facts.n_empty += 1
            facts.empty += [row.line] * (len(facts.empty) < SHOWN_LINES)
            return
        facts.source_lengths.append(len(text))
        look_at(facts, row.line, f"{text}\n{second if isinstance(second, str) else ''}")
        if task == "pairs" and (is_quoted_alone(text, second) or is_quoted_alone(second, text)):
            note_odd(facts, row.line, QUOTES)
        source = hash_of(normalized(text))
        if task == "pairs":
            whole = hash_of(normalized(text), normalized(second))
            facts.source_marks.append(anchors(text))
            facts.target_marks.append(anchors(second))
            facts.target_lengths.append(len(second))
            if first == second:
                facts.n_identical += 1
                facts.identical += [row.line] * (len(facts.identical) < SHOWN_LINES)
        else:
            whole = source
            facts.labels.update([second] if task == "classify" else second)
    facts.source.append(source)
    facts.whole.append(whole)
    facts.lines.append(row.line)
