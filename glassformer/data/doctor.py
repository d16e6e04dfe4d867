"""A look at data before a night is spent on it: what would stop the training, and what would spoil it.

It reads with the eyes of training (`sources`), only it does not stop at the first bad line. Findings are of two kinds. An
error means that training on this would be a mistake:

    unreadable lines    not UTF-8, one column only, line counts that disagree, broken JSON: training would stop there
    nothing to learn    a file without a single whole example; fewer than two labels
    unknown labels      in val or test, which training never saw
    leaked              more than 1% of val or test stands word for word in train: the score would be of memory
    copies              more than half of the pairs have two identical sides: one file twice, or the wrong one
    foreign             more than half of the words of val or test never occur in train: another language

A warning is for a person to weigh: empty sides (training passes them over), some identical sides, duplicates, a few
leaked examples or known sources, pairs whose sides differ in length far more than the others, more than 5% unknown words.

What is remembered of an example is 40 bytes, hashes and lengths, never its text. Equality is of a 64-bit hash.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.files import BadLine, numbered_lines
from glassformer.data.sources import SPLITS, Row, Split, all_rows, given_origin
from glassformer.errors import UserError
from glassformer.text.tokenizer import UNK, Tokenizer

SHOWN_LINES = 5
RATIO_LIMIT = 4.0  # times the usual ratio of lengths, either way
SMOOTHING = 5  # characters added to both sides of a ratio, as short sentences vary much
LEAK_LIMIT, COPY_LIMIT, FOREIGN_LIMIT = 0.01, 0.5, 0.5  # above: errors
IDENTICAL_NOTICE, UNKNOWN_NOTICE = 0.01, 0.05  # above: warnings
WORDS_FROM = 100_000  # so many examples of train teach the words, and as many of val and test are held against them
WORDS_KEPT = 50_000


@dataclass(frozen=True)
class Finding:
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
    source_lengths: array[int] = field(
        default_factory=lambda: array("Q")
    )  # characters; of lines, where the task is text
    target_lengths: array[int] = field(default_factory=lambda: array("Q"))  # pairs only
    empty: list[int] = field(default_factory=list)  # lines, the first few; the counts are beside them
    identical: list[int] = field(default_factory=list)
    n_empty: int = 0
    n_identical: int = 0
    labels: Counter[str] = field(default_factory=Counter)

    @property
    def examples(self) -> int:
        return len(self.lines)


@dataclass
class Report:
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
        return {
            "task": self.task,
            "mistake": self.mistake,
            "splits": {
                name: {
                    "examples": facts.examples,
                    "source_length": quantiles(facts.source_lengths),
                    "target_length": quantiles(facts.target_lengths),
                    "labels": dict(sorted(facts.labels.items())),
                    "unknown": self.unknown.get(name),
                }
                for name, facts in self.splits.items()
            },
            "findings": [vars(finding) | {"lines": list(finding.lines)} for finding in self.findings],
        }


def check(files: Sequence[str | Path], task: str | None = None, **fields: str) -> Report:
    """Look at files as training would read them: train, val and test by their names, a pair of files as aligned lines.

    `task` is guessed where it is not given: two aligned files or a tab in the first line are pairs, all else is text.
    `fields` are those of DataConfig that name fields of JSONL and Parquet, such as source_field="en".
    """
    return check_config(arrange([Path(file) for file in files], task, fields))


def check_config(config: DataConfig) -> Report:
    report = Report(config.task, {}, [], {}, "word")
    for split in SPLITS:
        if given_origin(config, split) is not None:
            report.splits[split] = examine(config, split, report.findings)
    for facts in report.splits.values():
        report.findings += inside(config, facts)
    train = report.splits.get("train")
    others = [facts for name, facts in report.splits.items() if name != "train"]
    if train is not None and train.examples:
        for facts in others:
            report.findings += across(config, train, facts)
        if any(facts.examples for facts in others):
            measure_unknown(config, report)
    report.findings.sort(key=lambda finding: (finding.level, SPLITS.index(finding.split)))  # type: ignore[arg-type]
    return report


# Which file is what

ROLES = {
    "train": re.compile(r"(^|[^a-z])train(ing)?([^a-z]|$)"),
    "val": re.compile(r"(^|[^a-z])(val|valid|validation|dev)([^a-z]|$)"),
    "test": re.compile(r"(^|[^a-z])(test|eval)([^a-z]|$)"),
}


def arrange(files: Sequence[Path], task: str | None, fields: dict[str, str]) -> DataConfig:
    """A data configuration in which each file has its role, by its name or else by its place."""
    for file in files:
        if not file.exists():
            raise UserError(f"there is no file {file}")
    roles: dict[str, list[Path]] = {}
    nameless: list[Path] = []
    for file in files:
        role = next((role for role, pattern in ROLES.items() if pattern.search(file.name.lower())), None)
        (nameless if role is None else roles.setdefault(role, [])).append(file)
    aligned = task in (None, "pairs") and all(map(is_plain_lines, files))
    free = [role for role in SPLITS if role not in roles]
    size = 2 if aligned and len(nameless) % 2 == 0 else 1
    for role, start in zip(free, range(0, len(nameless), size), strict=False):
        roles[role] = nameless[start : start + size]
    if not files or sum(map(len, roles.values())) < len(files) or any(len(group) > 2 for group in roles.values()):
        raise UserError(
            "give one file, or two aligned ones, for each of train, val and test; "
            f"{', '.join(file.name for file in files) or 'nothing'} cannot be told apart by name"
        )
    pairs_of_files = [group for group in roles.values() if len(group) == 2]
    if task is None:
        first = files[0]
        records = first.name.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".parquet"))
        task = "pairs" if pairs_of_files or records or (first.is_file() and has_tab(first)) else "text"
    if pairs_of_files and task != "pairs":
        names = " and ".join(file.name for file in pairs_of_files[0])
        raise UserError(f"{names} would both be {task} for the same split; give them one by one")
    settings: dict[str, Any] = dict(fields)
    for role, group in roles.items():
        settings[role] = str(group[0])
        if len(group) == 2:
            settings[f"{role}_target"] = str(group[1])
    if pairs_of_files:
        settings["format"] = "lines"
    return DataConfig(task=task, **settings)  # type: ignore[arg-type]


def first_line(path: Path) -> str:
    lines = (line for _, line in numbered_lines(path, lambda _: None) if line.strip())
    return next(lines, "")


def has_tab(path: Path) -> bool:
    return "\t" in first_line(path)


def is_plain_lines(path: Path) -> bool:
    """Neither a table nor records nor a folder: possibly one of two aligned files."""
    suffixes = (".tsv", ".jsonl", ".ndjson", ".parquet")
    return path.is_file() and not path.name.removesuffix(".gz").endswith(suffixes) and not has_tab(path)


# One pass over each split


def hash_of(*texts: str) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(text.encode("utf-8", errors="surrogatepass") + b"\x00")
    return int.from_bytes(digest.digest(), "big")


def examine(config: DataConfig, split: Split, findings: list[Finding]) -> SplitFacts:
    facts = SplitFacts(split)
    problems: dict[str, list[BadLine]] = {}
    counts: Counter[str] = Counter()

    def complain(problem: BadLine) -> None:
        counts[problem.kind] += 1
        if counts[problem.kind] <= SHOWN_LINES:
            problems.setdefault(problem.kind, []).append(problem)

    try:
        rows = all_rows(config, split, complain)
        for row in whole_documents(rows, facts.source_lengths) if config.task == "text" else rows:
            remember(config.task, facts, row)
    except UserError as error:  # the file as a whole cannot be read on
        findings.append(Finding("error", split, "unreadable", str(error), 1))
    for kind, found in problems.items():
        more = f" (and {counts[kind] - 1} more like it)" if counts[kind] > 1 else ""
        lines = tuple(problem.line for problem in found if problem.line is not None)
        findings.append(Finding("error", split, kind, f"{found[0]}{more}", counts[kind], lines))
    return facts


def whole_documents(rows: Iterable[Row], line_lengths: array[int]) -> Iterator[Row]:
    """A document's pieces as one row, which is its hash; of its text the lengths of lines are kept."""
    digest, documents = hashlib.blake2b(digest_size=8), 0
    for row in rows:
        digest.update(row.example.text.encode("utf-8", errors="surrogatepass"))
        line_lengths.extend(map(len, row.example.text.splitlines()))
        if row.example.ends:
            documents += 1
            yield Row(int.from_bytes(digest.digest(), "big"), "", row.path, documents)
            digest = hashlib.blake2b(digest_size=8)


