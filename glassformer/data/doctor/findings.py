"""What the numbers of a split say, alone and beside the training split."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.cleaning.alignment import exchanged, log_ratio, shifted
from glassformer.data.doctor.facts import FEW_LINES, SHOWN_LINES, DoctorReport, Finding, SplitFacts
from glassformer.data.oddities import QUOTES
from glassformer.data.sources import first_rows
from glassformer.data.splits import Split, look_like_texts, source_of
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.text.tokenizer import UNK, Tokenizer

RATIO_LIMIT = 4.0  # times the usual ratio of lengths, either way
LEAK_LIMIT, COPY_LIMIT, ODD_LIMIT = 0.01, 0.5, 0.05  # above: errors
FOREIGN_LIMIT = 0.5  # above, a question is asked
IDENTICAL_NOTICE, UNKNOWN_NOTICE = 0.01, 0.05  # above: warnings
WORDS_FROM = 100_000  # so many examples of train teach the words, and as many of val and test are held against them
WORDS_KEPT = 50_000
SINGLE_FROM = 2000  # sources that are looked at for being single words
HAN_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
LABEL_LINES = 50  # a text of fewer lines may well repeat itself


def noted(
    facts: SplitFacts, kind: str, message: str, count: int, lines: Iterable[int] = (), *, is_error: bool = False
) -> Finding:
    """A finding about a split."""
    return Finding("error" if is_error else "warning", facts.name, kind, message, count, tuple(lines))


def inside(config: DataConfig, facts: SplitFacts) -> Iterator[Finding]:
    """Findings about one split alone."""
    total = facts.examples
    if total == 0:
        yield noted(facts, "nothing", _("{name} holds no example to learn from", facts.name), 0, is_error=True)
    if n_empty := facts.empty.count:
        message = _(
            "{n_empty} of {total} examples have an empty side and will be passed over", n_empty, total + n_empty
        )
        yield noted(facts, "empty", message, n_empty, facts.empty.lines)
    n_identical = facts.identical.count
    if total and n_identical > IDENTICAL_NOTICE * total:
        message = _("{n_identical} of {total} pairs have two identical sides", n_identical, total)
        is_copy = n_identical > COPY_LIMIT * total
        yield noted(facts, "identical", message, n_identical, facts.identical.lines, is_error=is_copy)
    for kind, seen in facts.odd.items():
        where = "documents" if config.task == "text" else "examples"
        bad = kind == "NUL" or (seen.count > ODD_LIMIT * total and kind != QUOTES)
        message = f"{seen.count} of {total} {where} hold {kind}"
        yield noted(facts, kind, message, seen.count, seen.lines, is_error=bad)
    if total and config.task == "pairs":
        yield from shift_findings(facts)
    if total:
        yield from repeat_findings(config, facts)
        if config.task == "pairs":
            yield from ratio_findings(facts)
        yield from label_findings(config, facts)


def repeat_findings(config: DataConfig, facts: SplitFacts) -> Iterator[Finding]:
    """Whether examples occur again."""
    repeated = repeats(np.frombuffer(facts.whole, np.uint64))
    if len(repeated):
        what = _("documents") if config.task == "text" else _("examples")
        message = _("{n_repeated} of {total} {what} occur before", len(repeated), facts.examples, what)
        yield noted(facts, "duplicates", message, len(repeated), lines_at(facts, repeated))


def ratio_findings(facts: SplitFacts) -> Iterator[Finding]:
    """Whether the sides of some pairs differ in length far more than those of the others."""
    ratios = log_ratios(facts)
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
    """Whether a text is a list of labels, labels are texts, or all are the same."""
    total, n_lines, n_labels = facts.examples, len(facts.source_lengths), len(facts.labels)
    if config.task == "text" and n_lines > LABEL_LINES and len(facts.different_lines) <= FEW_LINES:
        message = _(
            "{n_source_lengths:,} lines, and only {n_different_lines} different ones: is it a list of labels? "
            "Labels stand before their texts, with a tab between (--task classify)",
            n_lines,
            len(facts.different_lines),
        )
        yield noted(facts, "labels", message, len(facts.different_lines))
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


def shift_findings(facts: SplitFacts) -> Iterator[Finding]:
    """Whether one side of the pairs is moved against the other."""
    lengths, marks = (facts.source_lengths, facts.target_lengths), (facts.source_marks, facts.target_marks)
    if (shift := shifted(lengths, marks)) is not None:
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


def exchange_findings(config: DataConfig, facts: SplitFacts) -> Iterator[Finding]:
    """Pairs whose source stands where the target should: by the words of train, or where it is train by its own."""
    rows = [row for row in first_rows(config, facts.name, WORDS_FROM) if all(row.example)]
    train = None if facts.name == "train" else [row.example for row in first_rows(config, "train", WORDS_FROM)]
    others = None if train is None else [example for example in train if all(example)]
    places = exchanged([row.example for row in rows], others)
    if places:
        message = _("{n_places} of {n_rows} pairs seem to have their columns exchanged", len(places), len(rows))
        lines = (rows[place].line for place in places[:SHOWN_LINES])
        is_error = len(places) > LEAK_LIMIT * len(rows)
        yield noted(facts, "exchanged", message, len(places), lines, is_error=is_error)


def across(config: DataConfig, train: SplitFacts, other: SplitFacts) -> Iterator[Finding]:
    """Findings about val or test beside train."""
    total = other.examples
    if not total:
        return
    leaked = found_in(other.whole, train.whole)
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
    known = np.setdiff1d(found_in(other.source, train.source), leaked)
    if config.task == "pairs" and len(known):
        message = _(
            "{n_known} of {total} sources of {other} occur in train with another target", len(known), total, other.name
        )
        yield noted(other, "known sources", message, len(known), lines_at(other, known))
    unseen = sorted(set(other.labels) - set(train.labels))
    if unseen:
        message = _("{other} has labels that train never shows: {unseen}", other.name, ", ".join(unseen[:SHOWN_LINES]))
        yield noted(other, "labels", message, len(unseen), is_error=True)


def repeats(hashes: np.ndarray) -> np.ndarray:
    """The places of all but the first of equal numbers."""
    order = np.argsort(hashes, kind="stable")
    again = hashes[order][1:] == hashes[order][:-1]
    return np.sort(order[1:][again])


def found_in(these: array[int], those: array[int]) -> np.ndarray:
    """Where in `these` something stands that is in `those` too."""
    return np.flatnonzero(np.isin(np.frombuffer(these, np.uint64), np.frombuffer(those, np.uint64)))


def log_ratios(facts: SplitFacts) -> np.ndarray:
    """The logarithm of target length over source length, example by example."""
    return log_ratio(*(np.frombuffer(lengths, np.uint64) for lengths in (facts.source_lengths, facts.target_lengths)))


def lines_at(facts: SplitFacts, places: np.ndarray) -> tuple[int, ...]:
    """The first few line numbers of these examples."""
    return tuple(facts.lines[int(place)] for place in places[:SHOWN_LINES])


def texts_of(config: DataConfig, split: Split) -> Iterator[str]:
    """The texts of a split, up to as many as words are counted in."""
    for row in first_rows(config, split, WORDS_FROM):
        yield from row.example if config.task == "pairs" else [source_of(config.task, row.example)]


def unknown_shares(config: DataConfig, kind: str, names: Iterable[str]) -> dict[str, float]:
    """The share of each split's tokens that a vocabulary learned from train does not know."""
    tokenizer = Tokenizer.train(kind, texts_of(config, "train"), WORDS_KEPT)
    shares = {}
    for name in names:
        words = unknown = 0
        for text in texts_of(config, name):  # type: ignore[arg-type]
            ids = tokenizer.encode(text)
            words, unknown = words + len(ids), unknown + ids.count(UNK)
        if words:
            shares[name] = unknown / words
    return shares


