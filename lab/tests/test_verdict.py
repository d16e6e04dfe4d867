"""The rule of the verdict, on made-up results."""

from __future__ import annotations

import math
import statistics

import pytest
import torch

from glassformer.evaluation.significance import seed_interval, two_sided_p
from glassformer_lab.verdict import Condition, better, exactly, verdict, verdict_told

TEXT = "it is so"


@pytest.mark.parametrize(
    ("more", "less", "outcome"),
    [
        ([5.0, 5.2, 4.9], [1.0, 1.1, 0.9], "holds"),  # far apart, little spread
        ([1.01, 1.02, 1.03], [1.0, 1.0, 1.0], "fails"),  # a difference, and none that matters
        ([1.0, 1.1, 0.9], [5.0, 5.2, 4.9], "fails"),  # the other way round
        ([9.0, 0.0, 5.0], [1.0, 1.0, 1.0], "open"),  # luck could do that
        ([1.6, 1.5, 1.8], [1.0, 1.0, 1.1], "open"),  # above zero for certain, above the margin perhaps
        ([9.0], [1.0], "open"),  # one seed settles nothing
    ],
)
def test_a_condition_is_judged_over_seeds(more: list[float], less: list[float], outcome: str) -> None:
    assert better(TEXT, more, less, margin=0.5).outcome == outcome
    told = better(TEXT, less, more, margin=0.5, less_is_better=True)  # the same differences seen from the other side
    assert told.outcome == outcome and told.detail.startswith(f"{sum(less) / len(less):.4g} against")
    assert told.detail.endswith("margin -0.5")


def test_the_rule_is_symmetric() -> None:
    """'A beats B by the margin' holds just where 'B is no more than it behind A' fails, for any numbers. Broken variant: it
    holds by the mean and fails by the interval."""
    draw = torch.Generator().manual_seed(0)
    opposite = {"holds": "fails", "fails": "holds", "open": "open"}
    seen = set()
    for _ in range(200):
        a, b = (torch.randn(2, 4, generator=draw) * 0.3 + torch.tensor([[1.0], [0.7]])).tolist()
        found = better(TEXT, a, b, margin=0.2).outcome
        assert better(TEXT, b, a, margin=-0.2).outcome == opposite[found]
        seen.add(found)
    assert seen == {"holds", "fails", "open"}


@pytest.mark.parametrize(
    ("ours", "outcome"),
    [
        ([97.0, 97.2, 96.9], "holds"),  # a point worse, all of the interval within two
        ([99.0, 99.1, 98.9], "holds"),  # better
        ([93.0, 93.2, 92.9], "fails"),  # five points worse
        ([99.0, 94.0, 97.0], "open"),  # who knows
        ([97.0], "open"),  # one seed settles nothing
    ],
)
def test_as_good_but_for_a_slack(ours: list[float], outcome: str) -> None:
    theirs = [98.0, 98.1, 98.0][: len(ours)]
    found = better(TEXT, ours, theirs, margin=-2.0)
    losses = better(TEXT, [-one for one in ours], [-one for one in theirs], margin=-2.0, less_is_better=True)
    assert found.outcome == losses.outcome == outcome
    assert found.detail.startswith(f"{sum(ours) / len(ours):.4g} against 98")
    assert better(TEXT, ours, theirs, margin=-2.0, learned=99.9).outcome == "void"
    assert better(TEXT, ours, theirs, margin=-2.0, ceiling=90.0).outcome == outcome, "the best evidence there is"


def test_where_nothing_was_learned_or_all_of_it_the_condition_is_void() -> None:
    """By the better arm below what counts as learned, by the worse arm at the ceiling; losses the other way round. Broken
    variants: either arm; a ceiling for losses at the wrong end."""
    low, high = [0.0, 0.1], [60.0, 60.1]
    assert better(TEXT, low, low, margin=5.0).outcome == "fails"
    assert better(TEXT, low, low, margin=5.0, learned=20.0).outcome == "void"
    assert better(TEXT, high, low, margin=5.0, learned=20.0).outcome == "holds"
    assert better(TEXT, [99.9, 100.0], [99.8, 99.7], margin=5.0, ceiling=99.5).outcome == "void"
    assert better(TEXT, [99.9, 100.0], high, margin=5.0, ceiling=99.5).outcome == "holds"
    worse, fine = [2.9, 2.8], [1.0, 1.01]
    assert better(TEXT, worse, worse, margin=0.1, less_is_better=True, learned=2.3).outcome == "void"
    assert better(TEXT, fine, worse, margin=0.1, less_is_better=True, learned=2.3).outcome == "holds"


