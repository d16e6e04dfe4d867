"""Student's t distribution: how likely a mean is to stray so many of its standard errors from the true one.

`p = I(x; ν/2, 1/2)` with `x = ν / (ν + t²)`, the regularized incomplete beta function, by its continued fraction (Lentz's
method; Press et al., Numerical Recipes, 6.4). Degrees of freedom need not be whole: Welch's are not.
"""

from __future__ import annotations

import math

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
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )  # of either side of the symmetry I(x; a, b) = 1 - I(1 - x; b, a)
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
