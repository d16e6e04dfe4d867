"""From pairs to a better translator by itself: clean, train, translate text back, fine-tune, average.

Each step makes a candidate, and candidate and best so far answer the same validation pairs. It is kept if the 95% interval of
the difference, by a paired bootstrap, lies above zero; otherwise it is refused, and told with its numbers all the same. (Below
a score of 1 of 100 nothing is kept: both have learned nothing.) Later candidates learn from the cleaned pairs where these scored
higher, if only a little. The test pairs are scored once, in the end: the plain recipe
and what was kept. What is done is in a journal (runs/runner.py), so that the same command goes on where it was broken off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer import runs
from glassformer.api import load
from glassformer.api.evaluation import file_settings
from glassformer.config import Recipe
from glassformer.config.changes import fine_tuned
from glassformer.config.recipe import apply_overrides
from glassformer.data.cleaning import need_extra
from glassformer.data.first_recipe import first_recipe, recipe_for
from glassformer.data.sources import open_split
from glassformer.errors import ConfigError, UserError
from glassformer.files.durable import sha256
from glassformer.files.owned import OwnedFiles
from glassformer.improve.held_out import as_asked, check_text, prepare_pairs, read_jsonl, write_mono
from glassformer.improve.trial import (
    Answered,
    WritePairs,
    answered,
    compared,
    metric_for,
    train_or_resume,
    writing_speed,
)
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.runs.plan import make_plan
from glassformer.runs.report import made_with, markdown_table, processor, write_report
from glassformer.runs.runner import KEPT, TrialCall, run_trials
from glassformer.screen import say

SHARES = {"plain": 0.2, "clean": 0.2, "reverse": 0.12, "translate": 0.1, "back-translated": 0.25}
SHARES |= {"fine-tuned": 0.06, "averaged": 0.06}
"""Of the time; without text to translate back, that of its three steps goes to the others."""
NEED_TEXT = ("reverse", "translate", "back-translated")
FEWEST_STEPS, FEWEST_LINES = 10, 100
LATER = 5  # a fine-tuning has a fifth of the steps of a training
AVERAGED = 5  # snapshots
MOST_TEXT = 5  # synthetic pairs to a real one, at most
MOST_STEPS = 2  # times the recipe's own, for the training that has synthetic pairs, too
TRIED = 64  # sentences by which the speed of the reverse model is measured, or so many times four, and four again
TAG = "<bt>"
LEARNED = 1.0  # of 100: a score below is noise, and nothing is kept for it
FILES = ("raw", "clean", "val", "test")


@dataclass
class Improvement:
    """One improvement at work: its folder, what was chosen and what is the best so far."""

    out: Path
    device: str
    seconds: float
    has_text: bool
    overrides: Sequence[str]
    best: str = "plain"
    data: str = "raw"
    metric: str = "bleu"
    steps: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[tuple[str, str], Answered] = field(default_factory=dict)

    def file(self, name: str) -> Path:
        """Where pairs lie."""
        return (self.out / f"{name}.jsonl").absolute()

    def journal(self, step: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What a step found: from an earlier time, or now."""
        call = TrialCall(lambda step: work(), (), {"step": step})
        measured = run_trials("improve", {step: call}, self.out / KEPT, 1)[step].measured
        return {name: value for name, value in measured.items() if name != "seconds"}

    def share(self, step: str) -> float:
        """Seconds that a step may take."""
        used = {name: part for name, part in SHARES.items() if self.has_text or name not in NEED_TEXT}
        return self.seconds * used[step] / sum(used.values())

    def values(self) -> dict[str, Any]:
        """The tables of the recipe that every training from nothing has: chosen by the data, changed by the command line."""
        values = first_recipe([self.file("raw")], "pairs", self.overrides, device=self.device).values
        values["data"] |= {"val": str(self.file("val")), "test": str(self.file("test"))}
        values["train"]["device"] = self.device
        apply_overrides(values, list(self.overrides))
        return values

    def step_seconds(self) -> float:
        """How long a step of a training takes here, measured."""
        plan = make_plan(Recipe.from_dict(self.values()), seconds=2.0)
        if plan.tokens_per_second is None:
            raise UserError("the chosen model does not fit this machine: {advice}", plan.advice)
        return plan.step_tokens / plan.tokens_per_second

    def trained(self, name: str, train: Any, times: float = 1, **data: Any) -> RunFolder:
        """A training from nothing on these files, of so many steps as there is time for, but at most so many `times` the recipe's
        own."""
        speed = self.journal("speed", lambda: {"step_seconds": self.step_seconds()})["step_seconds"]
        values = self.values()
        chosen = Recipe.from_dict(values).train
        most = round(chosen.steps * times)
        steps = max(min(most, FEWEST_STEPS), min(most, int(self.share(name) / speed)))
        values["data"] |= {"train": train, **data}
        values["train"] |= {"steps": steps, "warmup": min(chosen.warmup, steps // 5)}
        values["train"] |= {"validate_every": max(1, steps // 10), "save_every": max(1, steps // 5)}
        return train_or_resume(Recipe.from_dict(values, name=name), self.out / name)

    def tuned(self, name: str, **train: Any) -> RunFolder:
        """A training that goes on from the best run so far, on the real pairs, at a tenth of its rate."""
        start = runs.RunFolder.open(self.out / self.best)
        steps = max(1, start.recipe.train.steps // (1 if self.best == "fine-tuned" else LATER))
        every = max(1, steps // AVERAGED)
        own = {"steps": steps, "warmup": 0, "validate_every": every, "save_every": every, "device": self.device}
        keys = ("batch_tokens", "layout", "row_width")
        data = {key: value for key, value in start.recipe.to_dict()["data"].items() if key in keys}
        data |= {"train": str(self.file(self.data)), "val": str(self.file("val")), "test": str(self.file("test"))}
        smoothing = {"label_smoothing": start.recipe.train.label_smoothing}
        recipe = fine_tuned(start.recipe, {"data": data, "train": own | smoothing | train}, name=name)
        return train_or_resume(recipe, self.out / name, start)

    def answer(self, run: str, split: str) -> Answered:
        """What a run says to held-out pairs; asked once."""
        key = run, split
        if key not in self.answers:
            pairs = read_jsonl(self.file(split))
            self.answers[key] = answered(self.out / run, pairs, self.metric, self.device)
        return self.answers[key]

    def consider(self, step: str, make: Callable[[], RunFolder]) -> float:
        """A candidate beside the best so far on the validation pairs, whose place it takes if its gain is certain; its gain."""

        def trial() -> dict[str, Any]:
            make()
            paired = compared(self.answer(self.best, "val"), self.answer(step, "val"))
            kept = paired.difference.low > 0 and paired.second.value >= LEARNED
            return {"against": self.best, **paired.to_dict(), "kept": kept}

        found = self.journal(step, trial)
        self.steps.append({"step": step, **found})
        if found["kept"]:
            self.best = step
        gain = found["difference"]
        numbers = {"gain": gain["value"], "low": gain["low"], "high": gain["high"]}
        verdict = _("kept") if found["kept"] else _("refused")
        say(_("{step}: {gain:+.2f} [{low:+.2f}, {high:+.2f}]: {verdict}", step=step, verdict=verdict, **numbers))
        return float(gain["value"])

    def back_translated(self, text: Path, write_pairs: WritePairs) -> RunFolder:
        """A training on real pairs and on text that a reverse model has translated."""
        real = str(self.file(self.data))
        self.trained("reverse", real, swap=True)
        targets = [target for _source, target in read_jsonl(self.file("val"))][:TRIED]

        def tried() -> dict[str, Any]:
            return {"speed": writing_speed(load(self.out / "reverse", device=self.device), targets)}

        speed = self.journal("reverse", tried)["speed"]
        pairs = len(read_jsonl(self.file(self.data)))
        most = min(MOST_TEXT * pairs, max(FEWEST_LINES, int(speed * self.share("translate"))))
        held = read_jsonl(self.file("val")) + read_jsonl(self.file("test"))
        mono, synthetic = self.out / "mono.txt", self.out / "synthetic.tsv"
        lines = self.journal("mono", lambda: {"lines": write_mono(text, mono, held, most)})["lines"]
        write_pairs(self.out / "reverse", mono, synthetic)
        weight = max(1, -(-lines // (2 * pairs)))  # so that real pairs are at least a third
        files = [{"path": real, "weight": weight}, {"path": str(synthetic.absolute()), "tag": TAG}]
        return self.trained("back-translated", files, min(MOST_STEPS, 1 + lines / pairs))


@dataclass(frozen=True)
class ImprovementReport:
    """What each step brought, whether it was kept, and what all of it brought on the test pairs."""

    best: str
    metric: str
    pairs: dict[str, int]
    plain: float
    steps: list[dict[str, Any]]
    test: dict[str, Any]
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return dict(vars(self))

    def rows(self) -> list[list[str]]:
        """A row a step: its name, score, gain over the best before it, interval, p, and whether it was kept."""
        out = [["plain", f"{self.plain:.2f}", "", "", "", ""]]
        for one in self.steps:
            gain = one["difference"]
            numbers = f"{one['second']['value']:.2f}", f"{gain['value']:+.2f}"
            span = f"[{gain['low']:+.2f}, {gain['high']:+.2f}]", f"{one['p']:.3g}"
            out.append([one["step"], *numbers, *span, "kept" if one["kept"] else "refused"])
        return out

    def markdown(self) -> str:
        """The report for a person to read."""
        counts, gain = self.pairs, self.test["difference"]
        out = [
            "# Improvement",
            "",
            f"{counts['read']:,} pairs read; {counts['raw']:,} to learn from, {counts['clean']:,} of them",
        ]
        out[-1] += f" after cleaning; {counts['val']:,} to decide on, {counts['test']:,} to score on in the end."
        out += [
            "",
            "What was taken stands in removed.tsv with the rule, what was repaired, as it was, in repaired.tsv.",
        ]
        if not any(one["step"] == "clean" for one in self.steps):
            out[-1] = "Cleaning found nothing to take out or to repair."
        columns = ["step", f"{self.metric} on val", "gain", "95%", "p", ""]
        out += ["", *markdown_table(columns, self.rows(), numbers=True), ""]
        out += [
            "A gain is over the best run before it. A step is kept if all of its interval is above zero and its score"
        ]
        out[-1] += f" is {LEARNED:g} at least: below that nothing has been learned."
        out.append("")
        first, second = self.test["first"]["value"], self.test["second"]["value"]
        out += [f"On the test pairs, scored once: plain {first:.2f}, kept {second:.2f}: {gain['value']:+.2f}"]
        out[-1] += f" [{gain['low']:+.2f}, {gain['high']:+.2f}], p {self.test['p']:.3g}. The best run is {self.best}."
        return "\n".join([*out, ""])


def checksum(path: Path | None) -> str | None:
    """Of a file's bytes."""
    if path is None:
        return None
    try:
        return sha256(path)
    except OSError as error:
        raise UserError("{path} cannot be read: {reason}", path, error.strerror) from None


def check_same(begun: dict[str, Any], facts: dict[str, Any], out: Path) -> None:
    """An improvement goes on with what it began with, or not at all."""
    changed = [name for name, value in facts.items() if begun.get(name) != value]
    if changed:
        raise UserError(
            "{out} was begun with other {changed}; choose another --out, or remove it", out, ", ".join(changed)
        )


def improve(
    pairs: Sequence[Path],
    out: Path,
    write_pairs: WritePairs,
    *,
    text: Path | None = None,
    test: Path | None = None,
    minutes: float = 30.0,
    overrides: Sequence[str] = (),
    device: str = "auto",
) -> ImprovementReport:
    """Every step on these pairs (and text of the target language), in a folder; improve.md and .json say what each brought.
    `pairs` are one file or two aligned ones."""
    need_extra()
    if not 0 < minutes < math.inf:
        raise ConfigError("--minutes is a number of minutes above 0, not {minutes}", minutes)
    config, changes = as_asked(pairs, overrides)
    facts: dict[str, Any] = {"pairs": "+".join(filter(None, map(checksum, pairs)))}
    facts |= {"text": checksum(text), "test": checksum(test)}
    if text is not None:
        check_text(text)
    facts |= {"minutes": minutes, "settings": list(overrides)}
    values = recipe_for(config, changes, device=device).values
    apply_overrides(values, changes)
    Recipe.from_dict(values)  # what is wrong with a setting is said before anything is made
    work = Improvement(out, device, 60 * minutes, text is not None, changes)
    owned = OwnedFiles(out)
    owned.claim(KEPT, "mono.txt", "synthetic.tsv", "synthetic.tsv.job", *(f"{name}.jsonl" for name in FILES))
    owned.claim("removed.tsv", "repaired.tsv")
    owned.claim(*(name for name in SHARES if name != "translate"))
    with owned.exclusive_lock("improvement"):
        scored = None if test is None else list(open_split(file_settings(config, [test], False), "test"))
        files = {name: work.file(name) for name in FILES}
        # Begun is what has its pairs; what was refused before that may be put right and asked again.
        begun = work.journal("begin", lambda: {"asked": facts, "counts": prepare_pairs(config, scored, files)})
        check_same(begun.get("asked", {}), facts, out)
        counts = begun["counts"]
        work.metric = metric_for(work.trained("plain", str(work.file("raw"))).recipe)
        plain = work.journal("plain", lambda: {"score": work.answer("plain", "val").score})["score"]
        if files["clean"].read_bytes() == files["raw"].read_bytes():
            say(_("cleaning found nothing to take out or to repair"))
        elif work.consider("clean", lambda: work.trained("clean", str(work.file("clean")))) > 0:
            work.data = "clean"  # which did better, certain or not; what learns from it is judged by itself
        if text is not None:
            work.consider("back-translated", lambda: work.back_translated(text, write_pairs))
        work.consider("fine-tuned", lambda: work.tuned("fine-tuned"))
        averaging = {"schedule": "constant", "average_last": AVERAGED}
        work.consider("averaged", lambda: work.tuned("averaged", **averaging))
        final = work.journal(
            "test", lambda: compared(work.answer("plain", "test"), work.answer(work.best, "test")).to_dict()
        )
        told = {"minutes": minutes, "processor": processor(), **made_with()}
        found = ImprovementReport(str(out / work.best), work.metric, counts, plain, work.steps, final, told)
        write_report(out, "improve", found.to_dict(), found.markdown())
    return found
