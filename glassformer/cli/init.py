"""`glassformer init`: a recipe with every setting and its comment, for data that is there."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from glassformer.cli import options
from glassformer.cli.own_data import files_and_changes, settings_of
from glassformer.config import Recipe
from glassformer.config.documentation import commented_recipe
from glassformer.config.recipe import apply_overrides
from glassformer.errors import UserError
from glassformer.language import _, localized

DEMO: dict[str, Any] = {
    "model": {"preset": "transformer-tiny", "n_layer": 2},
    "data": {"builtin": "reverse", "tokenizer": "char"},
    "train": {"steps": 1000},
}
"""Without data of one's own: a built-in set, in whose place a file goes."""


@options.documented
def init(files: list[str] | None = None, out: Path | None = None, task: options.Task = None) -> None:
    """Write a recipe for your data, as `train FILE` would choose it: a TOML file with every setting and what it does."""
    paths, changes = files_and_changes(files or [])
    if task is not None and not paths:
        raise UserError(
            "--task says how a file of yours is read; name the file: glassformer init FILE --task {task}", task
        )
    chosen, name = DEMO, "recipe"
    remarks: list[str] = []
    if paths:
        from glassformer.data.doctor.facts import first_remarks
        from glassformer.data.first_recipe import first_recipe

        given = settings_of(changes)
        made = first_recipe(paths, task or given.pop("task", None), fields=given)
        chosen, name = made.values, made.name
        apply_overrides(chosen, changes)
        remarks = [made.chosen, *first_remarks(Recipe.from_dict(chosen, name=name).data)]
    elif changes:
        raise UserError(
            "{change} changes the recipe of a file; name the file: glassformer init FILE {change}", changes[0]
        )
    path = out or Path(f"{name}.toml")
    data = dict(chosen["data"])
    for key in ("train", "val", "test", "train_target", "val_target", "test_target"):
        if key in data:
            data[key] = os.path.relpath(data[key], path.parent)
    recipe = Recipe.from_dict(chosen, name=name)
    text = commented_recipe(recipe, chosen | {"data": data})
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError("{path} is there already; choose another name with --out", path) from None
    except OSError as error:
        raise UserError("{filename} cannot be written: {reason}", path, error.strerror) from None
    for remark in remarks:
        print(localized(remark))
    both = path, shlex.quote(str(path))
    print(localized(_("{path} is written; change what you like, and: glassformer train {quoted_path}", *both)))
