"""Claims of the literature, each put to the test by a command: `glassformer study NAME`."""

from glassformer.lab.claims.catalogue import STUDIES, study_named
from glassformer.lab.claims.conduct import StudyReport, conduct
from glassformer.lab.claims.study import EFFORTS, Effort, Results, Study, StudyResult

__all__ = ["EFFORTS", "STUDIES", "Effort", "Results", "Study", "StudyReport", "StudyResult", "conduct", "study_named"]
