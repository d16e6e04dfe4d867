"""The result of an ablation as Markdown, CSV, JSON and two pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer import plots
from glassformer.runs.folder import RunFolder
from glassformer.runs.report import csv_text, markdown_table, write_report
from glassformer_lab.sweep.scores import VariantRow

LAYER = "grad_norm/"


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
        """As JSON has it."""
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
    lines += ["", "![curves](curves.svg)", "", "![gradient norm of every layer](gradients.svg)", ""]
    lines += [f"{facts['machine']}, torch {facts['torch']}, glassformer {facts['glassformer']}, {facts['date']}.", ""]
    return "\n".join(lines)


def as_csv(report: SweepReport) -> str:
    """A line for each variant, every score with mean and spread, and its test against the base."""
    sizes = ("parameters", "forward_flops", "steps", "target_tokens", "seconds")
    of_scores = ("mean", "spread", "difference", "low", "high", "p")
    scores = (f"{name}_{part}" for name in report.names for part in of_scores)
    lines = [["variant", "group", "settings", "seeds", *sizes, *scores, "failed"]]
    for row in report.rows:
        found = row.to_dict(report.names)
        line = [found["name"], found["group"], " ".join(found["settings"]), len(found["seeds"])]
        line += [found[key] for key in sizes]
        for name in report.names:
            score, test = found["scores"].get(name, {}), row.tests.get(name)
            change = test.difference if test is not None else None
            line += [score.get("mean"), score.get("spread")]
            line += [change and change.value, change and change.low, change and change.high, test and test.p]
        lines.append(["" if value is None else value for value in [*line, len(row.failed)]])
    return csv_text(lines)


def collect(folders: Sequence[Path], key: str) -> dict[int, list[float]]:
    """A number of metrics.jsonl by step, over the seeds."""
    found: dict[int, list[float]] = {}
    for folder in folders:
        for line in RunFolder(folder).metrics() if RunFolder.is_run(folder) else []:
            if key in line:
                found.setdefault(line["step"], []).append(float(line[key]))
    return found


def layers_in(folder: Path) -> list[str]:
    """The layers whose gradient norms a run has logged, in order."""
    lines = RunFolder(folder).metrics() if RunFolder.is_run(folder) else []
    return list(dict.fromkeys(key for line in lines for key in line if key.startswith(LAYER)))


def draw(report: SweepReport) -> dict[str, Any]:
    """The figures: curves and gradients."""
    base, *others = report.rows

    def points(key: str, rows: Sequence[VariantRow]) -> dict[str, dict[int, list[float]]]:
        return {row.variant.name: collect(report.folders[row.variant.name], key) for row in rows}

    groups = list(dict.fromkeys(row.variant.group for row in others))
    panels = []
    for group in groups:
        rows = [base, *(row for row in others if row.variant.group == group)]
        score = f"val_{report.metric}"
        panels.append(plots.CurvePanel(group, points("loss", rows), points(score, rows), report.metric))
    norms = {
        row.variant.name: {
            key.removeprefix(LAYER): collect(folders, key)
            for key in dict.fromkeys(key for folder in folders for key in layers_in(folder))
        }
        for row in report.rows
        if (folders := report.folders[row.variant.name])
    }
    return {"curves": plots.ablation_curves(panels), "gradients": plots.layer_gradients(norms)}


def write(report: SweepReport, out: Path) -> list[Path]:
    """Everything into the folder; the files."""
    return write_report(out, "ablation", report.to_dict(), markdown(report), as_csv(report), draw(report))
