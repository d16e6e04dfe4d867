"""Claims of the literature, each put to the test by a command: `glassformer study NAME`."""

from glassformer.studies.claims.catalogue import STUDIES, study_named
from glassformer.studies.claims.conduct import Report, conduct
from glassformer.studies.claims.study import EFFORTS, Effort, Finding, Results, Study

__all__ = ["EFFORTS", "STUDIES", "Effort", "Finding", "Report", "Results", "Study", "conduct", "study_named"]
