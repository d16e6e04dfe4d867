"""`glassformer recipes`, `init` and `plan`: what can be trained, by name or from a file of one's own, and what it costs.

A file of data stands in the place of a recipe wherever one is taken: `glassformer train pairs.tsv`, `glassformer plan pairs.tsv`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glassformer.config import RECIPE_FOLDER, Recipe, read_recipe, recipe_names
from glassformer.config.recipe import apply_overrides, commented_recipe, read_values
from glassformer.errors import ConfigError, UserError
from glassformer.language import _, localized
from glassformer.screen import BARE, FIXED, make_table, table_console

DEMO: dict[str, Any] = {
    "model": {"preset": "transformer-tiny", "n_layer": 2},
    "data": {"builtin": "reverse", "tokenizer": "char"},
    "train": {"steps": 1000},
}
"""Without data of one's own: a built-in set, in whose place a file goes."""
DATA = (".tsv", ".csv", ".jsonl", ".txt", ".gz", ".parquet")
READING = ("task", "source_field", "target_field", "text_field", "label_field", "features_field")
SPLITS = ("train", "val", "test", "train_target", "val_target", "test_target")
FILES = (*SPLITS, "format", "path")
LONGEST = 3600  # seconds; after an hour of measuring one might as well train

# ---- files of data among the words of a command line


def is_data(word: str) -> bool:
    """Whether a word is a file or folder of data, and no recipe and no run."""
    path = Path(word)
    is_recipe = path.suffix == ".toml" or word in recipe_names()
    return not is_recipe and path.exists() and not (path / "run.json").exists()


def sorted_words(
    recipe: str | None, data: Sequence[Path], overrides: Sequence[str], *, resume: bool = False
) -> tuple[str | None, list[Path], list[str]]:
    """The recipe, the files of data and the changes among the words of a command line: a first word that is a change is no
    recipe where there is `--data`, and one that is a file of data stands for `--data` (with `resume`, a folder is a run)."""
    if recipe is not None and data and "=" in recipe:
        return None, list(data), [recipe, *overrides]
    if recipe is not None and data and is_data(recipe) and not resume:
        both = " ".join(shlex.quote(str(file)) for file in (recipe, *data))
        raise ConfigError(
            "{file} is a file of data, as --data is; name all of them in one place: glassformer train {both}",
            recipe,
            both,
        )
    if recipe is not None and not data and is_data(recipe) and not (resume and Path(recipe).is_dir()):
        files = [recipe, *(word for word in overrides if "=" not in word and Path(word).exists())]
        return None, [Path(file) for file in files], [word for word in overrides if word not in files]
    if recipe is not None and recipe.endswith(DATA) and not Path(recipe).exists():
        raise ConfigError("there is no file {path}", path=recipe)
    return recipe, list(data), list(overrides)


