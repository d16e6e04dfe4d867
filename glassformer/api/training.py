"""Training from Python: a recipe by its name, its file or as a dictionary; data from files or from memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from glassformer import runs
from glassformer.api.loading import load
from glassformer.api.models import AnyModel
from glassformer.config import Recipe
from glassformer.config.changes import fine_tuned
from glassformer.config.fields import did_you_mean
from glassformer.config.recipe import PARTS, presets_first, put_later, read_recipe, read_values
from glassformer.errors import ConfigError, UserError
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.screen import quietly, say
from glassformer.training.progress import StepReport

Callback = Callable[[StepReport], Any]


@dataclasses.dataclass(frozen=True)
class Reporter:
    """Callbacks as the trainer knows them: told of each logged step."""

    callbacks: Sequence[Callback]

    def on_log(self, report: StepReport) -> None:
        """Each callback gets the report: its step, loss, rate, norm, tokens, epoch."""
        for callback in self.callbacks:
            callback(report)

    def on_message(self, text: str) -> None:
        """What the screen is told in words is not repeated."""


def place_of(name: str) -> tuple[str, str]:
    """A setting's part and name: `train.steps`, with two underscores for the dot, or `steps` where it is one part's alone."""
    part, _unused, rest = name.replace("__", ".").partition(".")
    if rest:
        return part, rest
    names = {table: [field.name for field in dataclasses.fields(config)] for table, config in PARTS.items()}
    tables = [table for table in names if name in names[table]]
    if len(tables) == 1:
        return tables[0], name
    if tables:
        raise ConfigError(
            "{name} is a setting of {found}; say which, as {part}={{{name!r}: …}}",
            name,
            " and ".join(tables),
            tables[0],
        )
    raise ConfigError("there is no setting {name!r}{suggestion}", name, did_you_mean(name, [*chain(*names.values())]))


def with_settings(values: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's values with others on top: `steps=200`, `train={"steps": 200}` or `**{"train.steps": 200}`.

    >>> with_settings({"train": {"steps": 5}}, {"steps": 9, "model": {"n_layer": 1}})
    {'train': {'steps': 9}, 'model': {'n_layer': 1}}
    """
    out = {part: dict(own) if isinstance(own, Mapping) else own for part, own in values.items()}
    given: list[tuple[str, str, Any]] = []
    for name, value in overrides.items():
        if name in PARTS and isinstance(value, Mapping):
            given += [(name, setting, own) for setting, own in value.items()]
        elif name in ("name", "about"):
            out[name] = value
        else:
            part, setting = place_of(name)
            given.append((part, setting, "none" if value is None else value))
    for part, setting, value in presets_first(given, lambda one: f"{one[0]}.{one[1]}"):
        put_later(out.setdefault(part, {}), part, setting, value)
    return out


def check_recipe(recipe: Any) -> None:
    """Data in the recipe's place is refused: which model learns from it is for a person to say."""
    tables = recipe.values() if isinstance(recipe, Mapping) else ()
    as_data = any(hasattr(own, "__len__") and not isinstance(own, Mapping | str) for own in tables)
    if as_data or not isinstance(recipe, str | Path | Mapping | Recipe):
        raise UserError(
            "train takes a recipe first (a name, a .toml file or a dictionary of its tables), not {kind}; "
            'data in memory comes second: train({{"model": {{"preset": "transformer-tiny"}}}}, data)',
            type(recipe).__name__,
        )


