"""What the trials of a claim say, as its file asks: conditions, tables and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from glassformer.language import _, in_both
from glassformer_lab.claims.claim import Claim, ConditionSpec, PanelSpec, Results, RowSpec, Settings
from glassformer_lab.verdict import Condition, Verdict, better, exactly, verdict, verdict_told

Facts = Mapping[str, Any]
CEILING = 99.5  # percent; where both arms are there, a task was too easy to tell them apart


@dataclass(frozen=True)
class Table:
    """Rows of text under headings."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Part:
    """A claim, or one of the two or three that were made in one sentence: its conditions, and so a verdict of its own."""

    says: str  # empty: the whole claim
    conditions: tuple[Condition, ...]

    @property
    def verdict(self) -> Verdict:
        """By the rule of verdict.py."""
        return verdict(self.conditions)

    @property
    def told(self) -> str:
        """The verdict with its numbers."""
        return verdict_told(self.conditions)

    def to_dict(self) -> dict[str, Any]:
        """The part as a JSON-serialisable dict."""
        return {
            "says": in_both(self.says) if self.says else {},
            "verdict": self.verdict,
            "told": in_both(self.told),
            "conditions": [{**asdict(one), "text": list(in_both(one.text).values())} for one in self.conditions],
        }


@dataclass(frozen=True)
class Judgement:
    """What was found of a claim: tables, and its parts with their conditions."""

    tables: tuple[Table, ...]
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = field(default=())

    def told(self) -> dict[str, str]:
        """The verdict of every part with its numbers, in both languages."""
        each = [in_both(part.told) for part in self.parts]
        return {language: "; ".join(one[language] for one in each) for language in ("en", "zh")}

    def to_dict(self) -> dict[str, Any]:
        """The judgement as a JSON-serialisable dict."""
        return {
            "verdict": self.told(),
            "parts": [part.to_dict() for part in self.parts],
            "tables": [asdict(table) for table in self.tables],
            "notes": [in_both(note) for note in self.notes],
        }


def facts_of(claim: Claim, results: Results) -> Facts:
    """The numbers that the module computes from all trials, where it does."""
    try:
        compute = claim.function("facts")
    except AttributeError:
        return {}
    return compute(results)  # type: ignore[no-any-return]


def side_values(
    results: Results, spec: ConditionSpec, side: Any, common: Settings, like: int, facts: Facts
) -> list[float]:
    """The values of one side of a condition: of the trials it names (with `tune`, at the value of that setting which served this
    side best on validation examples), a fact with a number for each seed, or one number for all of them."""
    if not isinstance(side, dict):
        value = facts[side] if isinstance(side, str) else side
        return value if isinstance(value, list) else [float(value)] * like
    own = {**common, **side}
    key = own.pop("key", spec.key)
    if spec.tune and results.where(**own):
        own[spec.tune] = results.best(spec.tune, **own)
    return results.values(key, **own)


def ceiling_of(spec: ConditionSpec) -> float | None:
    """What both arms must reach for a condition to be void: nearly all right, or a loss below the margin, by which neither can be
    smaller then."""
    if not isinstance(spec.theirs, dict):
        return None
    return CEILING if spec.unit == "%" else spec.margin if (spec.rule, spec.unit) == ("smaller", " nats") else None


def condition_of(
    claim: Claim, spec: ConditionSpec, results: Results, case: Settings, facts: Facts, looks: int
) -> Condition | None:
    """A condition for one case; None where this budget has no such trials."""
    text = _(spec.text, **claim.called(case, facts))
    own = {**case, **(spec.ours if isinstance(spec.ours, dict) else {})}
    if spec.rule == "exactly":
        values = results.values(spec.key, **own) if spec.key else [0.0]
        told = spec.detail.format_map({"lowest": min(values), "highest": max(values), **facts})
        held = max(values) < spec.margin if spec.less_is_better else min(values) > spec.margin
        return exactly(text, bool(facts[spec.so]) if spec.so else held, told)
    ours = side_values(results, spec, spec.ours, case, 0, facts)
    theirs = side_values(results, spec, spec.theirs, case, len(ours), facts)
    if not ours or not theirs:
        return None
    if spec.learned_by and results.mean(spec.learned_by, **own) < float(spec.learned or 0.0):
        return Condition(text, "void", "nothing was learned")
    if spec.ratio:
        ours, theirs = [a / b for a, b in zip(ours, theirs, strict=True)], [1.0] * len(ours)
    learned = results.mean(spec.learned, **case) if isinstance(spec.learned, str) else spec.learned
    return better(
        text,
        ours,
        theirs,
        margin=-spec.margin if spec.rule == "within" else spec.margin,
        unit=spec.unit,
        less_is_better=spec.less_is_better or spec.rule == "smaller",
        learned=None if spec.learned_by else learned,
        ceiling=ceiling_of(spec),
        looks=looks,
    )


