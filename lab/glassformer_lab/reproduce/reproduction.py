"""Numbers that others published, or that we set ourselves, reached again with one command: a recipe is trained through the
same path as `glassformer train`, scored by the published metric, and held against its goal."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from glassformer.config import Recipe, read_recipe
from glassformer.config.changes import as_prepared, changes
from glassformer.data.download import cut_shakespeare
from glassformer.data.origins import SPLITS, origins_of
from glassformer.errors import UserError
from glassformer.files.owned import OwnedFiles
from glassformer.language import _
from glassformer.models.costs import costs
from glassformer.runs.folder import RunFolder
from glassformer.screen import say
from glassformer_lab.report import device_name, made_with, write_report
from glassformer_lab.reproduce.metrics import device_of, score
from glassformer_lab.reproduce.report import Outcome, ReproductionReport
from glassformer_lab.reproduce.table import Metric, Reproduction, reproduction
from glassformer_lab.runner import KEPT, TrialCall, run_trials
from glassformer_lab.trial import train_or_resume, training_facts


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


def train_and_score(
    recipe: Recipe, folder: Path, metric: Metric, overwrite: bool, *, recipe_name: str, seed: int
) -> dict[str, Any]:
    """One training from a fresh random state, timed and scored, as it is kept. One that was broken off goes on."""
    say(_("{recipe_name}, seed {seed}", recipe_name, seed))
    run = train_or_resume(recipe, folder, overwrite=overwrite)
    scored = score(run, metric)
    say(_("{recipe_name}, seed {seed}: {metric} {value:.4f}", recipe_name, seed, metric, scored.value))
    return asdict(
        Outcome(
            recipe=recipe.name,
            seed=recipe.train.seed,
            folder=str(folder),
            score=scored.value,
            signature=scored.signature,
            others=scored.others,
            **training_facts(run),
        )
    )


def size_problem(what: Reproduction, outcomes: Sequence[Outcome], recipe: Recipe) -> str:
    """Why the model is larger than is allowed; empty where it is not. The most is counted with the same vocabulary."""
    if what.no_larger_than is None:
        return ""
    settings = [f"model.vocab_size={recipe.model.vocab_size}"]
    most = costs(read_recipe(what.no_larger_than, settings).model).parameters
    found = max(one.parameters for one in outcomes)
    return f"{found:,} parameters, and {what.no_larger_than} has {most:,}" if found > most else ""


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
            arguments = (seeded, folder, what.metric, overwrite)
            calls[key] = TrialCall(train_and_score, arguments, {"recipe_name": each, "seed": seed})
    with OwnedFiles(out).exclusive_lock("reproduction"):
        OwnedFiles(out).claim(KEPT)
        if overwrite:
            path.unlink(missing_ok=True)
        kept = [outcome_of(one.measured) for one in run_trials(name, calls, path, 1).values()]
    outcomes = {each: [one for one in kept if one.recipe == recipes[each].name] for each in names}
    beside = outcomes[what.beside] if what.beside is not None else []
    goal = what.goal if what.goal is not None else what.margin + statistics.median(one.score for one in beside)
    trained = RunFolder.open(outcomes[name][0].folder).recipe
    too_large = size_problem(what, outcomes[name], trained)
    passed = what.reached(statistics.median(one.score for one in outcomes[name]), goal) and not too_large
    facts = {"overrides": list(overrides), **made_with()}
    judged = (outcomes[name], beside, goal, passed, too_large)
    report = ReproductionReport(what, *judged, device_name(device_of(trained)), facts)
    write_report(out, name, report.to_dict())
    return report
