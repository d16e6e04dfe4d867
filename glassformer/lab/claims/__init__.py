"""Claims of the literature, each put to the test by a command: `glassformer study NAME`. A claim is a TOML file and a trial."""

from glassformer.lab.claims.catalogue import NAMES, all_claims, claim_named
from glassformer.lab.claims.claim import BUDGETS, Claim
from glassformer.lab.claims.report import ClaimReport, run

__all__ = ["BUDGETS", "NAMES", "Claim", "ClaimReport", "all_claims", "claim_named", "run"]