def remember(task: str, facts: SplitFacts, row: Row) -> None:
    if task == "text":
        source = whole = row.example
    else:
        first, second = row.example
        text = " ".join(first) if task == "tag" else first
        if not first or not second:
            facts.n_empty += 1
            facts.empty += [row.line] * (len(facts.empty) < SHOWN_LINES)
            return
        facts.source_lengths.append(len(text))
        source = hash_of(text)
        if task == "pairs":
            whole = hash_of(text, second)
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


# What the numbers say


def inside(config: DataConfig, facts: SplitFacts) -> Iterator[Finding]:
    """Findings about one split alone."""
    name, total = facts.name, facts.examples
    if total == 0:
        yield Finding("error", name, "nothing", f"{name} holds no example to learn from", 0)
    if facts.n_empty:
        message = f"{facts.n_empty} of {total + facts.n_empty} examples have an empty side and will be passed over"
        yield Finding("warning", name, "empty", message, facts.n_empty, tuple(facts.empty))
    if total and facts.n_identical > IDENTICAL_NOTICE * total:
        level: Literal["error", "warning"] = "error" if facts.n_identical > COPY_LIMIT * total else "warning"
        message = f"{facts.n_identical} of {total} pairs have two identical sides"
        yield Finding(level, name, "identical", message, facts.n_identical, tuple(facts.identical))
    repeated = repeats(np.frombuffer(facts.whole, np.uint64)) if total else np.zeros(0, np.int64)
    if len(repeated):
        what = "documents" if config.task == "text" else "examples"
        message = f"{len(repeated)} of {total} {what} occur before"
        yield Finding("warning", name, "duplicates", message, len(repeated), lines_at(facts, repeated))
    if config.task == "pairs" and total:
        strange = ratio_outliers(facts)
        if len(strange):
            message = f"{len(strange)} of {total} pairs differ in length {RATIO_LIMIT:g} times more than is usual here"
            yield Finding("warning", name, "ratio", message, len(strange), lines_at(facts, strange))
    if config.task in ("classify", "tag") and name == "train" and total and len(facts.labels) < 2:
        yield Finding("error", name, "labels", f"all examples have the label {next(iter(facts.labels))!r}", total)


