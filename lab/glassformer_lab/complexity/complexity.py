"""The paper's Table 1, measured from beginning to end: every layer with its exponents beside what is said of it; as Markdown,
JSON and one figure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from glassformer.plots.panels import Line, LinePanel, panels
from glassformer_lab.complexity import measure
from glassformer_lab.complexity.layers import HEAD_SIZE, LAYERS, WINDOW, LayerKind
from glassformer_lab.complexity.measure import KINDS, SMALL_WINDOW, Exponent, Point, Reach, fit_exponent
from glassformer_lab.report import device_name, made_with, markdown_table, write_report


@dataclass(frozen=True)
class Sizes:
    """Where is measured: lengths at one width, widths at one length; seconds for each point; the row for the reach."""

    lengths: tuple[int, ...]
    width: int
    widths: tuple[int, ...]
    length: int
    seconds: float
    reach: int
    layers: tuple[int, ...] = (1, 2, 4, 8)
    chains: tuple[int, ...] = (16, 32, 64, 128, 256)


def steps(first: int, last: int, a_doubling: int, multiple: int = 1) -> tuple[int, ...]:
    """Sizes at even distances on a logarithmic scale, rounded to a multiple.

    >>> steps(128, 512, 2)
    (128, 181, 256, 362, 512)
    """
    count = round(math.log2(last / first) * a_doubling)
    exact = [first * 2 ** (i / a_doubling) for i in range(count + 1)]
    return tuple(sorted({multiple * max(1, round(size / multiple)) for size in exact}))


def sizes_for(device: torch.device, *, quick: bool) -> Sizes:
    """On CUDA longer and wider: what is small does not fill it."""
    if quick:
        return Sizes(steps(64, 512, 1), 64, steps(32, 256, 1, HEAD_SIZE), 128, 0.01, 33, (1, 2, 4), (8, 16, 32))
    if device.type == "cuda":
        return Sizes(steps(512, 8192, 2), 512, steps(256, 4096, 2, HEAD_SIZE), 2048, 0.2, 129)
    return Sizes(steps(256, 4096, 2), 64, steps(64, 1024, 2, HEAD_SIZE), 256, 0.2, 129)


@dataclass(frozen=True)
class LayerMeasurements:
    """A layer with everything that was measured of it."""

    layer: LayerKind
    over_length: list[Point]
    over_width: list[Point]

    @property
    def exponents(self) -> dict[str, Exponent]:
        """time_in_n, time_in_d, memory_in_n and memory_in_d."""
        sides = (("n", "length", self.over_length), ("d", "width", self.over_width))
        return {
            f"{name}_in_{side}": fit_exponent([getattr(p, size) for p in points], [getattr(p, value) for p in points])
            for name, value in (("time", "seconds"), ("memory", "bytes"))
            for side, size, points in sides
        }


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
        """The report as a JSON-serialisable dict."""
        return {
            "layers": [
                {
                    "name": row.layer.name,
                    "said": {"time": row.layer.time, "sequential": row.layer.sequential, "path": row.layer.path},
                    **{key: asdict(exponent) for key, exponent in row.exponents.items()},
                    "points": [asdict(point) for point in (*row.over_length, *row.over_width)],
                }
                for row in self.rows
            ],
            "chains": {name: {str(n): count for n, count in counts.items()} for name, counts in self.chains.items()},
            "reach": {name: [asdict(reach) for reach in reaches] for name, reaches in self.reach.items()},
            "layers_needed": self.needed,
            "reach_length": self.length,
            **self.facts,
        }


def notes_of(sizes: Sizes) -> list[str]:
    """How to read the table."""
    return [
        f"Time and memory of a forward and a backward pass of one row; n from {sizes.lengths[0]} to {sizes.lengths[-1]} at d = "
        f"{sizes.width}, d from {sizes.widths[0]} to {sizes.widths[-1]} at n = {sizes.length}; heads of {HEAD_SIZE}, so wider "
        f"means more of them. All layers are causal; the window sees {WINDOW} tokens.",
        "Time is the shortest of several passes: on a CPU the processor time of one thread, on CUDA the time on the wall. "
        "Memory is the most alive at once, without input and weights; on a CPU what a kernel keeps to itself is not seen.",
        "Exponents are least-squares slopes of logarithm over logarithm on the larger half of the sizes (four at least), ± the "
        "standard error of the slope. The law is that of the largest term; in a small range smaller terms, and processors that "
        "work better on larger matrices, bend it.",
        "Sequential operations: the longest chain of operations in autograd's graph of the written-out equation. Linear "
        "attention carries its sums from block to block of 64.",
        f"Layers to reach n: the fewest through which the last of {sizes.reach} outputs has a gradient at the first token.",
    ]


def complexity(
    device: torch.device, *, quick: bool, command: str, tell: Callable[[int, str], None] = lambda done, what: None
) -> ComplexityReport:
    """Measures every layer; `tell` hears how many are done and which is next."""
    sizes = sizes_for(device, quick=quick)
    rows = []
    for number, layer in enumerate(LAYERS):
        tell(number, layer.name)
        over_length = measure.measure(layer, [(n, sizes.width) for n in sizes.lengths], device, sizes.seconds)
        over_width = measure.measure(layer, [(sizes.length, d) for d in sizes.widths], device, sizes.seconds)
        rows.append(LayerMeasurements(layer, over_length, over_width))
    tell(len(LAYERS), "chains and reach")
    return ComplexityReport(
        rows,
        measure.chain_lengths(sizes.chains),
        {kind: [measure.gradient_reach(kind, depth, sizes.reach) for depth in sizes.layers] for kind in KINDS},
        {kind: measure.layers_needed(kind, sizes.reach) for kind in KINDS},
        sizes.reach,
        {"command": command, "notes": notes_of(sizes), "machine": device_name(device), **made_with()},
    )


HEADS = (
    *("layer", "said", "time ~ n^p", "said p", "time ~ d^q", "said q"),
    *("memory ~ n^p", "said", "sequential operations", "said", "layers to reach n", "said"),
)


def cells(report: ComplexityReport, row: LayerMeasurements) -> list[str]:
    """A row of the table."""

    def power(exponents: tuple[int, int]) -> str:
        low, high = exponents
        return f"{low}" if low == high else f"{low} to {high}"

    layer, kind, exponents = row.layer, row.layer.kind, row.exponents
    (short, first), *_, (long, last) = report.chains[kind].items()
    return [
        *(layer.name, layer.time, str(exponents["time_in_n"]), power(layer.in_n)),
        *(str(exponents["time_in_d"]), power(layer.in_d), str(exponents["memory_in_n"]), f"{layer.memory_in_n}"),
        f"{first}" if first == last else f"{first} → {last} (n = {short} → {long})",
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
    depths = [str(reach.layers) for reach in next(iter(report.reach.values()))]
    heads = ["through layers", *depths, "left at the first token, one layer"]
    rows = [[kind, *(str(r.distance) for r in found), f"{found[0].far:.2g}"] for kind, found in report.reach.items()]
    lines += markdown_table(heads, rows, numbers=True)
    lines += ["", "![time, memory and reach](complexity.svg)", ""]
    lines += [f"{facts['machine']}, torch {facts['torch']}, glassformer {facts['glassformer']}, {facts['date']}.", ""]
    return "\n".join(lines)


def draw(report: ComplexityReport) -> Any:
    """Time over n and d, memory over n, and reach over layers, on logarithmic scales: a power is a straight line there, and its
    exponent the slope."""

    def lines(points: str, *axes: str) -> dict[str, Line]:
        return {
            row.layer.name: (
                [getattr(p, axes[0]) for p in getattr(row, points)],
                [[getattr(p, axes[1]) for p in getattr(row, points)]],
            )
            for row in report.rows
        }

    named = {row.layer.kind: row.layer.name for row in report.rows}
    reach: dict[str, Line] = {
        named[kind]: ([r.layers for r in own], [[r.distance for r in own]]) for kind, own in report.reach.items()
    }
    time, back = (
        "time of a forward and a backward pass (s)",
        f"tokens back that the gradient reaches (window {SMALL_WINDOW})",
    )
    parts = [
        LinePanel("time over length", "length n", time, lines("over_length", "length", "seconds"), "xy"),
        LinePanel("time over width", "width d", time, lines("over_width", "width", "seconds"), "xy"),
        LinePanel("memory over length", "length n", "memory (bytes)", lines("over_length", "length", "bytes"), "xy"),
        LinePanel("reach over layers", "layers", back, reach, "xy"),
    ]
    return panels(parts, across=2)


def write(report: ComplexityReport, out: Path) -> list[Path]:
    """Everything into the folder; the files."""
    return write_report(out, "complexity", report.to_dict(), markdown(report), {"complexity": draw(report)})
