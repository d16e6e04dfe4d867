"""The laws of a Transformer against anyone's: `audit(find_subject(model))` gives a finding for each."""

from __future__ import annotations

from typing import Any

from glassformer_lab.audit.laws import audit
from glassformer_lab.audit.making import AuditResult, build, known, parse_args
from glassformer_lab.audit.subject import find_subject


def facts_of(finding: AuditResult) -> dict[str, Any]:
    """A finding with what is said of its law and its mistake: `verdict` is holds, broken, look or not asked."""
    about, mistake = known()["law"].get(finding.law, {}), known()["mistake"].get(finding.mistake, {})
    broken = "broken" if mistake.get("grave", True) else "look"
    verdict = "holds" if finding.holds else broken if finding.mistake else "not asked"
    erratum = f"docs/errata.md#{mistake['erratum']}" if "erratum" in mistake else ""
    said = {"says": mistake.get("says", ""), "cure": mistake.get("cure", ""), "erratum": erratum}
    measured = {"mistake": finding.mistake, "measured": finding.measured.strip(), "where": finding.where}
    return {"law": finding.law, "about": about.get("about", ""), "verdict": verdict, **measured, **said}


def report(target: str, args: list[str], vocab: int, kind: str, time_first: bool) -> dict[str, Any]:
    """A model that is made, called and audited, as a JSON-serialisable dict."""
    model = build(target, parse_args(args), vocab)
    subject = find_subject(model, vocab=vocab, kind=kind, time_first=time_first)
    facts = {"model": target, "called": subject.called, "kind": subject.kind, "vocab_size": subject.vocab}
    return {**facts, "laws": [facts_of(finding) for finding in audit(subject)]}


__all__ = ["AuditResult", "audit", "build", "facts_of", "find_subject", "known", "parse_args", "report"]
