"""The result of an ablation as Markdown, JSON and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.plots.panels import Line, LinePanel, panels
from glassformer.runs.folder import RunFolder
from glassformer_lab.report import markdown_table, write_report
from glassformer_lab.sweep.scores import VariantRow


@dataclass(frozen=True)
class SweepReport:
    """An ablation that was carried out."""

    name: str
    about: str
    command: str
    rows: list[VariantRow]  # the base first
    metric: str  # the score the recipe goes by
    folders: Mapping[str, Sequence[Path]]  # of each variant's trials
    facts: dict[str, Any]  # machine, date, versions, budget

    @property
    def names(self) -> list[str]:
        """The scores there are, that of the recipe first."""
        found = dict.fromkeys([self.metric])
        for row in self.rows:
            for one in row.trials.values():
                found |= dict.fromkeys(one.statistics)
        return list(found)

    @property
    def failed(self) -> dict[str, dict[int, str]]:
        """Trials that did not get to their end, by variant and seed."""
        return {row.variant.name: row.failed for row in self.rows if row.failed}

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON-serialisable dict."""
        return {
            "name": self.name,
            "about": self.about,
            "command": self.command,
            "metric": self.metric,
            "rows": [row.to_dict(self.names) for row in self.rows],
            **self.facts,
        }


def shown(value: float | None, form: str = ".4g") -> str:
    """A number, or a dash where there is none."""
    return "—" if value is None else format(value, form)


def cells(row: VariantRow, metric: str) -> list[str]:
    """A row of the table that people read."""
    facts = row.first
    test = row.tests.get(metric)
    change = None if test is None else test.difference
    difference = "" if change is None else f"{change.value:+.3g} [{change.low:+.3g}, {change.high:+.3g}]"
    spread = row.spread(metric)
    return [
        row.variant.name,
        "—" if facts is None else f"{facts.parameters:,}",
        "—" if facts is None else f"{facts.forward_flops / 1e6:.2f}",
        shown(row.mean(metric)) + ("" if spread is None else f" ± {spread:.2g}"),
        shown(row.mean("loss")) + (f" {row.verdict('loss')}" if "loss" in row.tests and metric != "loss" else ""),
        difference,
        "" if test is None else f"{test.p:.3g}",
        f"{len(row.failed)} did not end" if row.failed else row.verdict(metric),
        shown(row.seconds, ".0f"),
    ]


def columns(metric: str) -> list[str]:
    """The headings over `cells`."""
    name = metric.replace("_", " ")
    return ["variant", "parameters", "MFLOP a token", name, "test loss", f"difference in {name}, 95%", "p", "", "s"]


def markdown(report: SweepReport) -> str:
    """The page: what was done, the table, how to read it."""
    facts = report.facts
    lines = [f"# {report.name}", "", report.about, "", f"    {report.command}", "", facts["budget"], ""]
    heads, rows, group = columns(report.metric), [], None
    for row in report.rows:
        if row.variant.group != group:
            group = row.variant.group
            rows += [[f"**{group}**", *[""] * (len(heads) - 1)]] if group else []
        rows.append([cell.replace("|", "\\|") for cell in cells(row, report.metric)])
    lines += markdown_table(heads, rows, numbers=True)
    lines += ["", *(f"- {note}" for note in facts["notes"]), ""]
    for name, failed in report.failed.items():
        lines += [f"- {name}, seed {seed}, did not get to its end: {why}" for seed, why in failed.items()]
    lines += ["", "![curves](curves.svg)", ""]
    lines += [f"{facts['machine']}, torch {facts['torch']}, glassformer {facts['glassformer']}, {facts['date']}.", ""]
    return "\n".join(lines)


def curve_of(folder: Path, key: str) -> list[tuple[int, float]]:
    """A number of a run's log with the steps at which it was logged."""
    records = RunFolder(folder).metrics() if RunFolder.is_run(folder) else []
    return [(record["step"], float(record[key])) for record in records if key in record]


def line_of(folders: Sequence[Path], key: str) -> Line | None:
    """A number over training, for each seed; as far as all of them have it."""
    curves = [curve for folder in folders if (curve := curve_of(folder, key))]
    if not curves:
        return None
    length = min(map(len, curves))
    steps = [step for step, _value in curves[0][:length]]
    return steps, [[value for _step, value in curve[:length]] for curve in curves]


def draw(report: SweepReport) -> dict[str, Any]:
    """The figure `curves`, a row of panels for each group: the loss in training, and the score of the validations, beside
    the base. None where nothing was logged."""
    base, *others = report.rows
    score = f"{report.metric.replace('_', ' ')} on val"
    parts = []
    for group in dict.fromkeys(row.variant.group for row in others):
        names = [row.variant.name for row in (base, *others) if row is base or row.variant.group == group]
        for key, up in (("loss", "training loss (nats)"), (f"val_{report.metric}", score)):
            lines = {name: line for name in names if (line := line_of(report.folders[name], key)) is not None}
            parts += [LinePanel(group, "step", up, lines)] if lines else []
    return {"curves": panels(parts, across=2)} if parts else {}


def write(report: SweepReport, out: Path) -> list[Path]:
    """Everything into the folder; the files."""
    return write_report(out, "ablation", report.to_dict(), markdown(report), draw(report))