def test_trainings_that_diverged_are_the_worst_by_a_loss_and_no_number_otherwise() -> None:
    """Broken variants: a mean of nan, under which every comparison is false; divergence that counts for neither arm."""
    fine, gone, some = [1.0, 1.1, 0.9], [math.nan] * 3, [1.0, math.inf, 1.1]
    assert better(TEXT, fine, gone, margin=0.1, less_is_better=True).outcome == "holds"
    assert better(TEXT, gone, fine, margin=0.1, less_is_better=True).outcome == "fails"
    assert better(TEXT, fine, some, margin=0.1, less_is_better=True).outcome == "open"
    assert better(TEXT, gone, gone, margin=0.1, less_is_better=True).outcome == "open"
    larger = better(TEXT, gone, [2.0] * 3, margin=0.0)
    assert larger.outcome == "void" and larger.detail == "3 of 3 trainings diverged"


def test_many_looks_widen_the_interval() -> None:
    """Bonferroni: m conditions, each at 5% / m; so of many claims in which nothing is so, no more than one in twenty has a
    condition that says so. Broken variant: 5% for each (about one in four of those below)."""
    assert better(TEXT, [1.0, 1.2, 1.1], [0.8, 0.8, 0.8], margin=0.0).outcome == "holds"
    assert better(TEXT, [1.0, 1.2, 1.1], [0.8, 0.8, 0.8], margin=0.0, looks=12).outcome == "open"
    draw, looks, claims = torch.Generator().manual_seed(1), 12, 200
    wrong = 0
    for _ in range(claims):
        arms = torch.randn(looks, 2, 5, generator=draw).tolist()
        wrong += any(better(TEXT, a, b, margin=0.0, looks=looks).outcome == "holds" for a, b in arms)
    assert wrong <= 0.05 * claims


# From a printed table of Student's t, to its last digit: degrees of freedom, 97.5% point.
TABLE = [
    (1, 12.706),
    (2, 4.303),
    (3, 3.182),
    (9, 2.262),
    (15, 2.131),
    (16, 2.120),
    (19, 2.093),
    (29, 2.045),
    (99, 1.984),
]


@pytest.mark.parametrize(("free", "point"), TABLE)
def test_the_interval_is_student_s(free: int, point: float) -> None:
    """Against a table, for any number of seeds. Broken variant: the normal's 1.96 beyond sixteen."""
    values = [float(v % 7) for v in range(free + 1)]
    mean, low, high = seed_interval(values)
    half = point * statistics.stdev(values) / math.sqrt(len(values))
    assert mean == pytest.approx(statistics.fmean(values)) and high - mean == pytest.approx(half, rel=2.5e-4)
    assert mean - low == pytest.approx(high - mean)


def test_student_s_tails() -> None:
    """Closed forms: with one degree of freedom it is Cauchy's, with two 1 - t / √(2 + t²); with very many the normal's."""
    for t in (1e-3, 0.5, 2.0, 40.0):
        assert two_sided_p(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-9)
        assert two_sided_p(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)
    assert two_sided_p(1.3, 1e6) == pytest.approx(math.erfc(1.3 / math.sqrt(2)), rel=1e-5)
    assert two_sided_p(0.0, 5) == 1.0


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        (["holds", "holds"], "holds (2 of 2)"),
        (["holds"] * 5 + ["fails"], "holds (5 of 6)"),
        (["holds"] * 3 + ["fails"] * 4, "mixed (3 of 7)"),
        (["holds"] + ["fails"] * 11, "does not hold (1 of 12)"),
        (["fails"] * 5 + ["open"], "does not hold (0 of 6)"),
        (["holds", "open"], "not settled (1 of 2)"),
        (["holds", "fails", "open"], "mixed (1 of 3)"),
        (["fails", "fails", "open"], "does not hold (0 of 3)"),
        (["open", "fails"], "not settled (0 of 2)"),
        (["holds", "void", "void"], "holds (1 of 1, 2 void)"),
        (["void"], "not settled (0 of 0, 1 void)"),
        ([], "not settled (0 of 0)"),
    ],
)
def test_the_verdict_follows_from_the_conditions(outcomes: list[str], said: str) -> None:
    """And turned round it is the other verdict. Broken variant: one condition in twelve makes a claim hold at times."""
    turned = {"holds": "fails", "fails": "holds"}
    found = [Condition(TEXT, outcome) for outcome in outcomes]  # type: ignore[arg-type]
    assert verdict_told(found) == said
    opposite = [Condition(TEXT, turned.get(one, one)) for one in outcomes]  # type: ignore[arg-type]
    of = {"holds": "does not hold", "does not hold": "holds"}
    assert verdict(opposite) == of.get(verdict(found), verdict(found))


def test_values_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        better(TEXT, [1.0, 2.0], [1.0], margin=0.0)
    assert exactly(TEXT, False).outcome == "fails"
