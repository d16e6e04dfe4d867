"""How text is written: the recipe's `[decode]`, changed by options of the same names (`beam=8`, `temperature=0.7`).

An option that asks for a search puts aside what the recipe says of sampling, and the other way round; two options that
contradict each other are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.config.fields import coerce, type_hints
from glassformer.config.recipe import refuse_unknown
from glassformer.tasks.text_model import TextModel

NO_SEARCH: dict[str, Any] = {"beam": None, "n_best": 1, "groups": 1, "diversity": 0.0}
NO_SAMPLING: dict[str, Any] = {"temperature": 0.0, "top_k": None, "top_p": None, "min_p": None, "num_samples": 1}
USUAL_TEMPERATURE = 0.8  # a GPT whose recipe and caller leave it open samples at this


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names, and of the types, that DecodeConfig has."""
    hints = type_hints(DecodeConfig)
    refuse_unknown(options, list(hints), "decode")
    return {name: coerce(value, hints[name], f"decode.{name}") for name, value in options.items()}


def changed(config: DecodeConfig, options: Mapping[str, Any]) -> DecodeConfig:
    """The config with options on top. Searching and sampling exclude each other: what is asked for now wins."""
    values, options = asdict(config), checked(options)
    samples = (options.get("temperature") or 0) > 0
    searches = not samples and any(
        options.get(name) is not None for name in ("beam", "n_best", "groups", "temperature")
    )
    if samples:
        values |= NO_SEARCH
    if searches:
        values |= NO_SAMPLING
    if options.get("beam") is not None:
        values |= {name: default for name, default in NO_SEARCH.items() if name != "beam"}
    values |= options
    # More answers than the recipe's beam keeps: it is as wide as they are many, unless a width was asked for, too.
    kept = values["beam"] or DecodeConfig().beams
    if options.get("beam") is None and not samples and values["n_best"] > kept:
        groups = max(1, values["groups"])
        values["beam"] = -(-values["n_best"] // groups) * groups
    return DecodeConfig(**values)


def decode_settings(model: TextModel, config: DecodeConfig | None = None, **options: Any) -> DecodeConfig:
    """How this model writes: `config`, or the recipe's, with options on top. A GPT of plain text that is told nothing
    samples; one that is told to search is greedy until a beam is asked for."""
    base, samples = model.recipe.decode if config is None else config, model.kind == "gpt" and config is None
    try:
        return settings_on_top(base, samples, **options)
    except TypeError:  # a value that cannot be remembered, such as a list: checked as any other
        return settings_on_top.__wrapped__(base, samples, **options)


@lru_cache(256, typed=True)  # a server asks for the same settings with every request, and they take long to check
def settings_on_top(base: DecodeConfig, samples: bool, /, **options: Any) -> DecodeConfig:
    """The settings with options on top; `samples`: it is a GPT's, which samples unless it is told to search."""
    options = checked(options)
    if samples and base.beam is None:
        asked = [name for name in ("beam", "n_best", "groups", "temperature") if options.get(name) is not None]
        if not asked and base.temperature == 0:
            options = {"temperature": USUAL_TEMPERATURE, **options}
        elif asked == ["temperature"] and options["temperature"] == 0:
            options = {"beam": 1, **options}
    return changed(base, options)
