"""Ablations that need no --vary, from ready.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from glassformer.config import did_you_mean, recipe_names
from glassformer.errors import ConfigError
from glassformer.files import structured
from glassformer_lab.sweep.variants import Variant

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
