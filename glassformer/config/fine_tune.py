"""The recipe of a fine-tuning: what it says itself, on top of the run it begins with.

The model and the way texts are read are the run's; a recipe that says otherwise is told so. Data and training are its own. A
learning rate it does not name is a tenth of the run's: weights that are good already are to move little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassformer.config.data import DataConfig
from glassformer.config.fields import coerce, type_hints
from glassformer.config.model import PRESETS, ModelConfig
from glassformer.config.recipe import Recipe
from glassformer.errors import ConfigError

ADAPTABLE = {"dropout", "attention_dropout", "head", "pool", "n_label", "init", "scaled_init"}
"""Settings of a model that another training may have otherwise."""
READING = {"tokenizer", "lowercase", "separate_vocabularies", "prompt_answer", "begin_documents", "close_texts"}
"""Settings of the data that belong to how the run's model reads texts."""
FILLED_IN = {("model", key) for key in ("vocab_size", "source_vocab_size", "share_source_target")}
"""What the preparation sets, whatever a recipe says."""
LOWER = 0.1


def fine_tuned(run: Recipe, values: Mapping[str, Any], *, name: str = "recipe", resumed: bool = False) -> Recipe:
    """The recipe of these values for a training that begins with `run`. `resumed`: `run` is that training itself."""
    out = {part: dict(own) if isinstance(own, Mapping) else own for part, own in values.items()}
    base = run.to_dict()
    model = dict(out.get("model", {}))
    preset = model.pop("preset", None)
    if isinstance(preset, str) and preset in PRESETS:
        model = {**PRESETS[preset], **model}
    for part, kind, free in (("model", ModelConfig, ADAPTABLE), ("data", DataConfig, None)):
        given = model if part == "model" else dict(out.get("data", {}))
        hints = type_hints(kind)
        for key in given.keys() & hints.keys():
            fixed = key not in free if free is not None else key in READING
            own = getattr(getattr(run, part), key)
            fixed = fixed and (part, key) not in FILLED_IN
            if fixed and coerce(given[key], hints[key], f"{part}.{key}") != own:
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
        out["model"].setdefault("head", out["data"]["task"])
        out["model"]["head"] = out["data"]["task"]
    out["decode"] = base["decode"] | dict(out.get("decode", {}))
    out["train"] = dict(out.get("train", {}))
    if "learning_rate" not in out["train"]:
        out["train"]["learning_rate"] = run.train.learning_rate * (1 if resumed else LOWER)
    return Recipe.from_dict(out, name=name)
