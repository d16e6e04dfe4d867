"""An ablation from beginning to end: what is varied is checked; every variant is trained with every seed, scored, and held
against the base. Trials are kept as they are done, so an ablation that was broken off goes on with those that are missing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from glassformer.config import Recipe
from glassformer.errors import ConfigError, UserError
from glassformer.files.owned import LIST, OwnedFiles, require_new_or_empty
from glassformer.machine import cores
from glassformer.runs import pick_device
from glassformer.runs.stop import StopRequest
from glassformer.screen import quietly
from glassformer.training.trainer import NotFinite
from glassformer_lab.report import device_name, made_with
from glassformer_lab.runner import KEPT, TrialCall, run_trials
from glassformer_lab.sweep.report import SweepReport, write
from glassformer_lab.sweep.scores import TrialScores, VariantRow, make_rows, score_trial
from glassformer_lab.sweep.variants import BASE, QUICK, ReadySet, Variant, find_ready, make_variants, resolve
from glassformer_lab.trial import train_or_resume

EXAMPLES, QUICK_EXAMPLES = 1000, 200  # of the test set
ALIKE = 0.05  # budgets that differ by less: batches are filled with whole examples, so tokens are never quite the same
ALWAYS = ("train.history=false", "train.patience=none")
"""Of every trial: nothing is kept that is not read, and nobody stops early, so budgets are equal."""


@dataclass(frozen=True)
class Sweep:
    """What is asked for, checked: the recipe's name, the variants and their recipes, the base first."""

    name: str
    about: str
    variants: tuple[Variant, ...]
    recipes: dict[str, Recipe]
    seeds: int
    examples: int = EXAMPLES  # of the test set, at most


def make_sweep(
    name: str,
    vary: Sequence[str] = (),
    overrides: Sequence[str] = (),
    *,
    seeds: int | None = None,
    cross: bool = False,
    quick: bool = False,
) -> Sweep:
    """A ready set by its name, or a recipe and what is varied in it; whatever cannot be is refused here."""
    found = find_ready(name)
    if found is not None and vary:
        raise ConfigError(
            "{name} is a ready ablation with variants of its own; give a recipe to vary something else", name
        )
    if found is None:
        if not vary:
            raise ConfigError(
                "say what to vary, as in: glassformer sweep {name} --vary model.n_head=1,2,8", shlex.quote(name)
            )
        found = ReadySet(name, f"{name}: " + "; ".join(vary), name, (), tuple(make_variants(vary, cross=cross)))
    times = seeds if seeds is not None else (1 if quick else found.seeds)
    if times < 1:
        raise UserError("--seeds must be at least 1, not {times}", times)
    settings = (*ALWAYS, *found.settings, *((*QUICK, *found.quick) if quick else ()), *overrides)
    recipes = resolve(found.recipe, settings, found.variants)
    kept = (Variant(BASE), *(v for v in found.variants if v.name in recipes))
    return Sweep(found.name, found.about, kept, recipes, times, QUICK_EXAMPLES if quick else EXAMPLES)


def trial(recipe: Recipe, folder: Path, examples: int, *, variant: str, seed: int) -> dict[str, Any]:
    """One training and its scores, or why it did not get to its end."""
    with quietly(True):
        try:
            train_or_resume(recipe, folder)
        except NotFinite as error:
            return {"failed": str(error)}
        return asdict(score_trial(folder, examples, recipe.train.device))


