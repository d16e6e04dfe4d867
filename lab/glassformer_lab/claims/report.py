"""A claim put to the test: its trials are run, its conditions judged, and tables, figure and verdict written beside them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer import machine
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.owned import OwnedFiles
from glassformer.language import _, in_both
from glassformer_lab.claims.claim import Budget, Claim, Results
from glassformer_lab.claims.judgement import Judgement, draw, judge
from glassformer_lab.report import made_with, markdown_table, write_report
from glassformer_lab.runner import KEPT, Kept, TrialCall, run_trials


@dataclass(frozen=True)
class ClaimReport:
    """A claim that was put to the test."""

    claim: Claim
    budget: Budget
    finding: Judgement
    facts: dict[str, Any]
    folder: Path

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON-serialisable dict."""
        claim = {"name": self.claim.name, "claim": in_both(_(self.claim.claim)), "said_by": self.claim.said_by}
        return {**claim, "version": self.claim.version, **self.finding.to_dict(), **self.facts}


def measured() -> dict[str, dict[str, Any]]:
    """The verdicts that come with the package, at the default budget: by claim, in both languages, with date and machine."""
    path = Path(__file__).with_name("measured.json")
    return structured.read(path, dict[str, dict[str, Any]]) if path.is_file() else {}


def planned_trials(claim: Claim, budget: Budget) -> dict[str, dict[str, Any]]:
    """The settings of every trial, by what a kept one is found again by."""
    same = [claim.name, claim.version, budget.name]
    return {json.dumps([*same, settings], sort_keys=True): settings for settings in claim.plan(budget)}


def results_of(planned: Mapping[str, dict[str, Any]], kept: Mapping[str, Kept]) -> Results:
    """Trials with what they found."""
    return Results(tuple((settings, kept[key].measured) for key, settings in planned.items()))


def run(claim: Claim, budget: Budget, out: Path, *, jobs: int | None = None, device: str = "cpu") -> ClaimReport:
    """Puts a claim to the test and leaves in `out`: trials.jsonl, NAME.json, NAME.md, NAME.png, NAME.svg. On a GPU too several
    trials run at once: a small model alone does not fill it."""
    if jobs is not None and jobs < 1:
        raise UserError("--jobs must be at least 1, not {jobs}", jobs)
    out.mkdir(parents=True, exist_ok=True)
    with OwnedFiles(out).exclusive_lock("study"):
        began = time.perf_counter()
        kept_file, *_pages = OwnedFiles(out).claim(
            KEPT, *(f"{claim.name}.{kind}" for kind in ("json", "md", "png", "svg"))
        )
        planned = planned_trials(claim, budget)
        calls = {
            key: TrialCall(claim.run_trial, (budget,), settings, device, claim.is_timed(settings))
            for key, settings in planned.items()
        }
        kept = run_trials(claim.name, calls, kept_file, jobs or machine.cores())
        results = results_of(planned, kept)
        facts = {
            "effort": budget.name,
            "seeds": budget.seeds,
            "trials": len(results.trials),
            "trial_seconds": round(sum(found["seconds"] for _settings, found in results.trials), 1),
            "seconds": round(time.perf_counter() - began, 1),
            "command": f"glassformer study {claim.name}" + ("" if budget.name == "default" else f" --{budget.name}"),
            "machine": " and ".join(sorted({trial.machine for trial in kept.values()})),
            **made_with(),
        }
        report = ClaimReport(claim, budget, judge(claim, results), facts, out)
        figures = {claim.name: draw(claim, results)}
        write_report(out, claim.name, report.to_dict(), markdown(report), figures=figures)
        return report


def markdown(report: ClaimReport) -> str:
    """A report as a page."""
    lines = [f"# {report.claim.name}", "", f"> {report.claim.claim}", ""]
    lines += [report.claim.said_by, ""]
    for part in report.finding.parts:
        lines += [f"**{part.told}**{': ' * bool(part.says)}{part.says}", ""]
        lines += [f"- {one.outcome}: {one.text} ({one.detail})" for one in part.conditions] + [""]
    for table in report.finding.tables:
        lines += ["", f"### {table.title}", "", *markdown_table(table.columns, table.rows)]
    lines += ["", *report.finding.notes]
    facts = report.facts
    cost = f"{facts['trials']} trials, {facts['trial_seconds']:.0f} s of computing"
    lines += ["", f"`{facts['command']}`, {cost} on {facts['machine']}, {facts['date']}."]
    return "\n".join(lines) + "\n"
