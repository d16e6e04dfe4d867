"""A file of data in the place of a recipe: `glassformer train pairs.tsv`, `glassformer train --data pairs.tsv`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glassformer.cli.completion import DATA
from glassformer.config import recipe_names
from glassformer.config.recipe import apply_overrides, read_values
from glassformer.errors import ConfigError
from glassformer.language import _


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


def settings_of(changes: Sequence[str]) -> dict[str, Any]:
    """Those among the changes that say how a file of data is read."""
    values: dict[str, Any] = {}
    apply_overrides(values, [change for change in changes if change.startswith("data.")])
    return {key: value for key, value in values.get("data", {}).items() if key in (*READING, "format")}


def files_and_changes(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The files among the words of a command line, and the changes, such as data.source_field=en."""
    changes = [word for word in words if "=" in word and not Path(word).exists()]
    return [Path(word) for word in words if word not in changes], changes


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

    given = settings_of(changes)
    made = first_recipe(files, given.pop("task", None), fields=given, changes=changes)
    if recipe is None:
        values, name = made.values, made.name
        words = " ".join(shlex.quote(str(file)) for file in files)
        say(_("{chosen}; to see and change it: glassformer init {words}", made.chosen, words))
    else:
        values, name = read_values(recipe)
        kept = {key: value for key, value in values.get("data", {}).items() if key not in (*FILES, "builtin")}
        values["data"] = kept | {key: value for key, value in made.values["data"].items() if key in (*FILES, *READING)}
    for key in FILES[:-2]:
        if isinstance(file := values["data"].get(key), str):
            values["data"][key] = os.path.abspath(file)
    apply_overrides(values, changes)
    return values, name


READING = ("task", "source_field", "target_field", "text_field", "label_field", "features_field")
FILES = ("train", "val", "test", "train_target", "val_target", "test_target", "format", "path")