def cell_of(cell: str | dict[str, Any], results: Results, claim: Claim, case: Settings, facts: Facts) -> str:
    """The text of one cell of a row."""
    if isinstance(cell, str):
        return cell.format_map(claim.called(case, facts)).strip()
    own = {**case, **cell}
    key, digits, form = own.pop("key"), own.pop("digits", 1), own.pop("mean", "")
    times, over = own.pop("times", 1), own.pop("over", "")
    if not form:
        return results.mean_std(key, digits, **own)
    mean = results.mean(key, **own) / (results.mean(over, **own) if over else 1)
    return str(form.format(times * mean))


def rows_of(spec: RowSpec, results: Results, claim: Claim, facts: Facts) -> list[tuple[str, ...]]:
    """The rows that a table's file asks for."""
    return [
        tuple(cell_of(cell, results, claim, {**spec.where, **case}, facts) for cell in spec.cells)
        for case in results.cases(spec.each, **spec.where)
    ]


def judge(claim: Claim, results: Results) -> Judgement:
    """Tables and conditions of a claim, from its trials."""
    facts = facts_of(claim, results)
    asked: dict[str, list[tuple[ConditionSpec, Settings]]] = {}
    for block in claim.judge:
        for case in results.cases(block.each, **block.where):
            asked.setdefault(block.says, []).extend((spec, {**block.where, **case}) for spec in block.condition)
    parts = []
    for says, specs in asked.items():
        looks = sum(spec.rule != "exactly" for spec, _case in specs)
        judged = [condition_of(claim, spec, results, case, facts, looks) for spec, case in specs]
        parts.append(Part(_(says, **facts) if says else "", tuple(one for one in judged if one is not None)))
    tables = []
    for table in claim.table:
        rows = claim.function(table.source)(results) if table.source else []
        rows = [*rows, *(row for spec in table.rows for row in rows_of(spec, results, claim, facts))]
        columns = tuple(column.format_map(facts) for column in table.columns)
        tables.append(Table(table.title.format_map(facts), columns, tuple(rows)))
    notes = tuple(_(note, **facts) for note in claim.notes)
    return Judgement(tuple(tables), tuple(parts), notes)


def panel_of(claim: Claim, spec: PanelSpec, results: Results, case: Settings, facts: Facts) -> Any:
    """One panel of the figure, for one case."""
    from glassformer.plots.panels import BarPanel, LinePanel

    def named(template: str, own: Settings) -> str:
        return template.format_map(claim.called({**case, **own}, facts)).strip()

    title, up = named(spec.title, {}), spec.up
    level = spec.level and (
        float(facts[spec.level[0]] if isinstance(spec.level[0], str) else spec.level[0]),
        spec.level[1],
    )
    keys = spec.keys or {spec.key: spec.name}
    if spec.groups:
        groups = results.cases(spec.groups, **case)
        bars = {
            named(name, own): [results.values(key, **{**case, **own, **group}) for group in groups]
            for own in results.cases(spec.bars, **case)
            for key, name in keys.items()
        }
        return BarPanel(title, up, [named(spec.group, group) for group in groups], bars, level)
    if spec.source:
        lines = claim.function(spec.source)(results, **case)
    else:
        lines = {
            named(name, own): results.curves(spec.curve, **{**case, **own})
            if spec.curve
            else results.line(key, spec.x, **{**case, **own})
            for own in results.cases(spec.lines, **case)
            for key, name in keys.items()
        }
    return LinePanel(title, named(spec.across, {}), up, lines, spec.log, level, spec.bottom)


def draw(claim: Claim, results: Results) -> Any:
    """The claim's figure."""
    from glassformer.plots.panels import panels

    facts = facts_of(claim, results)
    parts = [
        panel_of(claim, spec, results, {**spec.where, **case}, facts)
        for spec in claim.panel
        for case in results.cases(spec.each, **spec.where)
    ]
    return panels(parts, across=claim.across)