def make_recipe(recipe: str | Path | Mapping[str, Any] | Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """The recipe that a name, a file or a dictionary stands for, with settings on top."""
    if isinstance(recipe, Mapping):
        return Recipe.from_dict(with_settings(dict(recipe), overrides), name="mine")
    found = recipe if isinstance(recipe, Recipe) else read_recipe(str(recipe))
    return Recipe.from_dict(with_settings(found.to_dict(), overrides)) if overrides else found


def tuned_recipe(
    recipe: str | Path | Mapping[str, Any] | Recipe, overrides: Mapping[str, Any], start: Recipe
) -> Recipe:
    """The recipe of a training that begins with a run."""
    if isinstance(recipe, Recipe):
        raise UserError(
            "with from_run, give a recipe by its name, its file or as a dictionary: what it leaves open is the run's"
        )
    values, name = (dict(recipe), "mine") if isinstance(recipe, Mapping) else read_values(str(recipe))
    return fine_tuned(start, with_settings(values, overrides), name=name)


def check_nothing_beside_a_run(**given: Any) -> None:
    """What would have no effect where a run is gone on with is refused."""
    if ignored := [name for name, value in given.items() if value is not None]:
        raise UserError("a run goes on in its own folder with its own data; leave {options} out", ", ".join(ignored))


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    data: Any = None,
    *,
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    overwrite: bool = False,
    resume: bool = False,
    from_run: str | Path | None = None,
    device: str = "auto",
    quiet: bool = False,
    **overrides: Any,
) -> AnyModel:
    """Trains a model and gives it back, ready to use; the run is left in the folder `out` (`runs/NAME`, if none is named).

    `recipe` is a built-in recipe's name, a TOML file or a dictionary of its tables; a run's folder with `resume=True` goes
    on with that run. `data` is data in memory in the place of files: a list of pairs (or texts, or (text, label)), a
    Hugging Face `Dataset`, a pandas or polars frame, or a dictionary of these by split. Settings go by their names:
    `train(recipe, steps=200, n_layer=2)`, or by table: `train={"steps": 200}`, `data={"lowercase": True}`. Each of
    `callbacks` is called with a report of every logged step (`.step`, `.loss`, `.rate`, `.norm`, `.tokens`). `from_run`:
    fine-tune, beginning with the weights and tokenizers of that run. `quiet`: nothing on the screen but errors.

    >>> pairs = [(f"{a} {b}", f"{b} {a}") for a in "abcdef" for b in "abcdef"]
    >>> recipe = {"model": {"preset": "transformer-tiny"}, "data": {"tokenizer": "char"}}
    >>> model = train(recipe, pairs, out="runs/swapped", steps=2, n_embd=16, overwrite=True, quiet=True)
    >>> type(model).__name__, model.recipe.train.steps
    ('Translator', 2)
    """
    check_recipe(recipe)
    if resume and overwrite:
        raise UserError("resume goes on with a run, and overwrite replaces it; leave one of them out")
    if isinstance(data, Mapping) and all(isinstance(own, str | int | float | None) for own in data.values()):
        overrides, data = {**overrides, "data": data}, None  # settings, as train={"steps": 200} is
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise UserError("callbacks is a list of functions, each called with a report of every logged step")
    trainer_callbacks = [Reporter(tuple(callbacks))] if callbacks else []
    settings = overrides if device == "auto" else {**overrides, "train.device": device}
    if isinstance(recipe, str | Path) and RunFolder.is_run(Path(recipe)):
        if not resume:
            raise UserError(
                "{recipe} is a run, not a recipe; go on with it by train({quoted_recipe!r}, resume=True)",
                recipe,
                str(recipe),
            )
        check_nothing_beside_a_run(data=data, from_run=from_run, out=out)
        folder = Path(recipe)
        changed = make_recipe(RunFolder(folder).recipe, settings) if settings else None
        with quietly(quiet):
            runs.resume(folder, changed, accept_changes=bool(overrides), callbacks=trainer_callbacks)
        return load(folder, device=device)
    start = None if from_run is None else RunFolder.open(from_run)
    resolved = make_recipe(recipe, settings) if start is None else tuned_recipe(recipe, settings, start.recipe)
    folder = Path("runs") / resolved.name if out is None else Path(out)
    if RunFolder.is_run(folder) and not resume and not overwrite:
        raise UserError(
            "{folder} holds a run already; go on with it by resume=True, or choose another folder by out=…, or replace it by "
            "overwrite=True",
            folder,
        )
    with quietly(quiet):
        if resume and RunFolder.is_run(folder):
            if data is not None:
                say(_("{folder} goes on with the data it began with; what is given now is not read", folder))
            runs.resume(folder, resolved, callbacks=trainer_callbacks)
        else:
            runs.train(resolved, folder, overwrite=overwrite, callbacks=trainer_callbacks, given=data, start=start)
    return load(folder, device=device)
