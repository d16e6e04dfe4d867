"""Studies in which each arm has the value of a setting that is best for it: how those are found and judged."""

from __future__ import annotations

import math

from test_claims import MADE_UP

from glassformer_lab.claims.claim import Results, parse_claim
from glassformer_lab.claims.judgement import judge


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
