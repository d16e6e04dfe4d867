"""The paper's Table 1, measured from beginning to end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from glassformer.runs.report import device_name, made_with
from glassformer_lab.complexity.chains import chain_lengths
from glassformer_lab.complexity.fit import fit_exponent
from glassformer_lab.complexity.layers import HEAD_SIZE, LAYERS, WINDOW, LayerKind
from glassformer_lab.complexity.measure import measure
from glassformer_lab.complexity.reach import KINDS, layers_needed, reaches
from glassformer_lab.complexity.report import ComplexityReport, LayerMeasurements


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

    @property
    def points(self) -> int:
        """Measurements of a layer."""
        return len(self.lengths) + len(self.widths)


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


def measure_layer(layer: LayerKind, sizes: Sizes, device: torch.device) -> LayerMeasurements:
    """Its points, and the exponents fitted to them."""
    over_length = measure(layer, [(n, sizes.width) for n in sizes.lengths], device, sizes.seconds)
    over_width = measure(layer, [(sizes.length, d) for d in sizes.widths], device, sizes.seconds)
    n, d = [p.length for p in over_length], [p.width for p in over_width]
    return LayerMeasurements(
        layer,
        over_length,
        over_width,
        fit_exponent(n, [p.seconds for p in over_length]),
        fit_exponent(d, [p.seconds for p in over_width]),
        fit_exponent(n, [float(p.bytes) for p in over_length]),
        fit_exponent(d, [float(p.bytes) for p in over_width]),
    )


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
    device: torch.device,
    *,
    quick: bool = False,
    command: str = "glassformer complexity",
    layers: Sequence[LayerKind] = LAYERS,
    tell: Callable[[int, str], None] = lambda done, what: None,
) -> ComplexityReport:
    """Measures every layer; `tell` hears how many are done and which is next."""
    sizes = sizes_for(device, quick=quick)
    rows = []
    for number, layer in enumerate(layers):
        tell(number, layer.name)
        rows.append(measure_layer(layer, sizes, device))
    tell(len(layers), "chains and reach")
    return ComplexityReport(
        rows,
        chain_lengths(sizes.chains),
        reaches(sizes.reach, sizes.layers),
        {kind: layers_needed(kind, sizes.reach) for kind in KINDS},
        sizes.reach,
        {"command": command, "notes": notes_of(sizes), "machine": device_name(device), **made_with()},
    )
