"""`glassformer study`: a claim of the literature, put to the test."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glassformer.errors import ConfigError
from glassformer.language import _, language, localized, padded
from glassformer.screen import BARE, FIXED, FOLD, RIGHT, make_table, say, table_console, warn

if TYPE_CHECKING:
    from glassformer_lab.claims.report import ClaimReport

OUT = Path("runs") / "studies"


def study(
    names: list[str] | None = None,
    *,
    everything: bool = False,
    quick: bool = False,
    full: bool = False,
    out: Path | None = None,
    jobs: int | None = None,
    device: str = "cpu",
    as_json: bool = False,
) -> None:
    """Put a claim of the literature to the test: [bold]glassformer study residuals[/].

    Trials are kept as they are done, so a study that was broken off goes on where it was. Each ends with a table, a picture
    and a verdict: holds, mixed, does not hold, not settled (the rule is told by `docs/claims.md`). Exit codes: 0 done;
    2 something to put right; 75 stopped on request (Ctrl-C or SIGTERM).

    Example: study residuals --quick

    names: Which claims; without a name, a list of them.
    everything (--all): All of them, one after the other; more than a day on two cores.
    quick: A look in two minutes: fewer seeds, fewer steps.
    full: More seeds and sizes than by default.
    out: Where trials, tables and pictures go; runs/studies by default.
    jobs: Trials at once; as many as there are cores by default.
    device: Where trials run: cpu, or cuda, several at once there too.
    as_json (--json): A JSON object a line on stdout.
    """
    if quick and full:
        raise ConfigError("--quick and --full contradict each other; leave one out")
    if not names and not everything:
        show_list(as_json)
        return
    if names and everything:
        raise ConfigError("--all is every study; leave out the names, or leave out --all")
    import torch

    from glassformer.runs.stop import STOPPED, Stopped, StopRequest
    from glassformer_lab.claims.claim import BUDGETS, all_claims, claim_named
    from glassformer_lab.claims.report import run

    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise ConfigError("--device is cpu or cuda where there is one, not {device!r}", device)
    budget = BUDGETS["quick" if quick else "full" if full else "default"]
    chosen = [claim_named(name) for name in names or ()] or all_claims()
    stop = StopRequest()
    try:
        with stop.listening():
            for one in chosen:
                cores = "" if (os.cpu_count() or 1) == 2 else _(" on two cores")
                minutes = max(1, round(one.minutes * budget.minutes))
                about = one.name, len(one.plan(budget)), minutes, cores
                say(_("{name}: {trials} trials, about {minutes} min{cores}", *about))
                with stop.may_drop():
                    report = run(one, budget, (out or OUT) / budget.name, jobs=jobs, device=device)
                if as_json:
                    print(json.dumps(report.to_dict(), ensure_ascii=False))
                else:
                    show(report)
    except Stopped:
        warn(_("stopped; the trials that were done are kept, and the same command goes on with the others"))
        raise typer.Exit(STOPPED) from None


def show_list(as_json: bool) -> None:
    """Every study, with its verdict where it was measured for the documents."""
    from glassformer_lab.claims.claim import all_claims
    from glassformer_lab.claims.report import measured

    verdicts = measured()
    rows: list[dict[str, Any]] = []
    for claim in all_claims():
        facts = {"name": claim.name, "claim": localized(claim.claim), "minutes": claim.minutes}
        rows.append(facts | {"measured": verdicts.get(claim.name, {})})
    if as_json:
        print(json.dumps(rows, ensure_ascii=False))
        return
    columns = (_("study"), FIXED), (_("min"), FIXED | RIGHT), (_("our verdict"), FIXED), (_("claim"), FOLD)
    table = make_table(columns, **BARE)
    for row in rows:
        verdict = row["measured"].get("verdict", {}).get(language(), "–")
        table.add_row(row["name"], str(row["minutes"]), verdict.replace("; ", "\n").replace("；", "\n"), row["claim"])
    table_console().print(table)


def show(report: ClaimReport) -> None:
    """Tables, conditions and verdict of one study."""
    console = table_console()
    console.print(
        f"\n{report.claim.name}: {localized(report.claim.claim)}\n({report.claim.said_by})",
        style="bold",
        soft_wrap=True,
    )
    for one in report.finding.tables:
        console.print(make_table([(column, FOLD) for column in one.columns], one.rows, title=one.title))
    for part in report.finding.parts:
        for condition in part.conditions:
            console.print(
                f"  {padded(localized(condition.outcome), 6)}  {localized(condition.text)} ({condition.detail})",
                soft_wrap=True,
            )
        console.print(_("verdict: {verdict}", part.told), part.says and localized(part.says), style="bold")
    for note in report.finding.notes:
        console.print(note, soft_wrap=True)
    console.print(f"{report.folder / report.claim.name}.png, .md, .json", soft_wrap=True)
