"""Numbers that others published, or that we set ourselves, reached again with one command: a recipe is trained through the
same path as `glassformer train`, scored by the published metric, and held against its goal."""

from __future__ import annotations

import datetime
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from glassformer import runs
from glassformer.config import Recipe, read_recipe
from glassformer.config.changes import as_prepared, changes
from glassformer.data.download import cut_shakespeare
from glassformer.data.origins import SPLITS, origins_of
from glassformer.errors import UserError
from glassformer.files.owned import OwnedFiles
from glassformer.models.costs import costs
from glassformer.runs.folder import RunFolder
from glassformer.runs.metrics_log import phase_seconds
from glassformer.runs.report import commit, device_name, made_with, write_report
from glassformer.runs.runner import KEPT, TrialCall, read_kept, run_trials
from glassformer.screen import roughly, say
from glassformer.training.progress import StepReport, TrainerCallback
from glassformer_lab.reproduce.metrics import device_of, score
from glassformer_lab.reproduce.report import Outcome, ReproductionReport
from glassformer_lab.reproduce.table import Metric, Reproduction, reproduction


def data_settings(what: Reproduction, folder: Path | None, out: Path) -> list[str]:
    """The settings that point a recipe at its data. Shakespeare is cut exactly where nanoGPT cuts it, at the character; the
    two parts are the ones `data get` made, or are made now from the whole text."""
    if what.collection is None:
        if folder is not None:
            raise UserError("the data of {what} are built in; leave out --data", what.name)
        return []
    folder = folder or Path(what.folder)
    if what.collection != "shakespeare":
        return [f"data.path={folder}"]
    if (folder / "input.txt").exists() and not ((folder / "train.txt").exists() and (folder / "val.txt").exists()):
        text = out / "text"
        text.mkdir(parents=True, exist_ok=True)
        cut_shakespeare(text, [folder / "input.txt"])
        folder = text
    return ["data.path=none", f"data.train={folder / 'train.txt'}", f"data.val={folder / 'val.txt'}"]


def recipe_of(name: str, what: Reproduction, settings: Sequence[str], overrides: Sequence[str]) -> Recipe:
    """The recipe with its data where they are; a sentence with the command that brings them where they are not."""
    recipe = read_recipe(name, [*settings, *overrides])
    try:
        for split in SPLITS:
            origins_of(recipe.data, split)
    except UserError as error:
        if what.collection is None:
            raise
        if "glassformer data get" in str(error):
            raise UserError("{error}, or say where the data are by --data DIR", error) from None
        raise UserError(
            "{error}; get the data with `glassformer data get {collection}`, or say where they are by --data DIR",
            error,
            what.collection,
        ) from None
    return recipe


PHASES = {
    "preparation": "prepare",
    "compilation": "compile",
    "training": "steps",
    "validation": "validate",
    "saving": "save",
}
"""The phases of a training, as reports call them and as the run has them (runs/metrics_log.py)."""


def begin_afresh() -> None:
    """Compiled functions of one run are of no use to the next, and after a few torch would stop compiling."""
    # Where it was not loaded nothing was compiled yet, and loading it takes seconds.
    if torch.cuda.is_available() and "torch._dynamo" in sys.modules:
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


def train_and_score(
    recipe: Recipe, folder: Path, metric: Metric, callbacks: Sequence[TrainerCallback] = (), *, overwrite: bool = False
) -> Outcome:
    """One training from a fresh random state, timed and scored. One that was broken off goes on."""
    begin_afresh()
    if RunFolder.is_run(folder) and not overwrite:
        run = runs.resume(folder, recipe, callbacks=callbacks) or RunFolder.open(folder)
    else:
        run = runs.train(recipe, folder, overwrite=overwrite, callbacks=callbacks)
    ended = time.perf_counter()
    found = score(run, metric)
    seconds = phase_seconds(run.metrics_file)
    times = {name: seconds[phase] for name, phase in PHASES.items()} | {"scoring": time.perf_counter() - ended}
    scored = found.value, found.signature, found.others, times
    tokens = int(run.checkpoints.state(run.checkpoints.steps()[-1])["tokens"])
    learned = run.finished() or 0, tokens, costs(run.recipe.model).parameters
    return Outcome(recipe.name, recipe.train.seed, str(folder), *scored, *learned)


def size_problem(what: Reproduction, outcomes: Sequence[Outcome], recipe: Recipe) -> str:
    """Why the model is larger than is allowed; empty where it is not. The most is counted with the same vocabulary."""
    if what.no_larger_than is None:
        return ""
    settings = [f"model.vocab_size={recipe.model.vocab_size}"]
    most = costs(read_recipe(what.no_larger_than, settings).model).parameters
    found = max(one.parameters for one in outcomes)
    return f"{found:,} parameters, and {what.no_larger_than} has {most:,}" if found > most else ""


