"""`glassformer train`: from a recipe to a run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from glassformer.config import RECIPE_FOLDER, ConfigError, Recipe, read_recipe
from glassformer.models import PRESETS
from glassformer.run_folder import RunFolder


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, a .toml file, or (with --resume) a run folder.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY.SUB=VALUE]...", help="Changes, such as train.steps=200.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that is there.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Throw away the run that is there.")] = False,
) -> None:
    """Train a model: [bold]glassformer train dates[/], [bold]glassformer train my.toml train.steps=200[/].

    Exit codes: 0 trained; 2 something to put right; 75 stopped on request (Ctrl-C or SIGTERM) and saved, go on with
    --resume.
    """
    from glassformer import runs

    changes = overrides or []
    if resume:
        folder = Path(recipe) if RunFolder.is_run(Path(recipe)) else out or Path("runs") / Path(recipe).stem
        if changes:
            raise ConfigError("--resume goes on with the settings of the run; settings cannot be changed with it")
        run_it(lambda: runs.resume(folder), folder)
        return
    if RunFolder.is_run(Path(recipe)):
        raise ConfigError(f"{recipe} is a run, not a recipe; go on with it by: glassformer train {recipe} --resume")
    resolved = read_recipe(recipe, changes, presets=PRESETS)
    folder = out or Path("runs") / resolved.name
    run_it(lambda: runs.train(resolved, folder, overwrite=overwrite), folder)


def run_it(work: object, folder: Path) -> RunFolder:
    """Train, draw, and say what there is now."""
    from glassformer import runs
    from glassformer.studies.curves import draw_curves

    began = time.perf_counter()
    try:
        run: RunFolder = work()  # type: ignore[operator]
    except runs.Stopped:
        print(f"stopped and saved; go on with: glassformer train {folder} --resume", file=sys.stderr)
        raise SystemExit(runs.STOPPED) from None
    pictures = draw_curves(run)
    minutes, seconds = divmod(int(time.perf_counter() - began), 60)
    print(f"\ntrained in {minutes} min {seconds:02d} s; the run is in {folder}")
    print(f"curves: {', '.join(map(str, pictures))}")
    print_next(run.recipe, folder)
    return run


def print_next(recipe: Recipe, folder: Path) -> None:
    """What a person would want to do now."""
    verb = {"transformer": "translate", "gpt": "generate"}.get(recipe.model.family) or {
        "mlm": "fill",
        "classify": "classify",
        "tag": "tag",
    }[recipe.model.head]
    print(f"next: glassformer {verb} {folder} …    glassformer evaluate {folder}")


__all__ = ["RECIPE_FOLDER", "train"]
