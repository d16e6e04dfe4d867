"""What is varied: one setting at a time against the recipe as it is, or every combination; each named by what it changes.

    model.n_head=1,2,8                                 three variants
    model.n_head=1,2,8 model.head_size=64,32,8         three variants: settings that move together, value by value
    train.betas=[0.9,0.98],[0.9,0.95]                  lists as TOML writes them

A variant that cannot be is refused before anything is trained, by its name. Sets that need no --vary are in ready.toml.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from glassformer.config import Recipe, did_you_mean, read_recipe, recipe_names
from glassformer.data.batches import check_task
from glassformer.data.builtin import check_builtin
from glassformer.data.origins import SPLITS, origins_of
from glassformer.errors import ConfigError, UserError
from glassformer.evaluation.generated import metric_of
from glassformer.files import structured
from glassformer.models import build_model
from glassformer.models.costs import shapes_alone
from glassformer.runs import pick_device

BASE = "base"


@dataclass(frozen=True)
class Variant:
    """A name, the settings that make it, and the group it is shown in."""

    name: str
    settings: tuple[str, ...] = ()
    group: str = ""

    @property
    def folder(self) -> str:
        """The name as a part of a path."""
        return re.sub(r"[^A-Za-z0-9._=-]+", "-", self.name).strip("-.")[:80] or "variant"


def parse_vary(text: str) -> list[tuple[str, ...]]:
    """The settings of each variant that one --vary asks for.

    >>> parse_vary("model.n_head=1,2 model.head_size=64,32")
    [('model.n_head=1', 'model.head_size=64'), ('model.n_head=2', 'model.head_size=32')]
    """
    pieces = [piece for piece in re.split(r"\s+(?=\w+\.\w+=)", text.strip()) if piece]
    columns = []
    for piece in pieces:
        key, equals, values = piece.partition("=")
        found = [value.strip() for value in re.split(r",(?![^\[]*\])", values)]  # by the commas that stand in no list
        if not equals or "." not in key or not all(found):
            raise ConfigError("--vary {text!r} is not of the form key.sub=a,b,c, such as model.n_head=1,2,8", text)
        columns.append([f"{key.strip()}={value}" for value in found])
    if not columns:
        raise ConfigError("--vary is empty; write it as key.sub=a,b,c, such as model.n_head=1,2,8")
    if len({len(column) for column in columns}) > 1:
        raise ConfigError(
            "--vary {text!r}: settings that move together need equally many values, and these have {columns}",
            text,
            ", ".join(str(len(column)) for column in columns),
        )
    return list(zip(*columns, strict=True))


def make_variants(vary: Sequence[str], *, cross: bool = False) -> list[Variant]:
    """One variant for each value; with `cross` one for each combination of values. The recipe itself is not among them."""
    parsed = [parse_vary(text) for text in vary]
    keys = [[setting.partition("=")[0] for setting in one[0]] for one in parsed]
    seen: set[str] = set()
    for key in itertools.chain(*keys):
        if key in seen:
            raise ConfigError("{key} is varied twice; give all its values in one --vary", key)
        seen.add(key)
    if cross:
        combined = [tuple(itertools.chain(*chosen)) for chosen in itertools.product(*parsed)]
        return [Variant(" ".join(settings), settings, "all combinations") for settings in combined]
    return [
        Variant(" ".join(settings), settings, ", ".join(own))
        for own, found in zip(keys, parsed, strict=True)
        for settings in found
    ]


def merged(overrides: Sequence[str], settings: Sequence[str]) -> list[str]:
    """The settings of all, then a variant's own, which take their place.

    >>> merged(["model.positions=learned", "train.steps=5"], ["model.positions=none"])
    ['train.steps=5', 'model.positions=none']
    """
    names = [setting.partition("=")[0].strip() for setting in settings]
    return [*(setting for setting in overrides if setting.partition("=")[0].strip() not in names), *settings]


def check_builds(recipe: Recipe) -> None:
    """Refuses what could only fail later: a score nobody measures, data that are not there, a model that cannot be built."""
    metric_of(recipe)
    check_task(recipe.data, recipe.model.family, recipe.model.head)
    pick_device(recipe.train)
    if recipe.data.builtin is not None:
        check_builtin(recipe.data)
    for split in SPLITS:
        origins_of(recipe.data, split)
    model = recipe.model
    labels = 2 if (model.head != "mlm" and not model.n_label) else model.n_label
    with shapes_alone():
        build_model(replace(model, vocab_size=model.vocab_size or 1000, n_label=labels))


def resolve(recipe: str, overrides: Sequence[str], variants: Sequence[Variant]) -> dict[str, Recipe]:
    """The recipe of every variant by its name, each checked; the base first. A variant that changes nothing is the base."""
    base = read_recipe(recipe, overrides)
    check_builds(base)
    found = {BASE: base}
    folders = {BASE}
    for variant in variants:
        try:
            own = read_recipe(recipe, merged(overrides, variant.settings))
            check_builds(own)
        except (UserError, ValueError) as error:
            raise ConfigError("the variant {variant!r} cannot be: {error}", variant.name, error) from None
        if own == base:
            continue
        if variant.folder in folders:
            raise ConfigError("there are two variants {variant!r}; leave one of them out", variant.name)
        folders.add(variant.folder)
        found[variant.name] = own
    if len(found) == 1:
        raise ConfigError("nothing is varied: every variant is the recipe as it is; give other values to --vary")
    return found


QUICK = (
    *("train.steps=20", "train.warmup=5", "train.validate_every=10", "train.save_every=20"),
    *("train.validate_examples=32", "train.log_every=1"),
)
"""For --quick: enough to see that everything runs, and nothing to be believed."""


@dataclass(frozen=True)
class ReadySet:
    """A named ablation: the recipe, what is changed in it for all, and the variants."""

    name: str
    about: str
    recipe: str
    settings: tuple[str, ...]
    variants: tuple[Variant, ...]
    seeds: int = 3
    quick: tuple[str, ...] = ()


@cache
def ready_sets() -> tuple[ReadySet, ...]:
    """The ablations of ready.toml."""
    values = tomllib.loads(Path(__file__).with_name("ready.toml").read_text(encoding="utf-8"))
    return structured.convert(values["set"], tuple[ReadySet, ...], "ready.toml")  # type: ignore[no-any-return]


def find_ready(name: str) -> ReadySet | None:
    """The ablation of this name; None where it is a recipe's name or file; a sentence where it is neither."""
    found = next((one for one in ready_sets() if one.name == name), None)
    known = [*(one.name for one in ready_sets()), *recipe_names()]
    if found is None and not name.endswith(".toml") and name not in known:
        raise ConfigError(
            "there is no ablation and no recipe {name!r}{suggestion}; ready are "
            "{ready_sets}; see also: glassformer recipes",
            name,
            did_you_mean(name, known),
            ", ".join(one.name for one in ready_sets()),
        )
    return found
