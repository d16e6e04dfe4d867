"""`glassformer reproduce`: a published number, reached again or not, with one command."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import BARE, FIXED, FOLD, RIGHT, make_table, table_console, warn

if TYPE_CHECKING:
    from glassformer_lab.reproduce.report import Outcome, ReproductionReport


def reproduce(
    name: str | None = None,
    overrides: list[str] | None = None,
    *,
    data: Path | None = None,
    seeds: int | None = None,
    out: Path | None = None,
    as_json: bool = False,
    overwrite: bool = False,
    quick: bool = False,
    only: list[str] | None = None,
    measure: bool = True,
) -> None:
    """Train a recipe, score it by the published metric, and say PASS or FAIL. `reproduce paper` makes Tables 1 to 4 and
    Figures 3 to 5 of Attention Is All You Need at a size that fits, each number beside theirs.

    Exit codes: 0 the goal is reached; 1 it is not; 2 something to put right; 75 stopped on request.

    Example: reproduce dates

    name: What to reproduce; without it, a list.
    data: The folder with the data; else where `data get` puts it.
    seeds: So many runs, each with another seed.
    out: Where runs and results go; runs/reproduce/NAME by default.
    overwrite: Throw away runs that are there.
    quick: paper: a few steps of each piece, to see it run.
    only: paper: this piece alone (table1 to table4, figures); several times.
    measure (--plan/--no-plan): Say how long it will take, by the first steps.
    """
    if name is None:
        show_list(as_json)
        return
    if name == "paper":
        if overrides or data or seeds is not None or overwrite or not measure:
            raise ConfigError("`glassformer reproduce paper` takes --out, --quick, --only and --json alone")
        make_paper(out or Path("runs") / "reproduce" / "paper", quick, only or [], as_json)
        return
    if quick or only:
        raise ConfigError("--quick and --only belong to `glassformer reproduce paper`; leave them out")
    from glassformer_lab.reproduce.table import reproduction

    reproduction(name)  # a name that is not there is refused at once
    from glassformer import runs
    from glassformer_lab.reproduce import reproduction as study

    try:
        report = study.reproduce(
            name,
            out or Path("runs") / "reproduce" / name,
            data=data,
            seeds=seeds,
            overrides=overrides or [],
            overwrite=overwrite,
            measure=measure,
        )
    except runs.Stopped:
        warn(_("stopped; nothing was judged"))
        raise SystemExit(runs.STOPPED) from None
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False))
    else:
        show(report)
    raise SystemExit(0 if report.passed else 1)


def make_paper(out: Path, quick: bool, only: list[str], as_json: bool) -> None:
    """The tables and figures of the paper, made and shown."""
    import torch

    from glassformer import runs
    from glassformer_lab.reproduce.paper import in_json, reproduce_paper

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        pieces = reproduce_paper(out, quick=quick, only=only, device=device)
    except runs.Stopped:
        warn(_("stopped; what was made is kept, and the same command goes on with the rest"))
        raise SystemExit(runs.STOPPED) from None
    if as_json:
        print(json.dumps([in_json(one) for one in pieces], ensure_ascii=False))
        return
    console = table_console()
    for piece in pieces:
        rows = [map(localized, row) for row in piece.rows]
        console.print(make_table([(column, FOLD) for column in piece.columns], rows, title=piece.title))
        for note in piece.notes:
            console.print(note, soft_wrap=True)
    console.print(f"{out / 'paper.md'}", soft_wrap=True)


def show_list(as_json: bool) -> None:
    """Every published result that can be reproduced, on stdout."""
    from dataclasses import asdict

    from glassformer_lab.reproduce.table import reproductions

    if as_json:
        print(json.dumps([asdict(one) for one in reproductions()], ensure_ascii=False))
        return
    columns = (_("name"), FIXED), (_("measure"), FIXED), (_("published"), FIXED | RIGHT), (_("goal"), FIXED), _("what")
    table = make_table(columns, **BARE)
    for one in reproductions():
        published = "—" if one.published is None else f"{one.published:g}"
        goal = one.goal_text if one.goal is not None else f"plain + {one.margin:g}"
        what = _(one.what)
        if one.within is not None:
            what = _("{what}; training within {time}", what, one.time_text)
        table.add_row(one.name, one.metric, published, goal, localized(what))
    console = table_console()
    console.print(table)
    commands = sorted({f"glassformer data get {one.collection}" for one in reproductions() if one.collection})
    console.print(_("\nWhat is not built in needs its data first: {commands}; or --data DIR.", ", ".join(commands)))


def show(report: ReproductionReport) -> None:
    """One reproduction's report, on stdout."""
    from rich.text import Text

    columns, title = (("", FIXED | {"style": "bold"}), ("", FOLD)), f"{report.what.name}: {report.what.what}"
    console = table_console()
    console.print(make_table(columns, rows_of(report), title=title, show_header=False))
    verdict = Text("PASS", "bold green") if report.passed else Text("FAIL", "bold red")
    why = f" ({report.too_large})" if report.too_large else ""
    console.print(
        verdict.append(f"  {report.what.metric} {report.median:.4f}, goal {goal_of(report)}{why}", "default not bold"),
        soft_wrap=True,
    )


