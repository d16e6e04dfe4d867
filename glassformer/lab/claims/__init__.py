"""Claims of the literature, each put to the test by a command: `glassformer study NAME`. A claim is a TOML file and a trial."""

from glassformer.lab.claims.catalogue import NAMES, all_claims, claim_named
from glassformer.lab.claims.claim import BUDGETS, Budget, Claim, Results
from glassformer.lab.claims.judgement import Judgement
from glassformer.lab.claims.run import ClaimReport, run

__all__ = [
    "BUDGETS",
    "NAMES",
    "Budget",
    "Claim",
    "ClaimReport",
    "Judgement",
    "Results",
    "all_claims",
    "claim_named",
    "run",
]
