"""Cleaning of pairs: what can be repaired is, what teaches wrong things is taken out and kept in a file beside, with the rule.

The pairs are held in memory, some 500 bytes each. Dual conditional cross-entropy (Junczys-Dowmunt, 2018, "Dual conditional
cross-entropy filtering of noisy parallel corpora", WMT): two models, one for each direction, should find a good pair likely, and
about equally so. Of a loss alone one cannot say whether the partner is wrong or the sentence hard, so each is taken against that
of the same sentence beside a stranger's. With H the mean loss of a word, and s', t' of another pair,

    forward = H(t | s') - H(t | s)      backward = H(s | t') - H(s | t)      score = forward + backward - |forward - backward| / 2
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.cleaning.alignment import Pair, border
from glassformer.data.cleaning.repair import REPAIRS
from glassformer.data.cleaning.rules import RULES, Rule, RuleMatch, below_border, beyond, language_codes
from glassformer.data.files import BadLine, ReadContext, numbered_lines
from glassformer.data.origins import origins_of
from glassformer.data.readers import records_of
from glassformer.data.records import FORMATS, field_of
from glassformer.data.sources import all_rows
from glassformer.errors import UserError, install_hint
from glassformer.language import _
from glassformer.screen import watched

SHOWN = 5  # pairs of each rule in the report
TOLD = 0.7  # of the pairs must look better than half of the wrong ones, or two runs know nothing of them
NEEDED = ("ftfy", "datasketch", "py3langid")
Losses = Callable[[Sequence[Pair]], Sequence[float | None]]
"""A model's mean loss of a word of the target of each pair, in nats; None of a pair it cannot read."""


class Removed(NamedTuple):
    """A pair that a rule took (as the repairs had left it) or a repair changed (as it was), the name of that, and the line it
    stands on; of a line that cannot be read, why."""

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


