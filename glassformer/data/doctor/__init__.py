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

from collections.abc import Sequence
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.doctor.drawing import picture, show
from glassformer.data.doctor.facts import Finding, Report, SplitFacts, examine
from glassformer.data.doctor.findings import across, inside, measure_unknown
from glassformer.data.doctor.roles import arrange
from glassformer.data.origins import SPLITS, origins_of


def check(files: Sequence[str | Path], task: str | None = None, **fields: str) -> Report:
    """Look at files as training would read them: train, val and test by their names, a pair of files as aligned lines.

    `task` is guessed where it is not given: two aligned files or a tab in the first line are pairs, all else is text.
    `fields` are those of DataConfig that name fields of JSONL and Parquet, such as source_field="en".
    """
    return check_config(arrange([Path(file) for file in files], task, fields))


def check_config(config: DataConfig) -> Report:
    report = Report(config.task, {}, [], {}, "word")
    for split in SPLITS:
        if origins_of(config, split):
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


__all__ = ["Finding", "Report", "SplitFacts", "check", "check_config", "picture", "show"]