def goal_of(report: ReproductionReport) -> str:
    """The goal in words, with its number where it follows from others."""
    if report.what.goal is not None:
        return report.what.goal_text
    return f"{report.what.goal_text} = {report.goal:.4f}"


def middle(outcomes: list[Outcome], part: str) -> float:
    """The median over all seeds of one part of the time."""
    return statistics.median(getattr(one.times, part) for one in outcomes)


def rows_of(report: ReproductionReport) -> list[tuple[str, str]]:
    """The report, a title and a sentence each."""
    what, outcomes = report.what, report.outcomes
    scores = report.scores
    published = "none" if what.published is None else f"{what.published:g}"
    rows = [
        ("published", f"{published} ({what.source})"),
        ("goal", goal_of(report)),
        ("ours", f"median {report.median:.4f}, mean {statistics.fmean(scores):.4f}{spread(scores)}"),
        ("measure", f"{what.metric}: {outcomes[0].signature}"),
    ]
    for key in outcomes[0].others:
        rows.append((key, f"{statistics.median(one.others[key] for one in outcomes):.4f}"))
    if report.beside:
        others = [one.score for one in report.beside]
        rows.append((str(what.beside), f"median {statistics.median(others):.4f}{spread(others)}"))
    training = middle(outcomes, "training")
    rows += [
        ("parameters", f"{outcomes[0].parameters:,}"),
        ("training", f"{training:.2f} s, {outcomes[0].steps:,} steps{time_goal(report)}"),
        ("compilation", f"{middle(outcomes, 'compilation'):.2f} s, start-up included"),
        (
            "evaluation",
            f"{middle(outcomes, 'validation'):.2f} s of validation, {middle(outcomes, 'scoring'):.2f} s of scoring",
        ),
        ("saving", f"{middle(outcomes, 'saving'):.2f} s, checkpoints written and synced"),
        ("preparation", f"{middle(outcomes, 'preparation'):.2f} s, tokenizer and token files"),
        ("speed", f"{statistics.median(one.tokens_per_second for one in outcomes):,.0f} target tokens/s"),
        ("device", f"{report.device}, torch {report.facts['torch']}"),
        ("runs", ", ".join(one.folder for one in [*outcomes, *report.beside])),
    ]
    return rows


def spread(scores: list[float]) -> str:
    """How far the seeds lie apart."""
    if len(scores) == 1:
        return " (one seed)"
    each = ", ".join(f"{score:.4f}" for score in scores)
    return f", deviation {statistics.stdev(scores):.4f} ({each})"


def time_goal(report: ReproductionReport) -> str:
    """Whether it was done in the time that was set, as the end of a sentence."""
    if report.what.within is None:
        return ""
    verdict = {None: ", which this is not", True: ": reached", False: ": not reached"}[report.in_time]
    return f"; goal {report.what.time_text}{verdict}"
