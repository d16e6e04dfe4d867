"""An ablation from beginning to end: what is varied is checked, what it costs is said, trials are trained, scored, compared
and drawn. Called again it goes on: what is trained is not trained again, what is scored is not scored again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from glassformer.config import Recipe
from glassformer.errors import ConfigError, UserError
from glassformer.files.owned import LIST, OwnedFiles, require_new_or_empty
from glassformer.runs import Stopped
from glassformer.runs.report import device_name, made_with
from glassformer.runs.runner import side_by_side
from glassformer.runs.stop import StopRequest
from glassformer.screen import Progress, say
from glassformer_lab.sweep.report import SweepReport, write
from glassformer_lab.sweep.scores import TrialScores, kept_scores, make_rows, score_and_keep
from glassformer_lab.sweep.trials import Cost, Trial, at_a_time, estimate, make_trials, train_trials
from glassformer_lab.sweep.variants import BASE, QUICK, ReadySet, Variant, find_ready, make_variants, resolve

EXAMPLES, QUICK_EXAMPLES = 1000, 200  # of the test set
ALIKE = 0.05  # budgets that differ by less: batches are filled with whole examples, so tokens are never quite the same
ALWAYS = ("train.log_layers=true", "train.history=false", "train.patience=none")
"""Of every trial: gradient norms are logged, nothing is kept that is not read, and nobody stops early: equal budgets."""


@dataclass(frozen=True)
class Sweep:
    """What is asked for, checked: the recipe's name, the settings of all, the variants and their recipes, the base first."""

    name: str
    about: str
    recipe: str
    overrides: tuple[str, ...]
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
    examples = QUICK_EXAMPLES if quick else EXAMPLES
    return Sweep(found.name, found.about, found.recipe, settings, kept, recipes, times, examples)


def prepare_folder(out: Path) -> None:
    """A new or an empty folder, or one that this command made."""
    if not (out / LIST).is_file():
        require_new_or_empty(out, "an ablation")
    out.mkdir(parents=True, exist_ok=True)


def score_all(
    trials: Sequence[Trial], out: Path, examples: int, stop: StopRequest, jobs: int
) -> dict[str, dict[int, TrialScores]]:
    """The scores of every trial that has ended, by variant and seed; `jobs` are scored at a time."""
    files = {trial.name: out / "scores" / f"{trial.folder.name}.json" for trial in trials}
    kept = {trial.name: kept_scores(files[trial.name], trial.folder, examples) for trial in trials}
    found = {name: scores for name, scores in kept.items() if scores is not None}
    calls = {
        trial.name: partial(score_and_keep, files[trial.name], trial.folder, examples, trial.recipe.train.device)
        for trial in trials
        if trial.name not in found
    }
    with Progress("scoring", len(trials)) as display, stop.may_drop():
        alone = jobs == 1 or len(calls) < 2
        for name, scores in ((name, call()) for name, call in calls.items()) if alone else side_by_side(calls, jobs):
            found[name] = scores
            display.update(len(found), name)
    scored: dict[str, dict[int, TrialScores]] = {}
    for trial in trials:
        scored.setdefault(trial.variant.name, {})[trial.seed] = found[trial.name]
    return scored


def facts_of(asked: Sweep, cost: Cost, report_rows: Sequence[Any]) -> dict[str, Any]:
    """Machine, date and budget, and how to read the table."""
    base = next(iter(asked.recipes.values()))
    first = next((row.first for row in report_rows if row.first is not None), None)
    other = [
        row.variant.name
        for row in report_rows
        if row.first and first and abs(row.first.target_tokens / max(1, first.target_tokens) - 1) > ALIKE
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
    facts = {"budget": budget, "notes": notes, "seeds": asked.seeds, "jobs": cost.jobs, "threads": cost.threads}
    return {**facts, "machine": device_name(device), **made_with()}


def sweep(
    asked: Sweep, out: Path, *, command: str = "", jobs: int | None = None, only_plan: bool = False
) -> SweepReport | Cost:
    """Carries it out in `out` and leaves there ablation.md, .csv and .json, curves and gradients, trials/ and scores/. With
    `only_plan` nothing but a short trial, in a folder that is thrown away: what it would cost."""
    if jobs is not None and jobs < 1:
        raise UserError("--jobs must be at least 1, not {jobs}", jobs)
    stop = StopRequest()
    with stop.listening(), ExitStack() as held:
        variants = {variant.name: variant for variant in asked.variants}
        many = asked.seeds * len(variants)
        at_once, threads = at_a_time(jobs, asked.recipes[BASE], many)
        trials = make_trials(asked.recipes, variants, asked.overrides, asked.seeds, out, threads)
        if not only_plan:
            prepare_folder(out)
            held.enter_context(OwnedFiles(out).exclusive_lock("ablation"))
        left = [trial for trial in trials if not trial.finished()]
        with stop.may_drop():
            cost = estimate(asked.recipes[BASE], left, len(trials) - len(left), at_once, threads)
        if only_plan:
            return cost
        say(cost.sentence())
        with Progress("training", len(left)) as display:
            tell = partial(display.update, line=True)
            failed = train_trials(asked.recipe, left, cost.jobs, stop, tell)
        lost = {trial.name: trial for trial in left if trial.name in failed}
        scored = score_all([trial for trial in trials if trial.name not in lost], out, asked.examples, stop, cost.jobs)
        why: dict[str, dict[int, str]] = {}
        for name, trial in lost.items():
            why.setdefault(trial.variant.name, {})[trial.seed] = failed[name]
        if not scored.get(BASE):
            why_not = next(iter(failed.values()), "no trial")
            raise UserError("the recipe as it is was not trained to its end: {failed}", why_not)
        rows = make_rows(asked.variants, scored, why)
        folders = {name: [t.folder for t in trials if t.variant.name == name] for name in variants}
        metric = next(iter(scored[BASE].values())).metric
        facts = facts_of(asked, cost, rows)
        report = SweepReport(asked.name, asked.about, command, rows, metric, folders, facts)
        if stop.asked:
            raise Stopped
        write(report, out)
        return report
