"""What is remembered of a split while it is read once: 40 bytes an example, hashes and lengths, never its text."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.files import BadLine, ReadContext, ignore
from glassformer.data.oddities import ODD, QUOTES, is_quoted_alone
from glassformer.data.readers import LocatedExample
from glassformer.data.sources import all_rows, has_empty_side
from glassformer.data.splits import Split, hash_of, normalized, source_of
from glassformer.errors import UserError
from glassformer.language import _

SHOWN_LINES = 5
FIRST_LINES = 5000


def numbers() -> array[int]:
    """An empty array of 64-bit numbers."""
    return array("Q")


@dataclass
class Seen:
    """How often something was seen, the first lines it was seen in, and what the reader said of the first."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    first: BadLine | None = None

    def add(self, line: int | None, problem: BadLine | None = None) -> None:
        """Once more."""
        self.count += 1
        self.first = self.first or problem
        if line is not None and len(self.lines) < SHOWN_LINES:
            self.lines.append(line)


@dataclass
class SplitFacts:
    """What is remembered of a split: a number or two an example, and by kind what was odd, could not be read, or was remarked."""

    name: Split
    source: array[int] = field(default_factory=numbers)  # hashes
    whole: array[int] = field(default_factory=numbers)
    lines: array[int] = field(default_factory=numbers)
    source_lengths: array[int] = field(default_factory=numbers)  # characters; of a text, of its lines
    target_lengths: array[int] = field(default_factory=numbers)  # pairs only
    odd: defaultdict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))
    problems: defaultdict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))
    remarks: defaultdict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))
    labels: Counter[str] = field(default_factory=Counter)
    unreadable: str = ""  # why the reading ended before the files did

    @property
    def examples(self) -> int:
        """The number of examples that were read."""
        return len(self.lines)

    def context(self) -> ReadContext:
        """A reading that goes on at what is wrong, and notes it here."""

        def complain(problem: BadLine) -> None:
            self.problems[problem.kind].add(problem.line, problem)

        def remark(problem: BadLine) -> None:
            self.remarks[problem.kind].add(problem.line, problem)

        return ReadContext(complain, remark)

    def look_at(self, line: int, text: str) -> None:
        """Notes what a text should not hold: see oddities.py."""
        for kind, is_there in ODD.items():
            if is_there(text):
                self.odd[kind].add(line)

    def add(self, task: str, row: LocatedExample) -> None:
        """Notes an example's line, lengths and hashes; a whole document is its hash."""
        if task == "text":
            source = whole = row.example
        elif has_empty_side(task, row.example):
            self.odd["empty"].add(row.line)
            return
        else:
            text, (first, second) = source_of(task, row.example), row.example
            self.source_lengths.append(len(text))
            self.look_at(row.line, f"{text}\n{second if isinstance(second, str) else ''}")
            source = whole = hash_of(normalized(text))
            if task == "pairs":
                if is_quoted_alone(text, second) or is_quoted_alone(second, text):
                    self.odd[QUOTES].add(row.line)
                if first == second:
                    self.odd["identical"].add(row.line)
                whole = hash_of(normalized(text), normalized(second))
                self.target_lengths.append(len(second))
            else:
                self.labels.update([second] if task == "classify" else second)
        self.source.append(source)
        self.whole.append(whole)
        self.lines.append(row.line)


def as_array(values: array[int]) -> np.ndarray:
    """The numbers for NumPy, not copied."""
    return np.frombuffer(values, np.uint64)


def remark_in_words(config: DataConfig, seen: Seen, examples: int) -> str:
    """What so many lines have beside what is read, or that a first line names columns, by the first such line."""
    assert seen.first is not None
    if seen.first.kind == "header":
        return str(seen.first)
    both = seen.count, examples
    message = _("{counts} of {examples} lines have more than two columns; only the first two are read", *both)
    if config.task != "pairs" or seen.count <= examples / 2:
        return message
    return _("{columns} (data.features_field=3 puts the third before the source)", message)


def first_remarks(config: DataConfig) -> list[str]:
    """What is to be said of the columns of a training file, by its first lines."""
    facts = SplitFacts("train")
    rows = all_rows(config, "train", ReadContext(ignore, facts.context().remark))
    examples = sum(1 for _row in islice(rows, FIRST_LINES))
    return [remark_in_words(config, seen, examples) for seen in facts.remarks.values()]


def whole_documents(rows: Iterable[LocatedExample], facts: SplitFacts) -> Iterator[LocatedExample]:
    """A document's pieces as one row, which is its hash; of its text the lengths of lines are kept."""
    digest, documents = hashlib.blake2b(digest_size=8), 0
    for row in rows:
        digest.update(row.example.text.encode("utf-8", errors="surrogatepass"))
        facts.look_at(row.line, row.example.text)
        facts.source_lengths.extend(map(len, row.example.text.splitlines()))
        if row.example.ends:
            documents += 1
            yield LocatedExample(int.from_bytes(digest.digest(), "big"), row.path, documents)
            digest = hashlib.blake2b(digest_size=8)


def examine(config: DataConfig, split: Split) -> SplitFacts:
    """Reads a split once and remembers what the findings need."""
    facts = SplitFacts(split)
    try:
        rows = all_rows(config, split, facts.context())
        for row in whole_documents(rows, facts) if config.task == "text" else rows:
            facts.add(config.task, row)
    except UserError as error:  # the file as a whole cannot be read on
        facts.unreadable = str(error)
    return facts
