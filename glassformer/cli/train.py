"""`glassformer train` and `demo`: from a recipe to a run."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.nproc import launch
from glassformer.cli.recipes import sorted_words, with_data
from glassformer.config import Recipe, read_recipe
from glassformer.config.changes import fine_tuned
from glassformer.config.fields import check_name
from glassformer.config.recipe import apply_overrides
from glassformer.errors import ConfigError
from glassformer.files.streams import unbreakable_screen
from glassformer.language import _, localized, width
from glassformer.screen import QUIET, make_table, rank_of_several, say, table_console

if TYPE_CHECKING:
    from glassformer.runs.folder import RunFolder


NEW_PAIRS = 10
"""How often a pair that a run is to learn counts, beside one that it has learned."""


def train(
    recipe: str | None = None,
    overrides: list[str] | None = None,
    *,
    data: list[Path] | None = None,
    out: Path | None = None,
    from_run: Path | None = None,
    resume: bool = False,
    accept_changes: bool = False,
    overwrite: bool = False,
    nproc: Annotated[int, typer.Option(min=1, max=1024)] = 1,
) -> None:
    """Train a model: [bold]glassformer train dates[/], [bold]glassformer train my.toml train.steps=200[/]; or go on
    from one that is there, on other data: [bold]glassformer train mine.toml --from runs/dates[/].

    A file of data is enough: [bold]glassformer train pairs.tsv[/] chooses a model by what the file holds and by how much,
    and says so; [bold]glassformer init pairs.tsv[/] writes that recipe down, to be changed.

    A recipe with --resume goes on with its run, or starts it where there is none yet, so the same command can be given
    again and again. With --nproc, or under torchrun, several processes share each step, and a run goes on with any number
    of them. Exit codes: 0 trained; 2 something to put right; 71 another of several processes has ended or hangs; 75 stopped on
    request (Ctrl-C or SIGTERM) and saved. After 71 and 75, go on with --resume.

    Example: train dates train.steps=200 --out runs/mine

    recipe (RECIPE|FILE): A recipe's name, a .toml file, a file of data to train on, or (with --resume) a run
        folder.
    overrides (FILE|KEY.SUB=VALUE): Behind a file of data those for val and test; changes, such as
        train.steps=200.
    data: Train on this file; again for val and test. Without a recipe, one is chosen for it.
    out: The run's folder; runs/NAME by default.
    from_run (--from): Fine-tune: begin with the weights and tokenizers of this run.
    resume: Go on with the run that is there.
    accept_changes: With --resume: yes, go on with other settings than before.
    overwrite: Replace the run that is there; it goes when the new one has its first checkpoint.
    nproc: Train with so many processes, such as one for each GPU here.
    """
    if rank_of_several():
        follow()
        return

    from glassformer.runs.facts import is_run

    resume = goes_on(resume, overwrite)
    recipe, files, changes = sorted_words(recipe, data or [], overrides or [], resume=resume)
    if not resume and from_run is None and not files and recipe is not None and not is_run(Path(recipe)):
        read_recipe(recipe, changes)  # what is wrong with it is said before torch is waited for
    if nproc > 1 and rank_of_several() is None:
        place = Path(recipe) if recipe is not None and is_run(Path(recipe)) else out
        place = Path("runs") / recipe_name(*with_data(recipe, files, changes)) if place is None else place
        raise SystemExit(launch(sys.argv[1:], nproc, place, may_restart=not overwrite))

    from glassformer import runs
    from glassformer.api.training import check_nothing_beside_a_run
    from glassformer.runs import staging
    from glassformer.runs.folder import RunFolder

    if resume and recipe is not None:
        staging.adopt(Path(recipe))
    if recipe is not None and RunFolder.is_run(Path(recipe)):
        if not resume:
            raise ConfigError(
                "{recipe} is a run, not a recipe; go on with it by: glassformer train {quoted_recipe} --resume",
                recipe,
                shlex.quote(recipe),
            )
        check_nothing_beside_a_run(**{"--data": data or None, "--from": from_run, "--out": out})
        folder = Path(recipe)
        wanted = with_overrides(RunFolder(folder).recipe, changes) if changes else None
        run_it(lambda: runs.resume(folder, wanted, accept_changes=accept_changes), folder)
        return
    if resume and recipe is not None and Path(recipe).is_dir():
        RunFolder.open(recipe)  # says what is wrong with it
    values, name = with_data(recipe, files, changes, say)
    if from_run is not None and recipe is None:
        values = beside_own_examples(values, RunFolder.open(from_run), changes)
    folder = out or Path("runs") / recipe_name(values, name)
    if resume and RunFolder.is_run(folder):
        resolved = resumed_recipe(RunFolder(folder), values, name, from_run)
        run_it(lambda: runs.resume(folder, resolved, accept_changes=accept_changes), folder)
    else:
        begin(values, name, folder, from_run, overwrite=overwrite)


def beside_own_examples(values: dict[str, Any], run: RunFolder, changes: list[str]) -> dict[str, Any]:
    """The recipe that was made for a file, for a run to go on with: the model and the tokenizer are the run's; and where the run
    keeps its pairs, they are learned beside those of the file, which count more, and are validated and tested on."""
    from glassformer.config.changes import READING
    from glassformer.data.first_recipe import settings_in
    from glassformer.data.store import store_path, stored_splits

    given, splits = settings_in(changes), stored_splits(run.path / "data")
    # How texts are read is the run's, not what suits the file.
    data = {key: value for key, value in values["data"].items() if key not in READING or f"data.{key}" in given}
    if run.recipe.data.tokenizer != "bpe" and "data.bpe_dropout" not in given:
        data.pop("bpe_dropout", None)  # chosen for pieces of words, of which this run has none
    alone = isinstance(data.get("train"), str) and not {"train_target", "format"} & data.keys()
    if data["task"] == "pairs" and alone and {"train", "val"} <= set(splits):
        kept = {split: os.path.abspath(store_path(run.path / "data", split)) for split in splits}
        data = kept | data | {"train": [{"path": data["train"], "weight": NEW_PAIRS}, kept["train"]]}
        data.setdefault("val_fraction", 0.0)  # of the new pairs none is taken out
        say(_("with the pairs that {run} keeps beside, so that it forgets none", run.path))
    return {**{part: value for part, value in values.items() if part != "model"}, "data": data}


def recipe_name(values: dict[str, Any], name: str) -> str:
    """What a recipe calls itself, or else is called."""
    called = str(values.get("name", name))
    check_name(called, "a recipe's name")
    return called


def follow() -> None:
    """A rank other than 0: no words, no files, its part of each step."""
    from glassformer import runs

    try:
        runs.follow()
    except runs.Stopped:
        raise SystemExit(runs.STOPPED) from None


def goes_on(resume: bool, overwrite: bool) -> bool:
    """Whether a run is gone on with: also by a process that torchrun, or --nproc, starts again."""
    if resume and overwrite:
        raise ConfigError("--resume goes on with a run, and --overwrite replaces it; leave one of them out")
    return resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def resumed_recipe(run: RunFolder, values: dict[str, Any], name: str, from_run: Path | None) -> Recipe:
    """The recipe that a run is gone on with: of one that was fine-tuned, what is left open is the run's."""
    if from_run is not None and "from" not in run.facts:
        raise ConfigError("{folder} did not begin with the weights of a run; leave --from out", run.path)
    if "from" in run.facts:
        return fine_tuned(run.recipe, values, name=name, resumed=True)
    return Recipe.from_dict(values, name=name)


