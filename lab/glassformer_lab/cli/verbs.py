"""The verbs of the laboratory under their heading of `glassformer --help`."""

from __future__ import annotations

from glassformer_lab.cli.audit import audit
from glassformer_lab.cli.complexity import complexity
from glassformer_lab.cli.homework import homework
from glassformer_lab.cli.museum import museum
from glassformer_lab.cli.reproduce import reproduce
from glassformer_lab.cli.study import study
from glassformer_lab.cli.sweep import sweep
from glassformer_lab.cli.verify_resume import verify_resume

ALL = (study, sweep, reproduce, complexity, verify_resume, audit, museum, homework)
VERBS = {"Ask what is true": ALL}
