"""What the trials of a claim say, as its file asks: conditions, tables and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from glassformer.lab.claims.claim import Claim, ConditionSpec, PanelSpec, Results, RowSpec, Settings
from glassformer.lab.verdict import Condition, Verdict, exactly, larger, smaller, verdict, within
from glassformer.language import _, in_both

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows of text under headings."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Judgement:
    """What was found of a claim: tables, and its conditions."""

    tables: tuple[Table, ...]
    conditions: tuple[Condition, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """By the rule of verdict.py."""
        return verdict(self.conditions)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "verdict": self.verdict,
            "conditions": [
                {**asdict(condition), "text": list(in_both(condition.text).values())} for condition in self.conditions
            ],
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


def side_values(results: Results, side: Any, key: str, common: Settings, like: int, facts: Facts) -> list[float]:
    """The values of one side of a condition: of the trials it names, or one number for every seed."""
    if isinstance(side, dict):
        own = {**common, **side}
        return results.values(own.pop("key", key), **own)
    return [float(facts[side] if isinstance(side, str) else side)] * like


def condition_of(claim: Claim, spec: ConditionSpec, results: Results, case: Settings, facts: Facts) -> Condition | None:
    """A condition for one case; None where this budget has no such trials."""
    text = _(spec.text, **claim.called(case, facts))
    if spec.rule == "exactly":
        own = {**case, **spec.ours}
        values = results.values(spec.key, **own) if spec.key else [0.0]
        told = spec.detail.format_map({"lowest": min(values), "highest": max(values), **facts})
        held = max(values) < spec.margin if spec.less_is_better else min(values) > spec.margin
        return exactly(text, bool(facts[spec.so]) if spec.so else held, told)
    ours = side_values(results, spec.ours, spec.key, case, 0, facts)
    theirs = side_values(results, spec.theirs, spec.key, case, len(ours), facts)
    if not ours or not theirs:
        return None
    if spec.learned_by and results.mean(spec.learned_by, **{**case, **spec.ours}) < (spec.learned or 0.0):
        return Condition(text, "open", "nothing was learned")
    if spec.ratio:
        ours, theirs = [a / b for a, b in zip(ours, theirs, strict=True)], [1.0] * len(ours)
    if spec.rule == "smaller":
        return smaller(text, ours, theirs, margin=spec.margin, unit=spec.unit)
    learned = None if spec.learned_by else spec.learned
    if spec.rule == "within":
        better = spec.less_is_better
        return within(text, ours, theirs, slack=spec.margin, unit=spec.unit, learned=learned, less_is_better=better)
    return larger(text, ours, theirs, margin=spec.margin, unit=spec.unit, learned=learned)


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
    conditions = [
        condition_of(claim, spec, results, {**block.where, **case}, facts)
        for block in claim.judge
        for case in results.cases(block.each, **block.where)
        for spec in block.condition
    ]
    tables = []
    for table in claim.table:
        rows = claim.function(table.source)(results) if table.source else []
        rows = [*rows, *(row for spec in table.rows for row in rows_of(spec, results, claim, facts))]
        columns = tuple(column.format_map(facts) for column in table.columns)
        tables.append(Table(table.title.format_map(facts), columns, tuple(rows)))
    notes = tuple(_(note, **facts) for note in claim.notes)
    return Judgement(tuple(tables), tuple(one for one in conditions if one is not None), notes)


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

    if claim.draw:
        return claim.function(claim.draw)(results)
    facts = facts_of(claim, results)
    parts = [
        panel_of(claim, spec, results, {**spec.where, **case}, facts)
        for spec in claim.panel
        for case in results.cases(spec.each, **spec.where)
    ]
    return panels(parts, across=claim.across)
