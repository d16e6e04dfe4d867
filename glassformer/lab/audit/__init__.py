"""The laws of a Transformer against anyone's: `audit(find_subject(model))` gives a finding for each."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.lab.audit.laws import AuditResult, audit
from glassformer.lab.audit.making import build, parse_args
from glassformer.lab.audit.subject import find_subject


@cache
def known() -> dict[str, dict[str, dict[str, Any]]]:
    """What is said of every law and of every mistake, from mistakes.toml."""
    return tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))


def facts_of(finding: AuditResult) -> dict[str, Any]:
    """A finding with what is said of its law and its mistake: `verdict` is holds, broken, look or not asked."""
    about, mistake = known()["law"].get(finding.law, {}), known()["mistake"].get(finding.mistake, {})
    broken = "broken" if mistake.get("grave", True) else "look"
    verdict = "holds" if finding.holds else broken if finding.mistake else "not asked"
    erratum = f"docs/errata.md#{mistake['erratum']}" if "erratum" in mistake else ""
    said = {"says": mistake.get("says", ""), "cure": mistake.get("cure", ""), "erratum": erratum}
    measured = {"mistake": finding.mistake, "measured": finding.measured.strip(), "where": finding.where}
    return {"law": finding.law, "about": about.get("about", ""), "verdict": verdict, **measured, **said}


__all__ = ["AuditResult", "audit", "build", "facts_of", "find_subject", "known", "parse_args"]
