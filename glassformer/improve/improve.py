"""From pairs to a better translator by itself: train, translate text back, fine-tune.

Each step makes a candidate, and candidate and best run so far answer the same validation pairs. It is kept if the 95% interval of
the difference, by a paired bootstrap, lies above zero; otherwise it is refused, and told with its numbers all the same. (Below
a score of 1 of 100 nothing is kept: both have learned nothing.) The test pairs are scored once, in the end: the plain recipe and
the best run. What is held out is what the plain run has held out, and all others learn from the pairs that it has kept. A journal
holds what was measured and decided, so that the same command goes on where it was broken off.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.config import Recipe
from glassformer.config.changes import fine_tuned
from glassformer.config.recipe import FILE_KEYS, apply_overrides
from glassformer.data.first_recipe import first_recipe
from glassformer.data.splits import SPLITS, Split, normalized
from glassformer.data.store import run_examples, store_path
from glassformer.errors import ConfigError, UserError
from glassformer.files.durable import sha256, to_json, write_atomically
from glassformer.files.owned import OwnedFiles
from glassformer.improve.comparison import Answered, Pair, WritePairs, answered, lines_of, metric_for, train_or_resume
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.runs.plan import make_plan
from glassformer.screen import say

SHARES = {"plain": 0.35, "reverse": 0.15, "translate": 0.1, "back-translated": 0.4}
"""Of the time; without text to translate back the plain training has all of it. Fine-tuning comes on top."""
FEWEST_STEPS, FEWEST_LINES = 10, 100
LATER = 5  # a fine-tuning has a fifth of the steps of a training
MOST_TEXT = 5  # synthetic pairs to a real one, at most
MOST_STEPS = 2  # times the recipe's own, for the training that has synthetic pairs, too
TAG = "<bt>"
LEARNED = 1.0  # of 100: a score below is noise, and nothing is kept for it
JOURNAL = "journal.json"


@dataclass
class Improvement:
    """One improvement at work: its folder, its recipe, and what is the best so far."""

    out: Path
    device: str
    seconds: float
    values: dict[str, Any]  # of the recipe of every training from nothing
    has_text: bool = False
    best: str = "plain"
    metric: str = "bleu"
    steps: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[tuple[str, str], Answered] = field(default_factory=dict)

    def journal(self, step: str, work: Callable[[], Any]) -> Any:
        """The result of a step: from an earlier time, or now."""
        path = self.out / JOURNAL
        kept = json.loads(path.read_bytes()) if path.exists() else {}
        if step not in kept:
            kept[step] = work()
            write_atomically(path, to_json(kept))
        return kept[step]

    def examples(self, split: Split) -> list[Pair]:
        """The pairs of a split, as the plain run has them."""
        return list(run_examples(Recipe.from_dict(self.values).data, split, self.out / "plain" / "data"))

    def kept_files(self) -> dict[str, str]:
        """The files of the splits that the plain run has kept, as a recipe's [data] names them."""
        folder = self.out / "plain" / "data"
        return {split: os.path.abspath(store_path(folder, split)) for split in SPLITS}

    def step_seconds(self) -> float:
        """How long a step of a training takes here, measured."""
        plan = make_plan(Recipe.from_dict(self.values), seconds=2.0)
        if plan.step_seconds is None:
            raise UserError("the chosen model does not fit this machine: {advice}", plan.advice)
        return plan.step_seconds

    def trained(self, name: str, times: float = 1, **data: Any) -> RunFolder:
        """A training from nothing on these files, of so many steps as there is time for, but at most so many `times` the recipe's
        own."""
        speed = self.journal("step_seconds", self.step_seconds)
        chosen = Recipe.from_dict(self.values).train
        most = round(chosen.steps * times)
        share = SHARES[name] if self.has_text else 1.0
        steps = max(min(most, FEWEST_STEPS), min(most, int(share * self.seconds / speed)))
        train = {"steps": steps, "warmup": min(chosen.warmup, steps // 5), "device": self.device}
        train |= {"validate_every": max(1, steps // 10), "save_every": max(1, steps // 5)}
        values = self.values | {"train": self.values["train"] | train}
        if data:
            read = {key: value for key, value in values["data"].items() if key not in (*FILE_KEYS, "format", "path")}
            values["data"] = read | self.kept_files() | data
        return train_or_resume(Recipe.from_dict(values, name=name), self.out / name)

    def tuned(self) -> RunFolder:
        """A training that goes on from the best run so far, on the real pairs, at a tenth of its rate."""
        start = RunFolder.open(self.out / self.best)
        steps = max(1, start.recipe.train.steps // LATER)
        every = max(1, steps // 5)
        train = {"steps": steps, "warmup": 0, "validate_every": every, "save_every": every, "device": self.device}
        train["label_smoothing"] = start.recipe.train.label_smoothing
        batches = ("batch_tokens", "layout", "row_width")
        data = {key: value for key, value in start.recipe.to_dict()["data"].items() if key in batches}
        recipe = fine_tuned(start.recipe, {"data": data | self.kept_files(), "train": train}, name="fine-tuned")
        return train_or_resume(recipe, self.out / "fine-tuned", start)

    def answer(self, run: str, split: Split) -> Answered:
        """A run's answers to held-out pairs; asked once."""
        if (run, split) not in self.answers:
            self.answers[run, split] = answered(self.out / run, self.examples(split), self.metric, self.device)
        return self.answers[run, split]

    def consider(self, step: str, make: Callable[[], RunFolder]) -> None:
        """A candidate beside the best so far on the validation pairs, whose place it takes if its gain is certain."""

        def trial() -> dict[str, Any]:
            make()
            paired = self.answer(self.best, "val").beside(self.answer(step, "val"))
            kept = paired.difference.low > 0 and paired.second.value >= LEARNED
            return {"step": step, "against": self.best, **paired.to_dict(), "kept": kept}

        result = self.journal(step, trial)
        self.steps.append(result)
        if result["kept"]:
            self.best = step
        gain = result["difference"]
        numbers = {"gain": gain["value"], "low": gain["low"], "high": gain["high"]}
        verdict = _("kept") if result["kept"] else _("refused")
        say(_("{step}: {gain:+.2f} [{low:+.2f}, {high:+.2f}]: {verdict}", step=step, verdict=verdict, **numbers))

    def back_translated(self, text: Sequence[str], write_pairs: WritePairs) -> RunFolder:
        """A training on real pairs and on text that a reverse model has translated."""
        real, held = self.examples("train"), [*self.examples("val"), *self.examples("test")]
        self.trained("reverse", swap=True)
        turned = [(target, source) for source, target in self.examples("val")]
        speed = self.journal("reverse", lambda: answered(self.out / "reverse", turned, "bleu", self.device).speed)
        share = SHARES["translate"] * self.seconds
        targets = {normalized(target) for _source, target in held}
        lines = [line for line in text if normalized(line) not in targets]
        lines = lines[: min(MOST_TEXT * len(real), max(FEWEST_LINES, int(speed * share)))]
        if not lines:
            raise UserError("every line of the text is a held-out target; give other text")
        mono, synthetic = self.out / "mono.txt", self.out / "synthetic.tsv"
        write_atomically(mono, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
        write_pairs(self.out / "reverse", mono, synthetic)
        weight = max(1, -(-len(lines) // (2 * len(real))))  # so that real pairs are at least a third
        files = [
            {"path": self.kept_files()["train"], "weight": weight},
            {"path": str(synthetic.absolute()), "tag": TAG},
        ]
        return self.trained("back-translated", min(MOST_STEPS, 1 + len(lines) / len(real)), train=files)


def checksum(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    try:
        return sha256(path)
    except OSError as error:
        raise UserError("{path} cannot be read: {reason}", path, error.strerror) from None


def improve(
    pairs: Sequence[Path],
    out: Path,
    write_pairs: WritePairs,
    *,
    text: Path | None = None,
    test: Path | None = None,
    minutes: float = 30.0,
    overrides: Sequence[str] = (),
    fields: dict[str, Any] | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Every step on these pairs (and text of the target language), in a folder; the report, which is improve.json there. `pairs`
    are one file or two aligned ones, `fields` the settings that say how they are read."""
    if not 0 < minutes < math.inf:
        raise ConfigError("--minutes is a number of minutes above 0, not {minutes}", minutes)
    asked: dict[str, Any] = {"files": [path and checksum(path) for path in (*pairs, text, test)]}
    asked |= {"minutes": minutes, "settings": list(overrides), "fields": dict(fields or {})}
    lines = [] if text is None else lines_of(text)
    values = first_recipe(pairs, "pairs", overrides, fields=fields, device=device).values
    values["data"] |= {} if test is None else {"test": os.path.abspath(test)}
    for key in FILE_KEYS:
        if key in values["data"]:
            values["data"][key] = os.path.abspath(values["data"][key])
    apply_overrides(values, list(overrides))
    Recipe.from_dict(values)  # what is wrong with a setting is said before anything is made
    work = Improvement(out, device, 60 * minutes, values, text is not None)
    owned = OwnedFiles(out)
    owned.claim(JOURNAL, "mono.txt", "synthetic.tsv", "synthetic.tsv.job", "fine-tuned", "improve.json")
    owned.claim(*(name for name in SHARES if name != "translate"))
    with owned.exclusive_lock("improvement"):
        work.metric = metric_for(work.trained("plain").recipe)
        if work.journal("asked", lambda: asked) != asked:
            raise UserError("{out} was begun with other files or settings; choose another --out, or remove it", out)
        if text is not None:
            work.consider("back-translated", lambda: work.back_translated(lines, write_pairs))
        work.consider("fine-tuned", work.tuned)
        final = work.journal(
            "test", lambda: work.answer("plain", "test").beside(work.answer(work.best, "test")).to_dict()
        )
        report = {
            "best": str(out / work.best),
            "metric": work.metric,
            "pairs": {split: len(work.examples(split)) for split in SPLITS},
            "steps": work.steps,
            "test": final,
            "minutes": minutes,
        }
        write_atomically(out / "improve.json", to_json(report))
    return report