def begin(values: dict[str, Any], name: str, folder: Path, from_run: Path | None, *, overwrite: bool) -> None:
    """A new run, from nothing or from the weights of another."""
    from glassformer import runs

    if from_run is not None:
        start = runs.RunFolder.open(from_run)
        if folder.resolve() == start.path.resolve():
            raise ConfigError("{folder} is the run to begin with; choose another folder with --out", folder)
        tuned_recipe = fine_tuned(start.recipe, values, name=name)
        run_it(lambda: runs.train(tuned_recipe, folder, overwrite=overwrite, start=start), folder)
    else:
        resolved = Recipe.from_dict(values, name=name)
        run_it(lambda: runs.train(resolved, folder, overwrite=overwrite), folder)


def with_overrides(recipe: Recipe, changes: list[str]) -> Recipe:
    """The recipe with what `section.key=value` on the command line changes."""
    values = recipe.to_dict()
    apply_overrides(values, changes)
    return Recipe.from_dict(values)


def run_it(work: Callable[[], RunFolder | None], folder: Path) -> None:
    """Train, draw, and say what there is now."""
    from glassformer import runs
    from glassformer.runs.metrics_log import draw_curves, phase_seconds
    from glassformer.runs.overview import which_weights
    from glassformer.runs.stop import StopRequest

    began = time.perf_counter()
    try:
        run = work()
    except runs.Stopped as stopped:
        say(
            _("stopped; go on with: glassformer train {run} --resume", shlex.quote(str(folder)))
            if stopped.goes_on
            else _("stopped before the first checkpoint; the same command begins again")
        )
        raise SystemExit(runs.STOPPED) from None
    if run is None or QUIET.get():
        return
    # A Ctrl-C comes too late to stop anything now, and inside a drawing it would be half swallowed, with a trace on the screen.
    with unbreakable_screen(), StopRequest(silent=True).listening():
        # What was trained before a --resume counts; of a log that could not be written only this stretch is known.
        took = max(time.perf_counter() - began, sum(phase_seconds(run.metrics_file).values()))
        minutes, seconds = divmod(int(took), 60)
        print(
            localized(_("\ntrained in {minutes} min {seconds:02d} s; the run is in {path}", minutes, seconds, run.path))
        )
        print(localized(_("final model: {which_weights}", which_weights(run, run.recipe))))
        if pictures := draw_curves(run):
            print(localized(_("curves: {pictures}", ", ".join(map(str, pictures)))))
        print_next(run.recipe, run.path)