def share_of_cores(asked: Sweep, jobs: int | None) -> tuple[int, int | None]:
    """How many trials run side by side, and the threads of each: on CUDA one after the other, else a core each while there are
    enough trials. The threads do not depend on `jobs`: with others the last digits of a trial's sums would differ."""
    base = asked.recipes[BASE].train
    if pick_device(base).type == "cuda":
        return jobs or 1, base.threads
    threads = base.threads or max(1, cores() // min(cores(), asked.seeds * len(asked.variants)))
    return jobs or max(1, cores() // threads), threads


def make_trials(asked: Sweep, out: Path, threads: int | None) -> dict[tuple[str, int], TrialCall]:
    """The trials by variant and seed; seed by seed, so that after the first round there is one of everything."""
    trials = {}
    for number in range(asked.seeds):
        for variant in asked.variants:
            recipe = asked.recipes[variant.name]
            seed = recipe.train.seed + number
            seeded = replace(recipe, train=replace(recipe.train, seed=seed, threads=threads))
            folder = out / "trials" / f"{variant.folder}-seed-{seed}"
            arguments = (seeded, folder, asked.examples)
            trials[variant.name, seed] = TrialCall(trial, arguments, {"variant": variant.name, "seed": seed})
    return trials


def facts_of(asked: Sweep, rows: Sequence[VariantRow]) -> dict[str, Any]:
    """Machine, date and budget, and how to read the table."""
    base = next(iter(asked.recipes.values()))
    first = next((row.first for row in rows if row.first is not None), None)
    other = [
        row.variant.name
        for row in rows
        if row.first and first and abs(row.first.tokens / max(1, first.tokens) - 1) > ALIKE
    ]
    seeds = f"{asked.seeds} seed{'s' * (asked.seeds > 1)}"
    budget = (
        f"{seeds} of every variant; {base.train.steps:,} steps of about {base.data.batch_tokens:,} target tokens each"
        + (f" (but {', '.join(other)} learned from more or fewer)" if other else ", the same for all")
        + f"; scores on {asked.examples:,} examples of {first.split if first else 'test'} at most."
    )
    notes = [
        "± is the standard deviation over seeds.",
        "The difference to the base, its 95% interval and p: Student's, over the seeds (paired) and the examples (bootstrap); of "
        "one seed the examples' alone, and nothing is called better or worse. p is that of one comparison; among twenty rows one "
        "falls below 0.05 by luck.",
        "MFLOP a token: arithmetic of a forward pass, as counted by `glassformer info`. s: seconds of a training.",
    ]
    device = torch.device("cuda" if base.train.device != "cpu" and torch.cuda.is_available() else "cpu")
    return {"budget": budget, "notes": notes, "seeds": asked.seeds, "machine": device_name(device), **made_with()}


def sweep(asked: Sweep, out: Path, *, command: str = "", jobs: int | None = None) -> SweepReport:
    """Carries it out in `out` and leaves there ablation.md and .json, curves, and the runs under trials/."""
    if jobs is not None and jobs < 1:
        raise UserError("--jobs must be at least 1, not {jobs}", jobs)
    if not (out / LIST).is_file():
        require_new_or_empty(out, "an ablation")
    out.mkdir(parents=True, exist_ok=True)
    at_once, threads = share_of_cores(asked, jobs)
    trials = make_trials(asked, out, threads)
    keys = {
        name: json.dumps([asked.examples, call.settings, call.arguments[0].to_dict()], sort_keys=True)
        for name, call in trials.items()
    }
    stop = StopRequest()
    with stop.listening(), OwnedFiles(out).exclusive_lock("ablation"), stop.may_drop():
        (kept_file,) = OwnedFiles(out).claim(KEPT)
        kept = run_trials("sweep", {keys[name]: call for name, call in trials.items()}, kept_file, at_once)
        scored: dict[str, dict[int, TrialScores]] = {variant.name: {} for variant in asked.variants}
        failed: dict[str, dict[int, str]] = {variant.name: {} for variant in asked.variants}
        for (name, seed), key in keys.items():
            measured = {field: value for field, value in kept[key].measured.items() if field != "seconds"}
            if "failed" in measured:
                failed[name][seed] = measured["failed"]
            else:
                scored[name][seed] = TrialScores(**measured)
        if not scored[BASE]:
            why = next(iter(failed[BASE].values()))
            raise UserError("the recipe as it is was not trained to its end: {failed}", why)
        rows = make_rows(asked.variants, scored, failed)
        folders = {
            variant.name: [call.arguments[1] for (name, _seed), call in trials.items() if name == variant.name]
            for variant in asked.variants
        }
        metric = next(iter(scored[BASE].values())).metric
        report = SweepReport(asked.name, asked.about, command, rows, metric, folders, facts_of(asked, rows))
        write(report, out)
        return report