@dataclass
class Cleaned:
    """What a cleaning left, what it took and changed, and what each rule did."""

    read: int
    kept: list[Pair] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    repaired: list[Removed] = field(default_factory=list)
    columns: dict[int, list[str]] = field(default_factory=dict)  # behind the pair on some lines of a TSV
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

    def row(self, one: Removed) -> list[object]:
        """What was taken or changed, as a row of a TSV, with all columns it had."""
        return [*one, *self.columns.get(one.line, ())]

    def rows(self) -> Iterator[list[str]]:
        """The pairs that are left, with all columns they had. Where documents are parted by blank lines, one stands wherever two
        pairs were not neighbours."""
        last = 0
        for line, pair in zip(self.lines, self.kept, strict=True):
            if self.has_documents and last and line != last + 1:
                yield []
            yield [*pair, *self.columns.get(line, ())]
            last = line

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: counts and examples; the pairs themselves are in files of their own."""
        counts = {"read": self.read, "kept": len(self.kept), "removed": len(self.removed)}
        counts["repaired"] = len(self.repaired)
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
                out += ["", f"## {name}", ""] + ["    " + " | ".join(example) for example in tally.examples]
            if tally.left:
                out += ["", "Just left:", ""] + ["    " + " | ".join(pair) for pair in tally.left]
        return "\n".join(out) + "\n"


def as_tsv(rows: Iterable[Iterable[object]]) -> str:
    """Rows with tabs between their cells; a cell is one line and has no tab."""
    return "".join("\t".join(" ".join(str(cell).split()) for cell in row) + "\n" for row in rows)


def need_extra() -> None:
    """A sentence that says how to get what is missing, before anything is read."""
    for module in NEEDED:
        try:
            importlib.import_module(module)
        except ImportError:
            raise UserError(
                "cleaning needs {module}; install it with: {command}", module, install_hint("clean")
            ) from None


def repaired(pair: Pair, line: int, cleaned: Cleaned) -> Pair:
    """The pair with all that can be put right."""
    for name, tally in cleaned.repairs.items():
        fix = REPAIRS[name]
        fixed = fix(pair[0]), fix(pair[1])
        if fixed != pair:
            tally.count += 1
            tally.examples += [(str(line), *pair, *fixed)] * (len(tally.examples) < SHOWN)
            cleaned.repaired.append(Removed(name, line, *pair))
        pair = fixed
    return pair


def further_columns(config: DataConfig) -> dict[int, list[str]]:
    """What stands behind the pairs of a TSV, by line."""
    (origin,) = origins_of(config, "train")
    cells = ((n, line.split("\t")[2:]) for n, line in numbered_lines(origin.path, ReadContext(lambda problem: None)))
    return {number: behind for number, behind in cells if behind}


def column_scores(config: DataConfig, column: str) -> dict[int, float]:
    """What other programs wrote beside the pairs: of each line the number in a column of a TSV (counted from 1), or in a field of
    records."""
    (origin,) = origins_of(config, "train")
    context = ReadContext(lambda problem: None)  # complained of where the pairs were read
    found: dict[int, float] = {}
    values: Any
    if origin.format in FORMATS:
        values = (
            (n, field_of(record, column, origin.path, n, context.complain)) for n, record in records_of(origin, context)
        )
    elif origin.target is None and column.isdecimal():
        rows = ((number, line.split("\t")) for number, line in numbered_lines(origin.path, context))
        values = ((n, cells[int(column) - 1] if 0 < int(column) <= len(cells) else None) for n, cells in rows)
    else:
        raise UserError("--score-column is the number of a column of a TSV, or the name of a field of records")
    for number, value in values:
        try:
            found[number] = float(value)
        except (TypeError, ValueError):
            continue
    return found


def by_column(scores: dict[int, float], cleaned: Cleaned, least: float) -> Rule:
    """Pairs whose score, by another program, is below `least`."""

    def rule(pairs: Sequence[Pair], languages: Sequence[str]) -> RuleMatch:
        missing = next((line for line in cleaned.lines if line not in scores), None)
        if missing is not None:
            raise UserError("line {line} has no number in the column of scores", missing)
        return beyond(np.array([scores[line] for line in cleaned.lines]), least, f"< {least:g}")

    return rule


def by_two_models(forward: Losses, backward: Losses) -> Rule:
    """Pairs that two models, one each way, find unlikely or far from equally likely. The border is set by pairs that are wrong
    for certain, as in alignment.py. A pair that a model cannot read is left to the other rules."""

    def losses(pairs: Sequence[Pair], by: int) -> Any:
        """Of each source with the target `by` places on: forward and backward."""
        moved = [
            (source, target) for (source, _own), (_its, target) in zip(pairs, [*pairs[by:], *pairs[:by]], strict=True)
        ]
        both = forward(moved), backward([(target, source) for source, target in moved])
        return np.array([[math.nan if loss is None else loss for loss in way] for way in both])

    def scores(own: Any, stranger: Any) -> Any:
        """Each target's stranger is the source one place before its own, each source's the target one place on."""
        there, back = np.roll(stranger[0], 1) - own[0], stranger[1] - own[1]
        return there + back - abs(there - back) / 2

    def rule(pairs: Sequence[Pair], languages: Sequence[str]) -> RuleMatch:
        own, next_one, second = (losses(pairs, by) for by in range(3))
        right, wrong = scores(own, next_one), scores(next_one, second)
        known, known_wrong = right[~np.isnan(right)], wrong[~np.isnan(wrong)]
        if not len(known_wrong):
            return beyond(np.ones(len(pairs)), 0.0, "")
        told = float((known > np.median(known_wrong)).mean())
        if told < TOLD:
            raise UserError(
                "--score: by these two runs {told:.0%} of the pairs look better than half of those that are wrong for certain, "
                "and by guessing 50% would; are they trained to the end, the first from source to target and the second back?",
                told=told,
            )
        return below_border(np.where(np.isnan(right), math.inf, right), border(known, known_wrong))

    return rule


def clean(
    config: DataConfig,
    *,
    languages: Sequence[str] = (),
    without: Collection[str] = (),
    column: str | None = None,
    least: float = 0.0,
    models: tuple[Losses, Losses] | None = None,
) -> Cleaned:
    """The pairs of data.train without what the rules take. `languages`: of source and target, where they are not to be found out;
    `without`: rules and repairs to be left out; `column` and `least`: scores of another program, and the lowest that is good."""
    need_extra()
    languages = language_codes(languages)
    if unknown := sorted(set(without) - {*RULES, *REPAIRS}):
        raise UserError("there is no rule {name!r}; there are {known}", unknown[0], ", ".join({**REPAIRS, **RULES}))
    cleaned = Cleaned(0)
    unreadable = cleaned.rules["unreadable"] = Tally(_("the line cannot be read"))

    def complain(problem: BadLine) -> None:
        if problem.line is None:
            raise problem
        unreadable.count += 1
        unreadable.examples += [(str(problem.line), str(problem))] * (len(unreadable.examples) < SHOWN)
        cleaned.removed.append(Removed("unreadable", problem.line, str(problem), ""))

    wide: list[BadLine] = []
    rows = list(all_rows(config, "train", ReadContext(complain, wide.append)))
    cleaned.read = len(rows) + unreadable.count
    if not cleaned.read:
        raise UserError("{names} holds no pairs", ", ".join(str(o.path) for o in origins_of(config, "train")))
    cleaned.lines = [row.line for row in rows]
    cleaned.columns = further_columns(config) if wide else {}
    is_lines = all(origin.format not in (*FORMATS, "datasets") for origin in origins_of(config, "train"))
    cleaned.has_documents = is_lines and cleaned.read < max((*cleaned.lines, *(bad.line for bad in cleaned.removed)))
    cleaned.repairs = {name: Tally(_("repaired")) for name in REPAIRS if name not in without}
    pairs = watched((row.example for row in rows), _("repairing"), len(rows), every=1000)
    cleaned.kept = [repaired(pair, line, cleaned) for pair, line in zip(pairs, cleaned.lines, strict=True)]
    rules = {name: rule for name, rule in RULES.items() if name not in without}
    if column is not None:
        scores = column_scores(config, column)
        rules["score"] = _("another program's score is too low"), by_column(scores, cleaned, least)
    if models is not None:
        rules["models"] = _("two models find it unlikely, or do not agree"), by_two_models(*models)
    for name, (why, rule) in watched(rules.items(), _("cleaning"), len(rules)):
        cleaned.take(name, why, rule, languages)
    return cleaned
