"""What may change when a run goes on, or when another training begins with it, and what may not.

A run that goes on with its own settings is exactly the run that never stopped. One that goes on with others is a new thing,
and whoever wants it must say so: the difference is shown and has to be confirmed. Some settings cannot change at all,
because what was learned would no longer fit: the shape of the model, the data and their order, the kind of optimizer.

Of a fine-tuning the model and the way texts are read are those of the run it begins with; a recipe that says otherwise is
told so. Data and training are its own. A learning rate it does not name is a tenth of the run's: weights that are good
already are to move little.

This file compares recipes; it knows nothing of files and tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from typing import Any, Literal

from glassformer.config.fields import coerce, type_hints
from glassformer.config.model import PRESETS, ModelConfig
from glassformer.config.recipe import PARTS, Recipe
from glassformer.errors import ConfigError

# Of the model only what leaves its shape and its meaning alone; of the data only how they are cut into batches.
FREE = {
    "model": {"dropout", "attention_dropout"},
    "data": {"batch_tokens", "layout", "row_width", "workers"},
    "train": {f.name for f in fields(PARTS["train"])}
    - {"seed", "optimizer", "freeze", "lora_rank", "lora_alpha", "lora_targets"},
    "decode": {f.name for f in fields(PARTS["decode"])},
}
FILES = ("path", "train", "val", "test", "train_target", "val_target", "test_target", "tokenizer_file")
FILLED_IN = {"vocab_size", "source_vocab_size", "n_label", "share_source_target"}  # by the preparation, from the data
FOR_SHORT_TARGETS: Literal["exact_match"] = "exact_match"
"""What the preparation makes of train.metric=auto where BLEU would always be 0."""


@dataclass(frozen=True)
class Change:
    """One setting that differs between a run and what it is asked to go on with."""

    part: str
    name: str
    old: Any
    new: Any

    @property
    def key(self) -> str:
        """The name of the setting on the command line, such as "train.steps"."""
        return f"{self.part}.{self.name}"

    @property
    def possible(self) -> bool:
        """Whether what was learned still fits."""
        return self.name in FREE[self.part]

    def __str__(self) -> str:
        return f"{self.key}: {shown(self.old)} → {shown(self.new)}"


def shown(value: Any) -> str:
    """A value as one would write it in a recipe."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def file_names(named: Any) -> Any:
    """The last parts of paths, and what else a list of files says of each."""
    if isinstance(named, tuple):
        return [(file_names(f.path), file_names(f.target), f.weight, f.tag) for f in named]
    return None if named is None else PurePath(named).name


def as_prepared(recipe: Recipe, run: Recipe) -> Recipe:
    """A recipe fresh from its file, with what the preparation of the run filled in. Where its files lie is no setting of a
    run, which has what it needs of them: a project may be moved, and only other names are another thing."""
    moved = {key: getattr(run.data, key) for key in FILES if same_files(recipe, run, key)}
    filled_in = {name: getattr(run.model, name) for name in FILLED_IN}
    short_targets = recipe.train.metric == "auto" and run.train.metric == FOR_SHORT_TARGETS
    train = replace(recipe.train, metric=run.train.metric) if short_targets else recipe.train
    return replace(recipe, model=replace(recipe.model, **filled_in), data=replace(recipe.data, **moved), train=train)


def same_files(recipe: Recipe, run: Recipe, key: str) -> bool:
    """Whether a setting of the data names the same files, wherever they lie."""
    if key == "path":
        return True
    return bool(file_names(getattr(recipe.data, key)) == file_names(getattr(run.data, key)))


def changes(old: Recipe, new: Recipe) -> list[Change]:
    """Every setting whose value differs, part by part."""
    return [
        Change(part, f.name, before, after)
        for part, kind in PARTS.items()
        for f in fields(kind)
        if (before := getattr(getattr(old, part), f.name)) != (after := getattr(getattr(new, part), f.name))
    ]


def check_changes(found: list[Change], *, accepted: bool) -> None:
    """Refuses what cannot change, and what was not confirmed."""
    impossible = [str(c) for c in found if not c.possible]
    if impossible:
        raise ConfigError(
            "a run cannot go on with {impossible}: what it learned would no longer fit; start a new run for that",
            "; ".join(impossible),
        )
    if found and not accepted:
        listed = "\n".join(f"  {c}" for c in found)
        raise ConfigError(
            "these settings differ from those the run has been trained with; confirm with --accept-changes:\n{listed}",
            listed,
        )


ADAPTABLE = {"dropout", "attention_dropout", "head", "pool", "n_label", "init", "scaled_init"}
"""Settings of a model that another training may have otherwise."""
READING = {
    *("tokenizer", "target_tokenizer", "pattern", "decompose", "lowercase", "separate_vocabularies"),
    *("prompt_answer", "begin_documents", "close_texts"),
}
"""Settings of the data that belong to how the run's model reads texts."""
LOWER = 0.1


def fine_tuned(run: Recipe, values: Mapping[str, Any], *, name: str = "recipe", resumed: bool = False) -> Recipe:
    """The recipe of these values for a training that begins with `run`. `resumed`: `run` is that training itself."""
    out = {part: dict(own) if isinstance(own, Mapping) else own for part, own in values.items()}
    base = run.to_dict()
    model = dict(out.get("model", {}))
    preset = model.pop("preset", None)
    if isinstance(preset, str) and preset in PRESETS:
        model = {**PRESETS[preset], **model}
    fixed = {"model": type_hints(ModelConfig).keys() - ADAPTABLE - FILLED_IN, "data": READING}
    for part, given in (("model", model), ("data", dict(out.get("data", {})))):
        hints = type_hints(PARTS[part])
        for key in given.keys() & fixed[part]:
            own = getattr(getattr(run, part), key)
            if coerce(given[key], hints[key], f"{part}.{key}") != own:
                raise ConfigError(
                    "{part}.{key} is {given} in the recipe and {own} in the run that training begins with; leave it out",
                    part,
                    key,
                    given[key],
                    own,
                )
    out["model"] = base["model"] | {k: v for k, v in model.items() if k in ADAPTABLE or k not in base["model"]}
    inherited = {key: base["data"][key] for key in (*READING, "task") if key in base["data"]}
    out["data"] = inherited | dict(out.get("data", {}))
    if out["data"]["task"] in ("classify", "tag"):
        out["model"]["head"] = out["data"]["task"]
    out["decode"] = base["decode"] | dict(out.get("decode", {}))
    out["train"] = dict(out.get("train", {}))
    if "learning_rate" not in out["train"]:
        out["train"]["learning_rate"] = run.train.learning_rate * (1 if resumed else LOWER)
    return Recipe.from_dict(out, name=name)