def across(config: DataConfig, train: SplitFacts, other: SplitFacts) -> Iterator[Finding]:
    """Findings about val or test beside train."""
    total = other.examples
    if not total:
        return
    leaked = found_in(other.whole, train.whole)
    if len(leaked):
        level: Literal["error", "warning"] = "error" if len(leaked) > LEAK_LIMIT * total else "warning"
        message = f"{len(leaked)} of {total} examples of {other.name} occur in train ({len(leaked) / total:.1%})"
        yield Finding(level, other.name, "leaked", message, len(leaked), lines_at(other, leaked))
    known = np.setdiff1d(found_in(other.source, train.source), leaked)
    if config.task == "pairs" and len(known):
        message = f"{len(known)} of {total} sources of {other.name} occur in train with another target"
        yield Finding("warning", other.name, "known sources", message, len(known), lines_at(other, known))
    unseen = sorted(set(other.labels) - set(train.labels))
    if unseen:
        message = f"{other.name} has labels that train never shows: {', '.join(unseen[:SHOWN_LINES])}"
        yield Finding("error", other.name, "labels", message, len(unseen))


def repeats(hashes: np.ndarray) -> np.ndarray:
    """The places of all but the first of equal numbers."""
    order = np.argsort(hashes, kind="stable")
    again = hashes[order][1:] == hashes[order][:-1]
    return np.sort(order[1:][again])


def found_in(these: array[int], those: array[int]) -> np.ndarray:
    return np.flatnonzero(np.isin(np.frombuffer(these, np.uint64), np.frombuffer(those, np.uint64)))


def log_ratios(facts: SplitFacts) -> np.ndarray:
    source, target = (np.frombuffer(x, np.uint64).astype(float) for x in (facts.source_lengths, facts.target_lengths))
    return np.log((target + SMOOTHING) / (source + SMOOTHING))


def ratio_outliers(facts: SplitFacts) -> np.ndarray:
    ratios = log_ratios(facts)
    return np.flatnonzero(np.abs(ratios - np.median(ratios)) > np.log(RATIO_LIMIT))


def lines_at(facts: SplitFacts, places: np.ndarray) -> tuple[int, ...]:
    return tuple(facts.lines[int(place)] for place in places[:SHOWN_LINES])


def quantiles(lengths: array[int]) -> dict[str, int]:
    if not lengths:
        return {}
    values = np.frombuffer(lengths, np.uint64)
    names = {"median": 0.5, "p95": 0.95, "max": 1.0}
    return {name: int(np.quantile(values, q, method="higher")) for name, q in names.items()}


def texts_of(config: DataConfig, split: Split) -> Iterator[str]:
    for row in itertools.islice(all_rows(config, split, lambda _: None), WORDS_FROM):
        if config.task == "text":
            yield row.example.text
        elif config.task == "pairs":
            yield from row.example
        else:
            yield row.key


def unknown_shares(config: DataConfig, kind: str, names: Iterable[str]) -> dict[str, float]:
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


