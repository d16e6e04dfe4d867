"""A report on a screen and as a picture."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from glassformer.data.doctor.facts import DoctorReport, quantiles
from glassformer.data.doctor.findings import log_ratios
from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table

TASKS = {"pairs": _("pairs"), "text": _("text"), "classify": _("classify"), "tag": _("tag")}
LABELLED = _("length"), _("labels")
COLUMNS = {"pairs": (_("source"), _("target")), "text": (_("line"),), "classify": LABELLED, "tag": LABELLED}
UNKNOWN = {"word": _("unknown words"), "char": _("unknown chars")}


def show(report: DoctorReport, console: Any) -> None:
    """A table of the splits, then the findings, errors first."""
    from rich.text import Text

    two_sides, has_labels = report.task == "pairs", report.task in ("classify", "tag")
    numbers = [_("examples"), *COLUMNS[report.task], UNKNOWN.get(report.tokenizer, report.tokenizer)]
    title = _("Data for {task} (lengths in characters: median, 95%, longest)", TASKS[report.task])
    table = make_table((_("split"), *((name, RIGHT) for name in numbers)), title=title)
    for name, facts in report.splits.items():
        lengths = [facts.source_lengths, facts.target_lengths] if two_sides else [facts.source_lengths]
        cells = [" / ".join(f"{value:,}" for value in quantiles(x).values()) for x in lengths]
        cells += [str(len(facts.labels))] * has_labels
        unknown = report.unknown.get(name)
        table.add_row(name, f"{facts.examples:,}", *cells, "" if unknown is None else f"{unknown:.1%}")
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


def picture(report: DoctorReport) -> Any:
    """How long the examples are, a curve a side and split; and how the two sides of pairs compare."""
    from glassformer.plots import COLOURS, figure

    panels = 2 if report.task == "pairs" else 1
    fig, axes = figure(5.5 * panels, 3.6, ncols=panels, squeeze=False)
    axis = axes[0][0]
    curves: dict[str, np.ndarray] = {}
    for name, facts in report.splits.items():
        both = {"source": facts.source_lengths, "target": facts.target_lengths}
        sides = both if panels == 2 else {"": facts.source_lengths}
        curves |= {f"{name} {side}".strip(): np.frombuffer(x, np.uint64) for side, x in sides.items() if len(x)}
    longest = max((int(np.quantile(values, 0.995)) for values in curves.values()), default=0) + 1
    for (name, values), colour in zip(curves.items(), itertools.cycle(COLOURS), strict=False):
        shares = np.full(len(values), 1 / len(values))
        bins = np.linspace(0, longest, min(40, longest) + 1)
        axis.hist(np.minimum(values, longest), bins, weights=shares, histtype="step", color=colour, label=name)
    share = "share of lines" if report.task == "text" else "share of examples"
    axis.set(title="Lengths", xlabel="characters (the last bar: that and more)", ylabel=share)
    if curves:
        axis.legend(frameon=False)
    if panels == 2:
        axis = axes[0][1]
        every = [log_ratios(facts) / np.log(2) for facts in report.splits.values() if facts.examples]
        reach = max(3.0, *(float(np.abs(ratios).max()) for ratios in every)) if every else 3.0  # nothing is hidden
        for (name, facts), colour in zip(report.splits.items(), COLOURS, strict=False):
            if facts.examples:
                ratios = log_ratios(facts) / np.log(2)
                shares = np.full(len(ratios), 1 / len(ratios))
                axis.hist(  # an odd number of bars: equal lengths are the middle one, not the right of two
                    ratios, np.linspace(-reach, reach, 50), weights=shares, histtype="step", color=colour, label=name
                )
        axis.set(title="Target against source", xlabel="log₂ of the ratio of lengths", ylabel="share of pairs")
        if any(facts.examples for facts in report.splits.values()):
            axis.legend(frameon=False)
    return fig
