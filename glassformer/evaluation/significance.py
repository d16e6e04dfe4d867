"""Whether a difference is more than luck: Student's t distribution, and intervals over seeds and over seeds and examples.

`p = I(x; ν/2, 1/2)` with `x = ν / (ν + t²)`, the regularized incomplete beta function, by its continued fraction (Lentz's
method; Press et al., Numerical Recipes, 6.4). Degrees of freedom need not be whole: Welch's are not.

Two kinds of luck are in a difference: which seeds were trained, and which examples are in the test set. The variance of the mean
difference is the sum of both: that of the differences of pairs that share a seed, over their number, and that of a paired
bootstrap over the examples, whose numbers are averaged over the seeds (bootstrap.py). The interval is Student's with
the degrees of freedom of such a sum (Welch 1947), but no more than two a seed after the first: the variance of few seeds is
itself luck, and where it comes out too small Welch would be too sure. (Resampling three seeds instead would give intervals
far too narrow: a bootstrap of three values knows no t.) With one seed the luck of training cannot be told, and nothing is
called better or worse.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from glassformer.evaluation.bootstrap import Combine, Interval, Paired, Statistics, paired_bootstrap

LEVEL = 0.95


def beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, which settles quickly for x < (a + 1) / (a + b + 2)."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or tiny)
    value = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def two_sided_p(t: float, free: float) -> float:
    """The chance of |T| >= |t| with so many degrees of freedom.

    >>> round(two_sided_p(2.0, 10), 4)
    0.0734
    """
    a, b, x = free / 2, 0.5, free / (free + t * t)
    if x in (0.0, 1.0):
        return x
    # Of either side of the symmetry I(x; a, b) = 1 - I(1 - x; b, a).
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * beta_fraction(a, b, x) / a
    return 1 - front * beta_fraction(b, a, 1 - x) / b


def half_width(free: float, level: float = LEVEL) -> float:
    """How many standard errors on either side hold the true mean with this confidence, found by halving.

    >>> round(half_width(3), 3), round(half_width(19), 3)
    (3.182, 2.093)
    """
    low, high = 0.0, 1.0
    while two_sided_p(high, free) > 1 - level:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, free) > 1 - level else (low, middle)
    return high


def seed_interval(differences: Sequence[float], level: float = LEVEL) -> tuple[float, float, float]:
    """Mean, and the ends of its interval (95%) over seeds; without a second seed there is no end.

    >>> low, high = seed_interval([1.0, 2.0, 3.0])[1:]
    >>> round(low, 2), round(high, 2)
    (-0.48, 4.48)
    """
    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return mean, -math.inf, math.inf
    half = half_width(len(differences) - 1, level) * statistics.stdev(differences) / math.sqrt(len(differences))
    return mean, mean - half, mean + half


def over_seeds(tables: Sequence[Statistics]) -> Statistics:
    """The numbers of each example, averaged over trainings."""
    return np.mean(np.stack(tables), axis=0)


def seeds_and_examples(first: Sequence[Statistics], second: Sequence[Statistics], combine: Combine) -> Paired:
    """Two arms by their trainings (paired by seed) on the same examples: the mean difference, its interval and its p."""
    found = paired_bootstrap(over_seeds(first), over_seeds(second), combine)
    scores = [[float(combine(table.sum(0, keepdims=True))[0]) for table in arm] for arm in (first, second)]
    changes = [b - a for a, b in zip(*scores, strict=True)]
    if len(changes) < 2:
        return found
    change = statistics.fmean(changes)
    of_seeds = statistics.variance(changes) / len(changes)
    of_examples = found.variance
    error = math.sqrt(of_seeds + of_examples)
    if error == 0:
        return replace(found, difference=Interval(change, change, change), p=0.0 if change else 1.0)
    welch = error**4 / (of_seeds**2 / (len(changes) - 1) + of_examples**2 / max(1, len(first[0]) - 1))
    free = min(welch, 2 * (len(changes) - 1))
    half = half_width(free) * error
    return replace(
        found, difference=Interval(change, change - half, change + half), p=two_sided_p(change / error, free)
    )