def measure_unknown(config: DataConfig, report: Report) -> None:
    """The share of words of val and test that train does not know; of characters, where Chinese meets a missing jieba."""
    for kind in ("word", "char"):
        try:
            report.unknown = unknown_shares(config, kind, [name for name in report.splits if name != "train"])
            report.tokenizer = kind
            break
        except UserError:
            continue  # no jieba; or a file that cannot be read, which has been found already
    for name, share in report.unknown.items():
        if share > UNKNOWN_NOTICE:
            level: Literal["error", "warning"] = "error" if share > FOREIGN_LIMIT else "warning"
            what = "words" if report.tokenizer == "word" else "characters"
            message = f"{share:.1%} of the {what} of {name} never occur in train"
            report.findings.append(Finding(level, name, "unknown", message, round(share * 100)))


# On paper


def show(report: Report, console: Any) -> None:
    """A table of the splits, then the findings, errors first."""
    from rich.markup import escape
    from rich.table import Table

    two_sides = report.task == "pairs"
    table = Table(title=f"Data for {report.task} (lengths in characters: median, 95%, longest)", title_justify="left")
    table.add_column("split")
    table.add_column("examples", justify="right")
    for side in ("source", "target") if two_sides else ("line" if report.task == "text" else "length",):
        table.add_column(side, justify="right")
    if not two_sides and report.task != "text":
        table.add_column("labels", justify="right")
    table.add_column(f"unknown {report.tokenizer}s", justify="right")
    for name, facts in report.splits.items():
        lengths = [facts.source_lengths, facts.target_lengths] if two_sides else [facts.source_lengths]
        cells = [" / ".join(f"{value:,}" for value in quantiles(x).values()) for x in lengths]
        if not two_sides and report.task != "text":
            cells.append(str(len(facts.labels)))
        unknown = report.unknown.get(name)
        table.add_row(name, f"{facts.examples:,}", *cells, "" if unknown is None else f"{unknown:.1%}")
    console.print(table)
    for finding in report.findings:
        mark = "[bold red]error  [/]" if finding.level == "error" else "[yellow]warning[/]"
        more = "…" if finding.count > len(finding.lines) else ""
        noun = "document" if report.task == "text" and finding.kind == "duplicates" else "line"
        where = f" [dim]({noun} {', '.join(map(str, finding.lines))}{more})[/]" if finding.lines else ""
        console.print(f"{mark} {finding.split}: {escape(finding.message)}{where}", highlight=False, soft_wrap=True)
    if not report.findings:
        console.print("[green]Nothing stands out.[/]")
    elif report.mistake:
        console.print("[bold red]Training on this would be a mistake.[/]")


def picture(report: Report) -> Any:
    """How long the examples are, a curve a side and split; and how the two sides of pairs compare."""
    from glassformer.plots import COLOURS, figure

    panels = 2 if report.task == "pairs" else 1
    fig, axes = figure(5.5 * panels, 3.6, ncols=panels, squeeze=False)
    axis = axes[0][0]
    curves: dict[str, np.ndarray] = {}
    for name, facts in report.splits.items():
        sides = (
            {"source": facts.source_lengths, "target": facts.target_lengths}
            if panels == 2
            else {"": facts.source_lengths}
        )
        curves |= {f"{name} {side}".strip(): np.frombuffer(x, np.uint64) for side, x in sides.items() if len(x)}
    longest = max((int(np.quantile(values, 0.995)) for values in curves.values()), default=0) + 1
    for (name, values), colour in zip(curves.items(), itertools.cycle(COLOURS), strict=False):
        shares = np.full(len(values), 1 / len(values))
        bins = np.linspace(0, longest, min(40, longest) + 1)
        axis.hist(np.minimum(values, longest), bins, weights=shares, histtype="step", color=colour, label=name)
    axis.set(
        title="Lengths",
        xlabel="characters (the last bar: that and more)",
        ylabel="share of lines" if report.task == "text" else "share of examples",
    )
    if curves:
        axis.legend(frameon=False)
    if panels == 2:
        axis = axes[0][1]
        for (name, facts), colour in zip(report.splits.items(), COLOURS, strict=False):
            if facts.examples:
                ratios = np.clip(log_ratios(facts) / np.log(2), -3, 3)
                shares = np.full(len(ratios), 1 / len(ratios))
                axis.hist(ratios, np.linspace(-3, 3, 49), weights=shares, histtype="step", color=colour, label=name)
        axis.set(title="Target against source", xlabel="log₂ of the ratio of lengths", ylabel="share of pairs")
        if any(facts.examples for facts in report.splits.values()):
            axis.legend(frameon=False)
    return fig