Tell = Callable[[str], None]
ANNOUNCED_AFTER = 3.0  # seconds of steps


class Announcement:
    """Says how long the trainings will take, by the first steps of the first of them; a trial beforehand would compile twice."""

    def __init__(self, name: str, recipe: Recipe, times: int, tell: Tell) -> None:
        self.name, self.steps, self.times, self.tell = name, recipe.train.steps, times, tell
        self.first: tuple[int, float] | None = None  # the first report: compiled by then
        self.seconds: float | None = None  # of one training

    def on_log(self, report: StepReport) -> None:
        """At the second report that is some seconds after the first, or the last one there is."""
        now = time.perf_counter()
        if self.first is None:
            self.first = report.step, now
        elif self.seconds is None and (now - self.first[1] > ANNOUNCED_AFTER or report.step >= self.steps // 2):
            step = (now - self.first[1]) / max(1, report.step - self.first[0])
            self.seconds = self.steps * step
            many = "" if self.times == 1 else f", {self.times} times"
            self.tell(
                f"{self.name}: about {roughly(self.seconds)} of training{many} ({self.steps:,} steps of {1000 * step:,.1f} ms, "
                "measured here); validation, compilation and scoring come on top"
            )

    def on_message(self, text: str) -> None:
        """Nothing."""


def trial(
    recipe: Recipe,
    folder: Path,
    metric: Metric,
    overwrite: bool,
    tell: Tell,
    callbacks: Any,
    *,
    recipe_name: str,
    seed: int,
) -> dict[str, Any]:
    """One training of a reproduction, as it is kept."""
    tell(f"{recipe_name}, seed {seed}")
    done = train_and_score(recipe, folder, metric, callbacks, overwrite=overwrite)
    tell(f"{recipe_name}, seed {seed}: {metric} {done.score:.4f}")
    return asdict(done)


def outcome_of(measured: Mapping[str, Any]) -> Outcome:
    """A training that was kept."""
    return Outcome(**{name: value for name, value in measured.items() if name != "seconds"})


def reproduce(
    name: str,
    out: Path,
    *,
    data: Path | None = None,
    seeds: int | None = None,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
    measure: bool = True,
    tell: Tell = say,
) -> ReproductionReport:
    """Train, score and judge; everything is left in `out`: a run folder a seed, what each scored, and NAME.json. What was broken
    off goes on with what is missing."""
    what = reproduction(name)
    times = what.seeds if seeds is None else seeds
    if times < 1:
        raise UserError("--seeds must be at least 1, not {times}", times)
    settings = data_settings(what, data, out)
    names = [name] if what.beside is None else [name, what.beside]
    recipes = {each: recipe_of(each, what, settings, overrides) for each in names}
    announcement = Announcement(name, recipes[name], times * len(names), tell)
    path, calls = out / KEPT, {}
    for i in range(times):
        for each, recipe in recipes.items():
            seed = recipe.train.seed + i
            seeded, folder = replace(recipe, train=replace(recipe.train, seed=seed)), out / f"{each}-seed-{seed}"
            if not overwrite and RunFolder.is_run(folder):
                there = RunFolder.open(folder).recipe
                if changes(there, as_prepared(seeded, there)):
                    raise UserError(
                        "{there} holds a run already, with other settings; choose another --out, or replace what is there by "
                        "--overwrite",
                        folder,
                    )
            key = json.dumps([each, what.metric, seeded.to_dict()], sort_keys=True)
            arguments = (seeded, folder, what.metric, overwrite, tell, [announcement] if measure else [])
            calls[key] = TrialCall(trial, arguments, {"recipe_name": each, "seed": seed})
    with OwnedFiles(out).exclusive_lock("reproduction"):
        OwnedFiles(out).claim(KEPT)
        if overwrite:
            path.unlink(missing_ok=True)
        announcement.times = len(calls.keys() - read_kept(path).keys())
        kept = [outcome_of(one.measured) for one in run_trials(name, calls, path, 1).values()]
    outcomes = {each: [one for one in kept if one.recipe == recipes[each].name] for each in names}
    beside = outcomes[what.beside] if what.beside is not None else []
    goal = what.goal if what.goal is not None else what.margin + statistics.median(one.score for one in beside)
    trained = RunFolder.open(outcomes[name][0].folder).recipe
    too_large = size_problem(what, outcomes[name], trained)
    passed = what.reached(statistics.median(one.score for one in outcomes[name]), goal) and not too_large
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    facts = {"overrides": list(overrides), **made_with(), "commit": commit(), "date": now}
    judged = (outcomes[name], beside, goal, passed, too_large)
    report = ReproductionReport(what, *judged, device_name(device_of(trained)), announcement.seconds, facts)
    write_report(out, name, report.to_dict())
    return report
