"""Is the model over there the model here? One report for every import and export.

On a sample of texts (a file, or the run's own test split) both sides are asked the same: the scores of every word at every
token of the reference answers, and what they write greedily and with a beam of four. The beam is
compared under the other runtime's rules of length and stopping, which our search takes on by name.

What counts as equal depends on the numbers the weights are written in (`LIMITS`): float32 must agree to rounding, and nearly
every answer must be the same; 16 and 8 bits lose something, and the report says how much.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from glassformer.errors import UserError
from glassformer.formats.huggingface.vocabulary import NEVER
from glassformer.formats.runtime import Case, OurRuntime, Runtime
from glassformer.language import _
from glassformer.tasks import TextModel

SAMPLE = 64  # texts, where there are as many
TOGETHER = 8  # texts whose scores are held at a time
UNREAL = NEVER / 2  # scores below are those of ids that can never be written
LONGEST = 64  # new tokens that a prompt of plain text is continued by


@dataclass(frozen=True)
class Tolerances:
    """What is still called equal: the largest difference of two scores, as a share of the largest score; the share of
    greedy and of beam answers that must be the same; by what factor perplexity may rise."""

    logits: float
    same: float
    perplexity: float


LIMITS = {"fp32": Tolerances(1e-3, 0.98, 1.001), "fp16": Tolerances(2e-2, 0.9, 1.01), "int8": Tolerances(0.5, 0.0, 1.1)}


class ParityFailed(UserError):
    """The two sides differ by more than they may; `report` says by how much."""

    def __init__(self, said: str, report: ParityReport) -> None:
        super().__init__(said)
        self.report = report


@dataclass
class ParityReport:
    """The worst difference, how many answers agree, and the verdict: `differs` says what is not the same, where something is."""

    format: str
    weights: str  # fp32, fp16 or int8
    sample: str
    texts: int
    theirs: str  # the program
    largest_logit_difference: float = 0.0
    largest_logit: float = 0.0
    perplexity: tuple[float, float] | None = None  # of the references here and there
    same_greedy: float | None = None
    same_beam: float | None = None
    same_ids: float | None = None  # of an import: texts that both tokenizers cut alike
    passed: bool = True
    differs: str | None = None
    notes: list[str] = field(default_factory=list)

    def conclude(self, differs: str | None) -> None:
        """The outcome: what differs, if anything."""
        self.differs, self.passed = differs, differs is None

    def save(self, folder: Path) -> None:
        """Writes the report into the folder as parity.json."""
        (folder / "parity.json").write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    def rows(self) -> list[tuple[str, str]]:
        """The report as a table: what, and how much."""
        rows = [
            (_("largest difference of two scores"), f"{self.largest_logit_difference:.2g}"),
            (_("largest score"), f"{self.largest_logit:.3g}"),
        ]
        shares = {
            _("texts cut alike"): self.same_ids,
            _("same greedy answers"): self.same_greedy,
            _("same beam-4 answers"): self.same_beam,
        }
        rows += [(name, f"{100 * value:.1f}%") for name, value in shares.items() if value is not None]
        if self.perplexity is not None:
            rows.append((_("perplexity here and there"), "{:.2f}, {:.2f}".format(*self.perplexity)))
        return rows

    def verdict(self) -> str:
        """Whether the other side computes what the run computes, in one sentence."""
        if not self.passed:
            return _("{theirs} does not say what the run says: {differs}", self.theirs, self.differs)
        how = self.weights, self.texts, self.sample
        return _("{theirs} says what the run says ({weights}, {texts} texts of {sample})", self.theirs, *how)


def share_of_same(here: Sequence[Sequence[int]], there: Sequence[Sequence[int]]) -> float:
    """How many of the answers are the same, token for token."""
    return sum(list(a) == list(b) for a, b in zip(here, there, strict=True)) / max(1, len(here))


class Logits:
    """The largest difference, and the perplexity of both sides, added up case by case."""

    def __init__(self) -> None:
        self.difference = self.largest = 0.0
        self.tokens, self.lost, self.same = 0, [0.0, 0.0], 0

    def add(self, case: Case, here: np.ndarray, there: np.ndarray) -> None:
        """One case: scores (T, V) of both."""
        if here.shape != there.shape:
            here = here[: len(there)]
        told = here > UNREAL  # an id that stands for nothing has no score to compare
        apart = np.abs(here.astype(np.float64) - there)[told]
        self.difference = max(self.difference, float(apart.max(initial=0))) if np.isfinite(apart).all() else math.inf
        self.largest = max(self.largest, float(np.abs(here[told]).max(initial=0)))
        self.same += int((here.argmax(-1) == there.argmax(-1)).all())
        if case.answer:
            for side, scores in enumerate((here, there)):
                chances = torch.from_numpy(scores).double().log_softmax(-1).numpy()
                self.lost[side] -= float(chances[np.arange(len(case.answer)), list(case.answer)].sum())
            self.tokens += len(case.answer)


def with_answers(cases: Sequence[Case], ours: OurRuntime, limit: int, reads_only: bool) -> list[Case]:
    """Where the sample has no references, what the model itself writes is the answer."""
    if reads_only or all(case.answer for case in cases):
        return list(cases)
    eos = ours.special.eos or 0
    written = ours.write([case.prompt for case in cases], beam=1, limit=limit)
    return [
        case if case.answer else replace(case, answer=(*ids, eos)) for case, ids in zip(cases, written, strict=True)
    ]


def compare(
    model: TextModel, theirs: Runtime, cases: Sequence[Case], report: ParityReport, long: Case | None = None
) -> ParityReport:
    """Fills in the report. `long`: a case whose scores alone are compared."""
    if not cases:
        raise UserError("there is no text to compare the two on; give a file of texts that fit the model by --sample")
    ours = OurRuntime(model, theirs.rules, theirs.special, cut_competes=theirs.cut_competes, prefix=theirs.prefix)
    reads_only = model.verb in ("fill", "classify", "tag", "embed")
    longest = max(len(case.answer or case.prompt) for case in cases)
    limit = min(LONGEST, 2 * longest + 8) if model.kind == "gpt" else 2 * longest + 8
    if not reads_only:
        limit = max(1, min(limit, model.model.config.block_size - max(len(c.prompt) for c in cases)))
        limit = limit if model.kind != "transformer" else min(2 * longest + 8, model.model.config.block_size - 1)
    cases = with_answers(cases, ours, limit, reads_only)
    found = Logits()
    for start in range(0, len(cases), TOGETHER):
        some = cases[start : start + TOGETHER]
        for case, here, there in zip(some, ours.logits(some), theirs.logits(some), strict=True):
            found.add(case, here, there)
    report.texts, report.notes = len(cases), [*report.notes, *theirs.lacks]
    report.largest_logit_difference, report.largest_logit = found.difference, found.largest
    if reads_only:
        report.same_greedy = found.same / len(cases)
    else:
        before, after = (math.exp(min(50.0, lost / max(1, found.tokens))) for lost in found.lost)
        report.perplexity = before, after
        prompts = [case.prompt for case in cases]
        report.same_greedy = share_of_same(*(side.write(prompts, beam=1, limit=limit) for side in (ours, theirs)))
        if "beam" not in " ".join(theirs.lacks):
            report.same_beam = share_of_same(*(side.write(prompts, beam=4, limit=limit) for side in (ours, theirs)))
    differs = difference(report)
    if differs is None and long is not None:
        found.add(long, ours.logits([long])[0], theirs.logits([long])[0])
        report.largest_logit_difference, report.largest_logit = found.difference, found.largest
        if (apart := difference(report)) is not None:
            differs = _("over {length:,} random tokens {differs}", len(long.answer or long.prompt), apart)
    report.conclude(differs)
    return report


def difference(report: ParityReport) -> str | None:
    """Where the two part, by the numbers of a report; None where they are equal."""
    limits = LIMITS[report.weights]
    gap, most = report.largest_logit_difference, limits.logits * max(1.0, report.largest_logit)
    if not gap <= most:
        return _("scores differ by {gap:.2g}, and {weights} may differ by {most:.2g}", gap, report.weights, most)
    here, there = report.perplexity or (1.0, 1.0)
    if there > limits.perplexity * here:
        return _("the references' perplexity is {there:.3f} there and {here:.3f} here", there, here)
    for name, value in (("greedy", report.same_greedy), ("beam-4", report.same_beam)):
        if value is not None and value < limits.same:
            return _(
                "its scores are the same (to {gap:.2g}), but only {value:.0f}% of its {name} answers are, so it is how "
                "answers are searched for that differs",
                gap,
                100 * value,
                name,
            )
    return None
