"""The verbs of the laboratory, found by the command line that is installed beside it."""

from __future__ import annotations

from glassformer.cli import verbs
from glassformer_lab.cli.verbs import VERBS


def test_the_verbs_that_are_missed_are_the_verbs_that_there_are() -> None:
    """What the command line says of a laboratory that is not there is true of the one that is. Broken variant: a verb that is
    added here and not there."""
    brought = {verbs.name_of(verb): verb for verb in VERBS["Ask what is true"]}
    assert set(verbs.LABORATORY) == {*brought, "ablate"} and verbs.groups()["Ask what is true"] == brought