def holds_single_words(config: DataConfig) -> bool:
    """Whether most sources of pairs are a word each (spelling to sound, inflection), of which a new one is new as a whole. Text
    without blanks in Chinese characters is none."""
    rows = first_rows(config, "train", SINGLE_FROM) if config.task == "pairs" else []
    sources = [row.example[0].split() for row in rows]
    words = [words[-1] for words in sources if len(words) == 1 or (words and config.features_field is not None)]
    return len(words) > len(sources) / 2 and not any(map(HAN_RUN.search, words))


def measure_unknown(config: DataConfig, report: DoctorReport) -> None:
    """The share of words of val and test that train does not know; of characters, where Chinese meets a missing jieba."""
    for kind in ("char",) if holds_single_words(config) else ("word", "char"):
        try:
            report.unknown = unknown_shares(config, kind, [name for name in report.splits if name != "train"])
            report.tokenizer = kind
            break
        except UserError:
            continue  # no jieba; or a file that cannot be read, which has been found already
    for name, share in report.unknown.items():
        if share > UNKNOWN_NOTICE:
            what = "words" if report.tokenizer == "word" else "characters"
            message = _("{share:.1%} of the {what} of {name} never occur in train", share, what, name)
            if share > FOREIGN_LIMIT:
                message += "; is it in another language?"
            report.findings.append(Finding("warning", name, "unknown", message, round(share * 100)))
