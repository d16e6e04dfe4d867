"""What the numbers of a split say, alone and beside the training split."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.cleaning.alignment import exchanged, log_ratio, shifted
from glassformer.data.doctor.facts import SHOWN_LINES, Seen, SplitFacts, as_array, remark_in_words
from glassformer.data.oddities import QUOTES
from glassformer.data.sources import first_rows
from glassformer.data.splits import look_like_texts
from glassformer.language import _

RATIO_LIMIT = 4.0  # times the usual ratio of lengths, either way
LEAK_LIMIT, COPY_LIMIT, ODD_LIMIT = 0.01, 0.5, 0.05  # above: errors
IDENTICAL_NOTICE = 0.01  # above: a warning
WORDS_FROM = 100_000  # so many examples of train teach the words, and as many of val and test are held against them


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
class DoctorReport:
    """What the doctor found, split by split."""

    task: str
    splits: dict[str, SplitFacts]
    findings: list[Finding]

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
            }
            for name, facts in self.splits.items()
        }
        findings = [vars(finding) | {"lines": list(finding.lines)} for finding in self.findings]
        return {"task": self.task, "mistake": self.mistake, "splits": splits, "findings": findings}


def quantiles(lengths: array[int]) -> dict[str, int]:
    """Median, 95th percentile and longest of some lengths."""
    names = {"median": 0.5, "p95": 0.95, "max": 1.0} if lengths else {}
    return {name: int(np.quantile(as_array(lengths), q, method="higher")) for name, q in names.items()}


def noted(
    facts: SplitFacts, kind: str, message: str, count: int, lines: Iterable[int] = (), *, is_error: bool = False
) -> Finding:
    """A finding about a split."""
    return Finding("error" if is_error else "warning", facts.name, kind, message, count, tuple(lines))


def inside(config: DataConfig, facts: SplitFacts) -> Iterator[Finding]:
    """Findings about one split alone."""
    total = facts.examples
    if facts.unreadable:
        yield noted(facts, "unreadable", facts.unreadable, 1, is_error=True)
    for kind, seen in facts.remarks.items():
        yield noted(facts, kind, remark_in_words(config, seen, total), seen.count, seen.lines)
    for kind, seen in facts.problems.items():
        message: str = str(seen.first)
        if kind == "field" and not total and seen.first is not None:
            message = _("{path}: {problem} (all {count:,} lines)", seen.first.path, seen.first.problem, seen.count)
        elif seen.count > 1:
            message = _("{problem} (and {count} more like it)", message, seen.count - 1)
        yield noted(facts, kind, message, seen.count, seen.lines, is_error=True)
    if total == 0:
        yield noted(facts, "nothing", _("{name} holds no example to learn from", facts.name), 0, is_error=True)
    for kind, seen in facts.odd.items():
        yield from odd_findings(config, facts, kind, seen)
    if total:
        yield from repeat_findings(config, facts)
        if config.task == "pairs":
            yield from length_findings(facts)
            if not facts.unreadable:
                yield from exchange_findings(config, facts)
        yield from label_findings(config, facts)


def odd_findings(config: DataConfig, facts: SplitFacts, kind: str, seen: Seen) -> Iterator[Finding]:
    """What was noted of single examples while they were read."""
    total, is_error = facts.examples, kind == "NUL" or (seen.count > ODD_LIMIT * facts.examples and kind != QUOTES)
    where = "documents" if config.task == "text" else "examples"
    message = f"{seen.count} of {total} {where} hold {kind}"
    if kind == "empty":
        both, is_error = (seen.count, total + seen.count), False
        message = _("{n_empty} of {total} examples have an empty side and will be passed over", *both)
    elif kind == "identical":
        if seen.count <= IDENTICAL_NOTICE * total:
            return
        is_error = seen.count > COPY_LIMIT * total
        message = _("{n_identical} of {total} pairs have two identical sides", seen.count, total)
    yield noted(facts, kind, message, seen.count, seen.lines, is_error=is_error)


def repeat_findings(config: DataConfig, facts: SplitFacts) -> Iterator[Finding]:
    """Whether examples occur again."""
    hashes = as_array(facts.whole)
    order = np.argsort(hashes, kind="stable")
    repeated = np.sort(order[1:][hashes[order][1:] == hashes[order][:-1]])
    if len(repeated):
        what = _("documents") if config.task == "text" else _("examples")
        message = _("{n_repeated} of {total} {what} occur before", len(repeated), facts.examples, what)
        yield noted(facts, "duplicates", message, len(repeated), lines_at(facts, repeated))


def length_findings(facts: SplitFacts) -> Iterator[Finding]:
    """Whether one side of the pairs is moved against the other, or far longer beside it than in other pairs."""
    source, target = as_array(facts.source_lengths), as_array(facts.target_lengths)
    if (shift := shifted(source, target)) is not None:
        place, by = shift
        where, side = facts.lines[place], "later" if by > 0 else "earlier"
        message = _(
            "from about line {where} on, targets fit sources much better {by} line{plural} {side}: a line "
            "was lost or doubled",
            where,
            abs(by),
            "s" * (abs(by) > 1),
            side,
        )
        yield noted(facts, "shifted", message, facts.examples - place, (where,), is_error=True)
    ratios = log_ratio(source, target)
    strange = np.flatnonzero(np.abs(ratios - np.median(ratios)) > np.log(RATIO_LIMIT))
    if len(strange):
        message = _(
            "{n_strange} of {total} pairs differ in length {ratio_limit:g} times more than is usual here",
            len(strange),
            facts.examples,
            RATIO_LIMIT,
        )
        yield noted(facts, "ratio", message, len(strange), lines_at(facts, strange))


def label_findings(config: DataConfig, facts: SplitFacts) -> Iterator[Finding]:
    """Whether labels are texts, or all are the same."""
    total, n_labels = facts.examples, len(facts.labels)
    if config.task == "classify" and look_like_texts(n_labels, len(set(facts.source)), total):
        message = _(
            "{n_labels:,} different labels in {total:,} examples: are labels and texts exchanged? The label "
            "comes first",
            n_labels,
            total,
        )
        yield noted(facts, "exchanged", message, n_labels, is_error=True)
    if config.task in ("classify", "tag") and facts.name == "train" and n_labels < 2:
        message = _("all examples have the label {labels!r}", next(iter(facts.labels)))
        yield noted(facts, "labels", message, total, is_error=True)


def exchange_findings(config: DataConfig, facts: SplitFacts) -> Iterator[Finding]:
    """Pairs whose source stands where the target should: by the words of train, or where it is train by its own."""
    rows = [row for row in first_rows(config, facts.name, WORDS_FROM) if all(row.example)]
    others = None
    if facts.name != "train" and config.files("train"):
        others = [row.example for row in first_rows(config, "train", WORDS_FROM) if all(row.example)]
    places = exchanged([row.example for row in rows], others)
    if places:
        message = _("{n_places} of {n_rows} pairs seem to have their columns exchanged", len(places), len(rows))
        lines = (rows[place].line for place in places[:SHOWN_LINES])
        is_error = len(places) > LEAK_LIMIT * len(rows)
        yield noted(facts, "exchanged", message, len(places), lines, is_error=is_error)


def across(config: DataConfig, train: SplitFacts, other: SplitFacts) -> Iterator[Finding]:
    """Findings about val or test beside train."""
    total = other.examples
    leaked = np.flatnonzero(np.isin(as_array(other.whole), as_array(train.whole)))
    if len(leaked):
        share = len(leaked) / total
        message = _(
            "{n_leaked} of {total} examples of {other} occur in train ({share:.1%})",
            len(leaked),
            total,
            other.name,
            share,
        )
        yield noted(other, "leaked", message, len(leaked), lines_at(other, leaked), is_error=share > LEAK_LIMIT)
    known = np.setdiff1d(np.flatnonzero(np.isin(as_array(other.source), as_array(train.source))), leaked)
    if config.task == "pairs" and len(known):
        message = _(
            "{n_known} of {total} sources of {other} occur in train with another target", len(known), total, other.name
        )
        yield noted(other, "known sources", message, len(known), lines_at(other, known))
    unseen = sorted(set(other.labels) - set(train.labels))
    if unseen:
        message = _("{other} has labels that train never shows: {unseen}", other.name, ", ".join(unseen[:SHOWN_LINES]))
        yield noted(other, "labels", message, len(unseen), is_error=True)


def lines_at(facts: SplitFacts, places: np.ndarray) -> tuple[int, ...]:
    """The first few line numbers of these examples."""
    return tuple(facts.lines[int(place)] for place in places[:SHOWN_LINES])
