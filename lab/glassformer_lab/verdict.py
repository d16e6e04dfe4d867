"""When a claim holds: one rule for all experiments, over seeds, fixed before anything is run.

A claim is made into conditions: a number that should be better under one arm than under the other by at least a margin, which
its file names and its report prints. A condition is judged by the differences of the pairs that share a seed:

    interval = mean ± t(1 - α/2, n - 1) · s / √n,    α = 5% / m for a claim of m such conditions (Bonferroni: m looks, one α)

It **holds** if the whole interval lies above the margin, **fails** if the whole of it lies below, and is **open** if the margin
is inside; so a claim and its opposite are judged alike. That one arm is as good as another but for a slack is the same rule with
a negative margin. One seed settles nothing. A condition is **void**, and does not count, where neither arm has learned anything
(nothing is as good as nothing, and that says nothing), and where both are at a ceiling and one of them should be better: the
task was too easy to tell them apart. That one is as good as the other is best seen there, so a slack knows no ceiling. Where
all trainings of one arm diverged, it is the worse one by its loss. What needs no luck (a count, a bound, an identity) is
settled by `exactly`.

Of the conditions that count, three quarters or more that hold: the claim *holds*; three quarters or more that fail: it *does
not hold*; else, where half or more are open, it is *not settled*. Of what is left it *does not hold* where no condition does,
*holds* where none fails, and is *mixed* where some hold and some fail. The numbers are told: holds (5 of 6).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from glassformer.evaluation.significance import LEVEL, seed_interval
from glassformer.language import _

Outcome = Literal["holds", "fails", "open", "void"]
Verdict = Literal["holds", "mixed", "does not hold", "not settled"]
WORDS = (_("holds"), _("fails"), _("open"), _("void"), _("mixed"), _("does not hold"), _("not settled"))
"""The same, for those who translate."""
MOST = 0.75  # the share of conditions that decides


@dataclass(frozen=True)
class Condition:
    """One thing that would have to be so, and whether it was."""

    text: str
    outcome: Outcome
    detail: str = ""  # the numbers it was judged by


def better(
    text: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    margin: float,
    unit: str = "",
    less_is_better: bool = False,
    learned: float | None = None,
    ceiling: float | None = None,
    looks: int = 1,
) -> Condition:
    """Whether `ours` is better than `theirs` by at least `margin` (negative: at most so much worse), paired by seed. Void where
    neither mean is as good as `learned`, and, unless equality is what is claimed, where both are as good as `ceiling`. `looks`:
    conditions judged in this claim.

    >>> better("a", [1.0, 1.1, 0.9], [2.0, 2.2, 2.1], margin=0.5, less_is_better=True).detail
    '1 against 2.1: -1.1 [-1.35, -0.852], margin -0.5'
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"{text}: {len(ours)} and {len(theirs)} values are no pairs")
    lost = [sum(not math.isfinite(value) for value in arm) for arm in (ours, theirs)]
    if any(lost):  # a training that diverged is the worst by a loss; of anything else there is no number
        apart = less_is_better and sorted(lost) == [0, len(ours)]
        outcome: Outcome = ("holds" if lost[1] else "fails") if apart else "open" if less_is_better else "void"
        told = f"{lost[0]} and {lost[1]}" if lost[1] else str(lost[0])
        return Condition(text, outcome, f"{told} of {len(ours)} trainings diverged")
    sign = -1 if less_is_better else 1
    level = 1 - (1 - LEVEL) / max(1, looks)
    mean, low, high = seed_interval([sign * (a - b) for a, b in zip(ours, theirs, strict=True)], level)
    outcome = "holds" if low >= margin else "fails" if high < margin else "open"
    best, worst = (pick(sign * statistics.fmean(arm) for arm in (ours, theirs)) for pick in (max, min))
    if learned is not None and best < sign * learned:
        outcome = "void"
    if ceiling is not None and margin >= 0 and worst >= sign * ceiling:
        outcome = "void"
    ends = sorted((sign * low, sign * high))
    spread = f" [{ends[0]:+.3g}, {ends[1]:+.3g}]" if math.isfinite(low) else " (one seed)"
    means = f"{statistics.fmean(ours):.4g}{unit} against {statistics.fmean(theirs):.4g}{unit}"
    return Condition(text, outcome, f"{means}: {sign * mean:+.3g}{spread}, margin {sign * margin:+g}")


def exactly(text: str, is_so: bool, detail: str = "") -> Condition:
    """Something that luck has no part in."""
    return Condition(text, "holds" if is_so else "fails", detail)


def counted(conditions: Sequence[Condition]) -> dict[Outcome, int]:
    """How many conditions came out each way."""
    outcomes = [condition.outcome for condition in conditions]
    return {outcome: outcomes.count(outcome) for outcome in ("holds", "fails", "open", "void")}


def verdict(conditions: Sequence[Condition]) -> Verdict:
    """The verdict on a claim from those on its conditions."""
    count = counted(conditions)
    total = len(conditions) - count["void"]
    if not total:
        return "not settled"
    if count["holds"] >= MOST * total:
        return "holds"
    if count["fails"] >= MOST * total:
        return "does not hold"
    if count["open"] >= total / 2:
        return "not settled"
    return "does not hold" if not count["holds"] else "mixed" if count["fails"] else "holds"


def verdict_told(conditions: Sequence[Condition]) -> str:
    """The verdict with how many of the conditions that count hold.

    >>> str(verdict_told([Condition("a", "holds"), Condition("b", "void")]))
    'holds (1 of 1, 1 void)'
    """
    count = counted(conditions)
    numbers = {"held": count["holds"], "total": len(conditions) - count["void"], "verdict": _(verdict(conditions))}
    if count["void"]:
        return _("{verdict} ({held} of {total}, {void} void)", void=count["void"], **numbers)
    return _("{verdict} ({held} of {total})", **numbers)


def against_base(low: float, high: float, seeds: int, *, less_is_better: bool = False) -> str:
    """better, worse or unclear, by the interval of the difference to a base: on one side of zero, over two seeds or more.

    >>> against_base(0.1, 0.9, 3), against_base(0.1, 0.9, 3, less_is_better=True), against_base(0.1, 0.9, 1)
    ('better', 'worse', 'unclear')
    """
    if seeds < 2 or low <= 0 <= high:
        return "unclear"
    return "better" if (low > 0) != less_is_better else "worse"
