"""A look at data before a night is spent on it: what would stop the training, and what would spoil it.

It reads with the eyes of training (`sources`), only it does not stop at the first bad line. Findings are of two kinds. An
error means that training on this would be a mistake:

    unreadable lines    not UTF-8, one column only, line counts that disagree, broken JSON: training would stop there
    nothing to learn    a file without a single whole example; fewer than two labels
    unknown labels      in val or test, which training never saw
    leaked              more than 1% of val or test stands word for word in train: the score would be of memory
    copies              more than half of the pairs have two identical sides: one file twice, or the wrong one
    shifted             one side is moved against the other by a line or two, from some line on (see cleaning/alignment.py)
    exchanged           more than 1% of the pairs have their columns exchanged (of val and test: by the words of train); labels
                        that look like texts
    line ends           CR alone, as on old Macintoshes
    NUL                 a binary file, or UTF-16; more than 5% replacement characters, control characters, HTML, mojibake,
                        zero-width blanks or lines without end (oddities.py)

A warning is for a person to weigh: empty sides (training passes them over), some identical sides, duplicates, a few
leaked examples or known sources, a few exchanged pairs, a third column, traces of HTML or of a wrong encoding, pairs whose
sides differ in length far more than the others.

What is remembered of an example is 40 bytes, hashes and lengths, never its text. Equality is of a 64-bit hash of the text
without case and blanks, as where splits are carved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.doctor.facts import SplitFacts, examine
from glassformer.data.doctor.findings import DoctorReport, Finding, across, inside, quantiles
from glassformer.data.doctor.roles import arrange, fields_in_words
from glassformer.data.origins import origins_of
from glassformer.data.splits import SPLITS
from glassformer.errors import UserError
from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table

TASKS = {"pairs": _("pairs"), "text": _("text"), "classify": _("classify"), "tag": _("tag")}
LABELLED = _("length"), _("labels")
COLUMNS = {"pairs": (_("source"), _("target")), "text": (_("line"),), "classify": LABELLED, "tag": LABELLED}


def check(files: Sequence[str | Path], task: str | None = None, **fields: str) -> DoctorReport:
    """Look at files as training would read them: train, val and test by their names, a pair of files as aligned lines.

    `task` is guessed where it is not given: two aligned files, a .tsv or a tab in the first line are pairs, all else is text.
    `fields` are those of DataConfig that name fields of JSONL and Parquet, such as source_field="en".
    """
    return check_config(arrange([Path(file) for file in files], task, fields))


def check_config(config: DataConfig) -> DoctorReport:
    """Look at all that a configuration names, as training would read it."""
    if config.builtin is not None:
        raise UserError(
            "the built-in data {builtin!r} needs no check; `data check` is for files of your own", config.builtin
        )
    if not config.files("train"):
        raise UserError("there is no data to check: data.train is not set")
    splits: dict[str, SplitFacts] = {split: examine(config, split) for split in SPLITS if origins_of(config, split)}
    findings = [finding for facts in splits.values() for finding in inside(config, facts)]
    for name, facts in splits.items():
        if name != "train" and facts.examples and splits["train"].examples:
            findings += across(config, splits["train"], facts)
    findings.sort(key=lambda finding: (finding.level, SPLITS.index(finding.split)))  # type: ignore[arg-type]
    return DoctorReport(config.task, splits, findings)


def show(report: DoctorReport, console: Any) -> None:
    """A table of the splits, then the findings, errors first."""
    from rich.text import Text

    two_sides, has_labels = report.task == "pairs", report.task in ("classify", "tag")
    numbers = [_("examples"), *COLUMNS[report.task]]
    title = _("Data for {task} (lengths in characters: median, 95%, longest)", TASKS[report.task])
    table = make_table((_("split"), *((name, RIGHT) for name in numbers)), title=title)
    for name, facts in report.splits.items():
        lengths = [facts.source_lengths, facts.target_lengths] if two_sides else [facts.source_lengths]
        cells = [" / ".join(f"{value:,}" for value in quantiles(x).values()) for x in lengths]
        cells += [str(len(facts.labels))] * has_labels
        table.add_row(name, f"{facts.examples:,}", *cells)
    console.print(table)
    for finding in report.findings:
        bad = finding.level == "error"
        line = Text().append(localized(_("error  ") if bad else _("warning")), "bold red" if bad else "yellow")
        more = "…" if finding.count > len(finding.lines) else ""
        lines = ", ".join(map(str, finding.lines)) + more
        is_document = report.task == "text" and finding.kind == "duplicates"
        where = _(" (document {numbers})", lines) if is_document else _(" (line {numbers})", lines)
        line.append(f" {finding.split}: {localized(finding.message)}")
        console.print(line.append(localized(where) if finding.lines else "", "dim"), soft_wrap=True)
    if not report.findings:
        console.print(_("Nothing stands out."), style="green")
    elif report.mistake:
        console.print(_("Training on this would be a mistake."), style="bold red")


__all__ = [
    "DoctorReport",
    "Finding",
    "SplitFacts",
    "arrange",
    "check",
    "check_config",
    "fields_in_words",
    "show",
]
