"""Studies in which each arm has the value of a setting that is best for it: how those are planned, found and judged."""

from __future__ import annotations

import math
from pathlib import Path

from test_claims import MADE_UP

from glassformer_lab.claims import run
from glassformer_lab.claims.claim import Budget, Results, parse_claim
from glassformer_lab.claims.judgement import judge

TRIED: list[tuple[str, int, int]] = []


def by_rate(budget: Budget, size: str, rate: int, seed: int) -> dict[str, float]:
    TRIED.append((size, rate, seed))
    best = rate == {"a": 2, "b": 1}[size]
    return {"value": seed / 10, "val": (5.0 if seed else 0.0) if best else 1.0, "seconds": 1.0}


def test_a_setting_is_tuned_with_one_seed_and_the_best_value_goes_on_with_the_others(tmp_path: Path) -> None:
    """Each arm by itself; `count` knows how many trials that are; a study that was broken off goes on. Broken variants: every
    value with every seed; the other seeds at the first value, or at the other arm's; a value chosen anew among unequal seeds."""
    TRIED.clear()
    text = MADE_UP.replace("size = [1, 3]", 'size = ["a", "b"]\nrate = [1, 2, 3]\ntune = "rate"').replace(
        "counted", "by_rate"
    )
    text = text.replace("size = 3 }", 'size = "a" }').replace("size = 1 }", 'size = "b" }')
    claim, three = parse_claim(text, __name__), Budget("default", 3, 1.0)
    first = [(size, rate, 0) for size in "ab" for rate in (1, 2, 3)]
    later = [("a", 2, 1), ("a", 2, 2), ("b", 1, 1), ("b", 1, 2)]
    report = run(claim, three, tmp_path, jobs=1)
    assert first + later == TRIED and len(TRIED) == claim.count(three) == report.facts["trials"]
    run(claim, three, tmp_path, jobs=1)
    assert len(TRIED) == 10
    results = Results(tuple(({"size": s, "rate": r, "seed": n}, by_rate(three, s, r, n)) for s, r, n in first + later))
    assert [results.best("rate", size=size) for size in "ab"] == [2, 1]
    assert results.line("value", "rate", size="a") == ([1, 2, 3], [[0.0, 0.0, 0.0]])


def test_a_rate_at_which_trainings_diverge_is_not_the_best() -> None:
    """Broken variant: nan, which is below nothing and above nothing, so the first rate wins."""
    trials = [({"rate": rate, "seed": 0}, {"val": val}) for rate, val in ((0.1, math.nan), (0.2, 3.0), (0.4, 2.0))]
    results = Results(tuple(trials))
    assert results.best("rate") == 0.4
    assert results.mean_std("val", rate=0.1) == "diverged"


def test_each_arm_is_judged_at_the_value_that_is_best_for_it_on_validation_examples() -> None:
    """Broken variants: the value that is best on the test; one value for both arms."""
    rows = {("a", 1): (5.0, 1.0), ("a", 2): (4.0, 9.0), ("b", 1): (2.0, 7.0), ("b", 2): (3.0, 1.0)}  # val, loss
    results = Results(
        tuple(
            ({"size": arm, "rate": rate, "seed": seed}, {"val": val, "value": loss + seed / 100})
            for (arm, rate), (val, loss) in rows.items()
            for seed in (0, 1)
        )
    )
    text = (
        MADE_UP.replace("size = 3 }", 'size = "a" }')
        .replace("size = 1 }", 'size = "b" }')
        .replace('key = "value"\nours', 'key = "value"\ntune = "rate"\nours', 1)
    )
    found = judge(parse_claim(text, __name__), results).parts[0].conditions[0]
    assert found.detail.startswith("9.005 against 7.005")
