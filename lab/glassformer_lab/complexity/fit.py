"""An exponent from measurements: y = a x^p, by least squares on the logarithms.

A cost law holds where its largest term is all that counts, so only the asymptotic part is fitted. The rule: the larger half of
the sizes (by their number, at least four), since what is fixed or grows more slowly weighs least there. The standard error is
that of a straight line's slope: from what the points stray from it, with n - 2 degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST = 4


@dataclass(frozen=True)
class Exponent:
    """The power, its standard error, and how many points it rests on."""

    value: float
    error: float
    points: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def asymptotic(
    sizes: Sequence[int | float], values: Sequence[int | float]
) -> tuple[list[int | float], list[int | float]]:
    """The larger half of the sizes with their values, four at least, in order."""
    ordered = sorted(zip(sizes, values, strict=True))
    kept = ordered[-max(LEAST, math.ceil(len(ordered) / 2)) :]
    return [size for size, _ in kept], [value for _, value in kept]


def fit_exponent(sizes: Sequence[int | float], values: Sequence[int | float]) -> Exponent:
    """The slope of log y over log x in the asymptotic part.

    >>> fit_exponent([1, 2, 4, 8], [3, 12, 48, 192]).value
    2.0
    """
    if len(set(sizes)) < 3 or min(values) <= 0:
        raise ValueError("an exponent is fitted to three sizes at least and to values above zero")
    kept, measured = asymptotic(sizes, values)
    x, y = np.log(kept), np.log(measured)
    centred = x - x.mean()
    slope = float((centred * y).sum() / (centred**2).sum())
    stray = y - y.mean() - slope * centred
    free = max(1, len(x) - 2)
    return Exponent(round(slope, 12), float(np.sqrt((stray**2).sum() / free / (centred**2).sum())), len(x))