def files_and_changes(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The files among the words of a command line, and the changes, such as data.source_field=en."""
    changes = [word for word in words if "=" in word and not Path(word).exists()]
    return [Path(word) for word in words if word not in changes], changes


def reading_settings(changes: Sequence[str], **options: Any) -> dict[str, Any]:
    """How a file of data is read: what the changes say of it, and the options that were given."""
    values: dict[str, Any] = {}
    apply_overrides(values, [change for change in changes if change.startswith("data.")])
    settings = {key: value for key, value in values.get("data", {}).items() if key in (*READING, "format")}
    return settings | {key: value for key, value in options.items() if value is not None}


def with_data(
    recipe: str | None, files: Sequence[Path], changes: Sequence[str], say: Callable[[str], None] = lambda text: None
) -> tuple[dict[str, Any], str]:
    """The tables of a recipe, and its name: of a recipe by name or file, with `files` in the place of its data; without a recipe,
    of one made for the files. `say` is told what was chosen."""
    if recipe is None and not files:
        raise ConfigError("say what to train: a recipe's name, a .toml file, or a file of data, such as pairs.tsv")
    if recipe is not None and not files:
        return read_values(recipe, changes)

    from glassformer.data.first_recipe import first_recipe

    settings = reading_settings(changes)
    made = first_recipe(files, settings.pop("task", None), fields=settings, changes=changes)
    if recipe is None:
        values, name = made.values, made.name
        words = " ".join(shlex.quote(str(file)) for file in files)
        say(_("{chosen}; to see and change it: glassformer init {words}", made.chosen, words))
    else:
        values, name = read_values(recipe)
        kept = {key: value for key, value in values.get("data", {}).items() if key not in (*FILES, "builtin")}
        values["data"] = kept | {key: value for key, value in made.values["data"].items() if key in (*FILES, *READING)}
    for key in SPLITS:
        if isinstance(file := values["data"].get(key), str):
            values["data"][key] = os.path.abspath(file)
    apply_overrides(values, changes)
    return values, name


# ---- the verbs


def recipes() -> None:
    """List the built-in recipes: what each learns and how long it takes.

    Example: recipes
    """
    columns = ("", FIXED | {"style": "bold"}), ""
    rows = [(name, localized(read_recipe(name).about)) for name in recipe_names()]
    console = table_console()
    console.print(make_table(columns, rows, show_header=False, **BARE))
    console.print(_("\nThey are TOML files in {recipe_folder}; copy one and change what you like.", RECIPE_FOLDER))


def init(files: list[str] | None = None, *, out: Path | None = None, task: str | None = None) -> None:
    """Write a recipe for your data, as `train FILE` would choose it: a TOML file with every setting and what it does.

    Example: init pairs.tsv

    files (FILE|KEY.SUB=VALUE): Data: train, val and test, a file each, or two aligned ones; and changes, such as
        data.source_field=en.
    out: The recipe's file; NAME.toml by default, by the data's name.
    """
    paths, changes = files_and_changes(files or [])
    if not paths and task is not None:
        raise UserError(
            "--task says how a file of yours is read; name the file: glassformer init FILE --task {task}", task
        )
    if not paths and changes:
        raise UserError(
            "{change} changes the recipe of a file; name the file: glassformer init FILE {change}", changes[0]
        )
    chosen, name, remarks = DEMO, "recipe", []
    if paths:
        from glassformer.data.doctor.facts import first_remarks
        from glassformer.data.first_recipe import first_recipe

        settings = reading_settings(changes, task=task)
        made = first_recipe(paths, settings.pop("task", None), fields=settings)
        chosen, name = made.values, made.name
        apply_overrides(chosen, changes)
        remarks = [made.chosen, *first_remarks(Recipe.from_dict(chosen, name=name).data)]
    path = out or Path(f"{name}.toml")
    data = dict(chosen["data"])
    for key in SPLITS:
        if key in data:
            data[key] = os.path.relpath(data[key], path.parent)
    text = commented_recipe(Recipe.from_dict(chosen, name=name), chosen | {"data": data})
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError("{path} is there already; choose another name with --out", path) from None
    except OSError as error:
        raise UserError("{filename} cannot be written: {reason}", path, error.strerror) from None
    for remark in remarks:
        print(localized(remark))
    quoted = shlex.quote(str(path))
    print(localized(_("{path} is written; change what you like, and: glassformer train {quoted_path}", path, quoted)))


def plan(recipe: str, overrides: list[str] | None = None, *, seconds: float = 5.0) -> None:
    """Parameters, memory, whether it fits here, tokens a second measured in a few seconds, and the time to finish.

    Example: plan dates train.steps=200

    recipe (RECIPE|FILE): A recipe's name, a .toml file or a file of data to train on.
    overrides (FILE|KEY.SUB=VALUE): Behind a file of data those for val and test; changes, such as train.steps=200.
    seconds: How long to measure.
    """
    if (Path(recipe) / "run.json").exists():
        raise ConfigError(
            "{recipe} is a run; `glassformer info {run}` shows it, `glassformer train {run} --resume` goes on with it",
            recipe,
            shlex.quote(recipe),
        )
    values, name = with_data(*sorted_words(recipe, [], overrides or []))
    known = Recipe.from_dict(values, name=name)
    if not 0 < seconds <= LONGEST:
        raise ConfigError("--seconds must be above 0 and at most {longest:,}, not {seconds:g}", LONGEST, seconds)
    from glassformer.runs.plan import make_plan

    cost = make_plan(known, seconds=seconds)
    columns, rows = (("", {"style": "bold"}), ""), [map(localized, row) for row in cost.rows()]
    console = table_console()
    console.print(make_table(columns, rows, title=f"{recipe} on {localized(cost.device)}", show_header=False))
    if not cost.fits:
        console.print(_("It does not fit: {advice}", cost.advice), style="red", soft_wrap=True)
        raise SystemExit(1)
