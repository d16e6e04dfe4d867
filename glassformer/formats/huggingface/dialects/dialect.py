"""What a dialect is, and what all of them share."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.tables import Entry
from glassformer.language import _
from glassformer.models import build_model
from glassformer.models.costs import shapes_alone
from glassformer.text.tokenizer import PAD

Tensors = dict[str, Tensor]

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "relu2": "relu2", "silu": "silu"}
ACTIVATIONS_BACK = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
    "swish": "silu",
}


@cache
def names_of(kind: str) -> dict[str, Any]:
    """What a kind of model calls our parameters and settings: its part of names.toml."""
    names = tomllib.loads((Path(__file__).parents[1] / "names.toml").read_text(encoding="utf-8"))
    return names[kind]  # type: ignore[no-any-return]


def entries(ours: str, theirs: str, parameters: set[str]) -> Iterator[Entry]:
    """One line of names.toml as rows of a table: the weight and the bias of a layer, or a parameter by its whole name, where the
    model has it."""
    name, _unused, transposed = theirs.partition(" ")
    if ours in parameters:
        yield Entry((ours,), name)
    for part in ("weight", "bias"):
        own = tuple(f"{layer}.{part}" for layer in ours.split())
        if own[0] in parameters:
            yield Entry(own, f"{name}.{part}", transpose=bool(transposed) and part == "weight")


@dataclass(frozen=True)
class Dialect:
    """One model class of Hugging Face: its `model_type`, and how to go there and back."""

    name: str
    family: str
    classes: Mapping[str, str]  # by our head: the class that AutoModel... picks
    needs: Mapping[str, Any]  # settings without which a model cannot be said in this dialect
    names: str  # its part of names.toml
    to_config: Callable[[ModelConfig], dict[str, Any]]
    from_config: Callable[[Mapping[str, Any]], dict[str, Any]]
    scales: bool = False  # the class itself multiplies embeddings by sqrt(n_embd) where its config says so
    half_split: bool = False  # residual channels are in another order: see tables.py
    ignored: Callable[[ModelConfig], Sequence[str]] = lambda config: ()  # theirs, saying nothing new
    lacks: re.Pattern[str] | None = None  # parameters of ours that have no place there
    # What is done to the tensors of a file before the names fit.
    tidy: Callable[[Mapping[str, Any], Tensors], Tensors] = lambda hf, tensors: tensors

    def settings(self, hf: Mapping[str, Any]) -> dict[str, Any]:
        """Our settings from a config.json: what it says, and what the class always has."""
        always = names_of("always")
        return self.from_config(hf) | always.get(self.names, {}) | always.get(self.name, {})

    def table(self, config: ModelConfig) -> list[Entry]:
        """Our parameters beside theirs, for a model of this config."""
        with shapes_alone():
            model = build_model(replace(config, share_layers=False))
        parameters = {name for name, _ in model.named_parameters() if self.lacks is None or not self.lacks.search(name)}
        names = names_of(self.names)
        plain = {ours: theirs for ours, theirs in names.items() if isinstance(theirs, str)}
        rows: list[Entry] = []
        for layered, group in groupby((plain | names.get(config.head, {})).items(), key=lambda pair: "{i}" in pair[0]):
            pairs = list(group)
            for i in range(max(config.n_layer, config.encoder_layers) if layered else 1):
                for ours, theirs in pairs:
                    rows += entries(ours.format(i=i), theirs.format(i=i), parameters)
        return rows

    def reasons(self, config: ModelConfig) -> list[str]:
        """Why this model cannot be said in this dialect, as settings that would have to be otherwise."""
        found = []
        for name, wanted in ({"head": list(self.classes)} | PLAIN | dict(self.needs)).items():
            choices = wanted if isinstance(wanted, list) else [wanted]
            if (have := getattr(config, name)) not in choices:
                told = {"have": have, "dialect": self.name, "nearest": " or ".join(map(str, choices))}
                found.append(_("model.{name} is {have}, and {dialect} has {nearest}", name=name, **told))
        return found


PLAIN: dict[str, Any] = {"residual": True, "scaled_attention": True, "window": None, "value_size": None}
PLAIN |= {"pruned_heads": ()}
"""What no dialect can say otherwise."""


def need(hf: Mapping[str, Any], name: str, kind: type | tuple[type, ...] = int) -> Any:
    """A value of a config.json that must be there and be of its kind."""
    value = hf.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UserError("config.json has no usable {name}: {value!r}", name, value)
    return value


@dataclass(frozen=True)
class ConfigNames:
    """What a config.json calls our settings: one table of names.toml, read both ways."""

    sizes: Mapping[str, str]  # whole numbers, which must be there
    rates: Mapping[str, tuple[str, float]]  # and numbers with the default of the class
    activation: str
    tied: bool  # whether the output layer is the embedding where the config does not say

    @staticmethod
    def of(kind: str) -> ConfigNames:
        """Those of a kind of model."""
        return ConfigNames(**names_of(kind)["config"])

    def written(self, config: ModelConfig) -> dict[str, Any]:
        """The settings of a model of ours, in their words."""
        found = {theirs: getattr(config, WORKED_OUT.get(ours, ours)) for ours, theirs in self.sizes.items()}
        found |= {theirs: getattr(config, ours) for ours, (theirs, _) in self.rates.items()}
        found |= {"tie_word_embeddings": config.tie_output, "pad_token_id": PAD}
        return found | {self.activation: ACTIVATIONS.get(config.activation, "silu")}

    def read(self, hf: Mapping[str, Any]) -> dict[str, Any]:
        """Our settings out of a config.json."""
        found: dict[str, Any] = {ours: need(hf, theirs) for ours, theirs in self.sizes.items()}
        found |= {ours: float(hf.get(theirs, usual)) for ours, (theirs, usual) in self.rates.items()}
        tied = bool(hf.get("tie_word_embeddings", self.tied))
        return found | {"activation": activation_of(hf, self.activation), "tie_output": tied}


WORKED_OUT = {
    "n_hidden": "hidden",
    "n_encoder_layer": "encoder_layers",
    "n_kv_head": "kv_heads",
    "head_size": "key_size",
}
"""Settings that may be left open, and what they come to."""


def activation_of(hf: Mapping[str, Any], name: str) -> str:
    """Their name of an activation in our words."""
    theirs = need(hf, name, str)
    if theirs not in ACTIVATIONS_BACK:
        raise UserError(
            "the activation {theirs!r} is not known here; there are {known}",
            theirs,
            ", ".join(sorted(ACTIVATIONS_BACK)),
        )
    return ACTIVATIONS_BACK[theirs]


SAME_HEADS: dict[str, Any] = {"qk_norm": False, "head_size": None, "n_kv_head": None, "norm": "layer", "bias": True}
"""Heads of one size, layer norms and biases everywhere: what the older classes have."""