def print_next(recipe: Recipe, folder: Path) -> None:
    """What a person would want to do now, as it can be typed."""
    from glassformer.data.report import DataReport

    verb = {"pairs": "translate", "classify": "classify", "tag": "tag"}.get(recipe.data.task) or {
        "gpt": "generate",
        "bert": "fill",
    }.get(recipe.model.family)
    report = DataReport.read(folder / "data")
    has_test = report is None or bool(report.examples.get("test"))
    path = shlex.quote(str(folder))
    text = '"… ___ …"' if verb == "fill" else '"…"'
    first = localized(_("next:"))
    # An encoder-decoder that has learned to fill gaps is there to be fine-tuned.
    asked = [f"{verb} {path} {text}", f"look {path} {text}"] if verb else [f"train RECIPE --from {path}"]
    for command in (*asked, f"evaluate {path}{'' if has_test else ' --split val'}"):
        print(f"{first} glassformer {command}")
        first = " " * width(first)


def demo(*, out: Path = Path("runs/dates")) -> None:
    """Train `dates` on this machine (two to three minutes on two cores) and show what it learned.

    Example: demo

    out: Where the run goes.
    """
    from glassformer import runs
    from glassformer.api import load
    from glassformer.api.evaluation import evaluate_run
    from glassformer.data.builtin import examples_in_ten_languages
    from glassformer.runs.checkpoint import problem
    from glassformer.tasks import translations

    console, folder = table_console(), runs.RunFolder(out)
    if not runs.RunFolder.is_run(out):
        run_it(lambda: runs.train(read_recipe("dates"), out), out)
    elif problem(folder.final) is not None:
        run_it(lambda: runs.resume(out), out)
    scores = evaluate_run(out, split="test", device="cpu")
    examples = examples_in_ten_languages("test")
    answers = translations(load(out, device="cpu"), [source for _language, source, _date in examples])
    table = make_table((_("language"), _("written"), _("read as"), ""), title=_("Days it has never seen"))
    for (language, source, date), answer in zip(examples, answers, strict=True):
        verdict = _("right") if answer == date else _("should be {wanted}", date)
        table.add_row(language, source, answer, localized(verdict))
    console.print(table)
    summary = _(
        "{exact_match:.1f}% of {count:,} unseen days read exactly right (BLEU {bleu:.1f}, chrF {chrf:.1f})",
        count=scores.examples,
        **scores,
    )
    console.print(summary, "", sep="\n")
    console.print(_("Try next:"))
    run = shlex.quote(str(out))
    for words in (f'translate {run} "3 mai 1979"', f'look {run} "3 mai 1979"', f"heads {run}", f"evaluate {run}"):
        console.print(f"  glassformer {words}")
