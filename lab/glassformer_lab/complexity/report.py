"""The paper's Table 1 as measured: every layer with its exponents beside what is said of it; as Markdown, CSV, JSON and one
figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glassformer import plots
from glassformer.runs.report import csv_text, markdown_table, write_report
from glassformer_lab.complexity.fit import Exponent
from glassformer_lab.complexity.layers import LayerKind
from glassformer_lab.complexity.measure import Point
from glassformer_lab.complexity.reach import SMALL_WINDOW, Reach

EXPONENTS = ("time_in_n", "time_in_d", "memory_in_n", "memory_in_d")


@dataclass(frozen=True)
class LayerMeasurements:
    """A layer with everything that was measured of it."""

    layer: LayerKind
    over_length: list[Point]
    over_width: list[Point]
    time_in_n: Exponent
    time_in_d: Exponent
    memory_in_n: Exponent
    memory_in_d: Exponent


@dataclass(frozen=True)
class ComplexityReport:
    """All layers, the chains of their equations, and how far the gradient reaches."""

    rows: list[LayerMeasurements]
    chains: dict[str, dict[int, int]]
    reach: dict[str, list[Reach]]
    needed: dict[str, int]  # layers until the first token is seen
    length: int  # of the row in which reach was measured
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "layers": [
                {
                    "name": row.layer.name,
                    "said": {"time": row.layer.time, "sequential": row.layer.sequential, "path": row.layer.path},
                    **{key: asdict(getattr(row, key)) for key in EXPONENTS},
                    "points": [asdict(point) for point in (*row.over_length, *row.over_width)],
                }
                for row in self.rows
            ],
            "chains": {name: {str(n): c for n, c in own.items()} for name, own in self.chains.items()},
            "reach": {name: [asdict(one) for one in own] for name, own in self.reach.items()},
            "layers_needed": self.needed,
            "reach_length": self.length,
            **self.facts,
        }


def said(exponents: tuple[int, int]) -> str:
    """ "2", or "1 to 2"."""
    low, high = exponents
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def growth(chain: dict[int, int]) -> str:
    """The chain for the shortest and the longest row."""
    (short, first), *_, (long, last) = chain.items()
    return f"{first}" if first == last else f"{first} → {last} (n = {short} → {long})"


HEADS = (
    *("layer", "said", "time ~ n^p", "said p", "time ~ d^q", "said q"),
    *("memory ~ n^p", "said", "sequential operations", "said", "layers to reach n", "said"),
)


def cells(report: ComplexityReport, row: LayerMeasurements) -> list[str]:
    """A row of the table."""
    layer, kind = row.layer, row.layer.kind
    return [
        layer.name,
        layer.time,
        str(row.time_in_n),
        said(layer.in_n),
        str(row.time_in_d),
        said(layer.in_d),
        str(row.memory_in_n),
        f"{layer.memory_in_n:g}",
        growth(report.chains[kind]),
        layer.sequential,
        str(report.needed[kind]) + (f" (r = {SMALL_WINDOW})" if kind == "window" else ""),
        layer.path if kind != "recurrent" else f"{layer.path} in one layer",
    ]


def markdown(report: ComplexityReport) -> str:
    """The page."""
    facts = report.facts
    lines = ["# Complexity, measured", "", f"    {facts['command']}", ""]
    lines += markdown_table(HEADS, [cells(report, row) for row in report.rows], numbers=True)
    lines += ["", *(f"- {note}" for note in facts["notes"]), "", "How far the gradient of the last output reaches", ""]
    layers = [one.layers for one in next(iter(report.reach.values()))]
    heads = ["through layers", *map(str, layers), "left at the first token, one layer"]
    rows = [[kind, *(str(one.distance) for one in own), f"{own[0].far:.2g}"] for kind, own in report.reach.items()]
    lines += markdown_table(heads, rows, numbers=True)
    lines += ["", "![time, memory and reach](complexity.svg)", ""]
    lines += [f"{facts['machine']}, torch {facts['torch']}, glassformer {facts['glassformer']}, {facts['date']}.", ""]
    return "\n".join(lines)


def as_csv(rows: Sequence[LayerMeasurements]) -> str:
    """Every measurement in a line of its own."""
    lines: list[list[Any]] = [["layer", "over", "length", "width", "seconds", "bytes"]]
    for row in rows:
        for over, points in (("length", row.over_length), ("width", row.over_width)):
            lines += [[p.layer, over, p.length, p.width, p.seconds, p.bytes] for p in points]
    return csv_text(lines)


def draw(report: ComplexityReport) -> Any:
    """Time over n and d, memory over n, and reach over layers, in one figure."""

    def lines(points: str, *axes: str) -> dict[str, Any]:
        return {
            row.layer.name: tuple([getattr(p, axis) for p in getattr(row, points)] for axis in axes)
            for row in report.rows
        }

    named = {row.layer.kind: row.layer.name for row in report.rows}
    reach = {named[kind]: ([r.layers for r in own], [r.distance for r in own]) for kind, own in report.reach.items()}
    return plots.cost_curves(
        lines("over_length", "length", "seconds"),
        lines("over_width", "width", "seconds"),
        lines("over_length", "length", "bytes"),
        reach,
        f"tokens back that the gradient reaches (here the window is {SMALL_WINDOW})",
    )


def write(report: ComplexityReport, out: Path) -> list[Path]:
    """Everything into the folder; the files."""
    figures = {"complexity": draw(report)}
    return write_report(out, "complexity", report.to_dict(), markdown(report), as_csv(report.rows), figures)
