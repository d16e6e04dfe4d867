"""The verbs of the laboratory, found by the command line that is installed beside it."""

from __future__ import annotations

from glassformer.cli import verbs


def test_the_verbs_that_are_missed_are_the_verbs_that_there_are() -> None:
    """What the command line says of a laboratory that is not there is true of the one that is. Broken variant: a verb that is
    added here and not there."""
    (brought,) = verbs.tables()["glassformer_lab.cli"].values()
    assert set(verbs.LABORATORY) == {*brought, "ablate"}
    assert verbs.verb_named("verify-resume", "glassformer_lab.cli").__module__ == "glassformer_lab.cli.verify_resume"
