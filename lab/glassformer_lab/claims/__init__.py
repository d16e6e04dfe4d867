"""Claims of the literature, each put to the test by a command: `glassformer study NAME`. A claim is a TOML file and a trial."""

from glassformer_lab.claims.catalogue import NAMES, all_claims, claim_named
from glassformer_lab.claims.claim import BUDGETS, Claim
from glassformer_lab.claims.report import ClaimReport, run

__all__ = ["BUDGETS", "NAMES", "Claim", "ClaimReport", "all_claims", "claim_named", "run"]
