"""When a claim holds: one rule for all experiments, over seeds.

A claim is made into conditions, each of them a number that should be larger under one arm than under the other, by at
least a margin that matters. A condition is judged by the differences of the pairs that share a seed:

    interval = mean ± t(0.975, n - 1) · s / √n

It **holds** if the interval lies above zero and the mean reaches the margin; it **fails** if the interval lies below the
margin, so that a difference that matters is ruled out (or is the other way round); otherwise it is **open**. One seed
settles nothing, nor do two arms that have both learned nothing. Whether one arm is as good as another but for a slack is
judged by the same interval: it holds if the whole of it is within the slack, and fails if all of it is beyond. What needs
no luck (a count, a bound, an identity) is settled by `exactly`.

A claim whose conditions all hold *holds*; if some do, it *holds when*; if all fail, it *does not hold*; else it is *not
settled*.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from glassformer.evaluation.significance import seed_interval
from glassformer.language import _

OUTCOMES = (_("holds"), _("fails"), _("open"))
VERDICT_WORDS = (_("holds"), _("holds when"), _("does not hold"), _("not settled"))
Outcome = Literal["holds", "fails", "open"]
Verdict = Literal["holds", "holds when", "does not hold", "not settled"]


class Bilingual(NamedTuple):
    """The same sentence in English and in Chinese.

    >>> Bilingual("attention", "注意力").in_language("zh")
    '注意力'
    """

    en: str
    zh: str

    def in_language(self, language: str) -> str:
        """The sentence in that language; English for any that there is none of."""
        return self.zh if language == "zh" else self.en


VERDICTS: dict[str, Bilingual] = {
    "holds": Bilingual("holds", "成立"),
    "holds when": Bilingual("holds when", "有条件地成立"),
    "does not hold": Bilingual("does not hold", "不成立"),
    "not settled": Bilingual("not settled", "尚无定论"),
}


@dataclass(frozen=True)
class Condition:
    """One thing that would have to be so, and whether it was."""

    text: Bilingual
    outcome: Outcome
    detail: str = ""  # the numbers it was judged by


def numbers(one: Sequence[float], other: Sequence[float], unit: str, found: tuple[float, float, float]) -> str:
    """The means of both arms, their difference and its interval, in words."""
    mean, low, high = found
    spread = f" [{low:+.3g}, {high:+.3g}]" if math.isfinite(low) else " (one seed)"
    return f"{statistics.fmean(one):.4g}{unit} against {statistics.fmean(other):.4g}{unit}: {mean:+.3g}{spread}"


def larger(
    text: Bilingual,
    more: Sequence[float],
    less: Sequence[float],
    *,
    margin: float,
    unit: str = "",
    learned: float | None = None,
) -> Condition:
    """Whether `more` is larger than `less` by at least `margin`; the two are paired by seed. `learned`: a score that one of the
    two must reach, for where neither has learned anything there is nothing to compare, and the condition is open."""
    if len(more) != len(less) or not more:
        raise ValueError(f"{text.en}: {len(more)} and {len(less)} values are no pairs")
    mean, low, high = seed_interval([a - b for a, b in zip(more, less, strict=True)])
    outcome: Outcome
    if learned is not None and max(statistics.fmean(more), statistics.fmean(less)) < learned:
        outcome = "open"
    elif low > 0 and mean >= margin:
        outcome = "holds"
    elif high < margin:
        outcome = "fails"
    else:
        outcome = "open"
    return Condition(text, outcome, numbers(more, less, unit, (mean, low, high)))


def smaller(
    text: Bilingual, less: Sequence[float], more: Sequence[float], *, margin: float, unit: str = ""
) -> Condition:
    """Whether `less` is smaller than `more` by at least `margin`, as a loss should be; told with the smaller one first.

    >>> smaller(Bilingual("a", "b"), [1.0, 1.1, 0.9], [2.0, 2.2, 2.1], margin=0.5).detail
    '1 against 2.1: -1.1 [-1.35, -0.852]'
    """
    outcome = larger(text, more, less, margin=margin).outcome
    return Condition(
        text, outcome, numbers(less, more, unit, seed_interval([a - b for a, b in zip(less, more, strict=True)]))
    )


def within(
    text: Bilingual,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    slack: float,
    unit: str = "",
    learned: float | None = None,
    less_is_better: bool = False,
) -> Condition:
    """Whether `ours` is at most `slack` worse than `theirs`: it holds if the whole interval is, and fails if none of it is.

    >>> within(Bilingual("a", "b"), [97.0, 98.0, 97.5], [98.0, 99.0, 98.2], slack=2.0, unit="%").outcome
    'holds'
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"{text.en}: {len(ours)} and {len(theirs)} values are no pairs")
    mean, low, high = seed_interval([a - b for a, b in zip(ours, theirs, strict=True)])
    worst, best = (high, low) if less_is_better else (-low, -high)  # how much worse it is, at most and at least
    outcome: Outcome = "holds" if worst < slack else "fails" if best > slack else "open"
    if learned is not None and max(statistics.fmean(ours), statistics.fmean(theirs)) < learned:
        outcome = "open"
    return Condition(text, outcome, numbers(ours, theirs, unit, (mean, low, high)))


def exactly(text: Bilingual, is_so: bool, detail: str = "") -> Condition:
    """Something that luck has no part in."""
    return Condition(text, "holds" if is_so else "fails", detail)


def verdict(conditions: Sequence[Condition]) -> Verdict:
    """The verdict on a claim from those on its conditions."""
    outcomes = [condition.outcome for condition in conditions]
    if outcomes and all(outcome == "holds" for outcome in outcomes):
        return "holds"
    if "holds" in outcomes:
        return "holds when"
    if outcomes and all(outcome == "fails" for outcome in outcomes):
        return "does not hold"
    return "not settled"


def against_base(low: float, high: float, seeds: int, *, less_is_better: bool = False) -> str:
    """better, worse or unclear, by the interval of the difference to a base: on one side of zero, over two seeds or more.

    >>> against_base(0.1, 0.9, 3), against_base(0.1, 0.9, 3, less_is_better=True), against_base(0.1, 0.9, 1)
    ('better', 'worse', 'unclear')
    """
    if seeds < 2 or low <= 0 <= high:
        return "unclear"
    return "better" if (low > 0) != less_is_better else "worse"


def reaches_goal(value: float, goal: float, *, less_is_better: bool = False) -> bool:
    """Whether a score is as good as a goal that was set for it."""
    return value <= goal if less_is_better else value >= goal
