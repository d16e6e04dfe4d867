"""What a dialect is, and what all of them share."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
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
SAME_EVERYWHERE = ("residual", "scaled_attention", "window", "value_size", "pruned_heads")
"""Settings that no dialect can say otherwise than they are by default."""
WORKED_OUT = {
    "n_hidden": "hidden",
    "n_encoder_layer": "encoder_layers",
    "n_kv_head": "kv_heads",
    "head_size": "key_size",
}
"""Settings that may be left open, and what they come to."""


@cache
def names_of(part: str) -> dict[str, Any]:
    """What a kind of model calls our parameters and settings, or another part of names.toml."""
    names = tomllib.loads((Path(__file__).parents[1] / "names.toml").read_text(encoding="utf-8"))
    return names[part]  # type: ignore[no-any-return]


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


# -------------------------------------------------------------------------------------------------------- a config.json


def need(hf: Mapping[str, Any], name: str, kind: type | tuple[type, ...] = int) -> Any:
    """A value of a config.json that must be there and be of its kind."""
    value = hf.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UserError("config.json has no usable {name}: {value!r}", name, value)
    return value


def written_config(kind: str, config: ModelConfig) -> dict[str, Any]:
    """The settings of a model of ours in the words of a kind of model, by its table `config` in names.toml."""
    names = names_of(kind)["config"]
    found = {theirs: getattr(config, WORKED_OUT.get(ours, ours)) for ours, theirs in names["sizes"].items()}
    found |= {theirs: getattr(config, ours) for ours, (theirs, _) in names["rates"].items()}
    found |= {"tie_word_embeddings": config.tie_output, "pad_token_id": PAD}
    return found | {names["activation"]: ACTIVATIONS.get(config.activation, "silu")}


def read_config(kind: str, hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings out of a config.json of this kind of model, by the same table."""
    names = names_of(kind)["config"]
    found: dict[str, Any] = {ours: need(hf, theirs) for ours, theirs in names["sizes"].items()}
    found |= {ours: float(hf.get(theirs, usual)) for ours, (theirs, usual) in names["rates"].items()}
    activation = need(hf, names["activation"], str)
    if activation not in ACTIVATIONS_BACK:
        known = ", ".join(sorted(ACTIVATIONS_BACK))
        raise UserError("the activation {theirs!r} is not known here; there are {known}", activation, known)
    tied = bool(hf.get("tie_word_embeddings", names["tied"]))
    return found | {"activation": ACTIVATIONS_BACK[activation], "tie_output": tied}


def labels_of(hf: Mapping[str, Any]) -> list[str]:
    """The names of the labels in their order; LABEL_0, LABEL_1, … where config.json has no names."""
    found = hf.get("id2label")
    if isinstance(found, dict) and found:
        numbered = ((int(key) if key.isdecimal() and len(key) < 10 else 0, label) for key, label in found.items())
        return [str(label)[:200] for _, label in sorted(numbered, key=lambda entry: entry[0])]
    count = hf.get("num_labels")
    return [f"LABEL_{i}" for i in range(count if type(count) is int and 0 < count <= 100_000 else 2)]


@dataclass(frozen=True)
class Dialect:
    """The model classes of one `model_type` of Hugging Face, and how to go there and back. Its tables stand in names.toml."""

    name: str
    names: str  # the part of names.toml with its parameters
    from_config: Callable[[Mapping[str, Any]], dict[str, Any]]
    to_config: Callable[[ModelConfig], dict[str, Any]] = lambda config: {}  # of one that is only read
    scales: bool = False  # the class itself multiplies embeddings by sqrt(n_embd) where its config says so
    half_split: bool = False  # residual channels are in another order: see tables.py
    ignored: Callable[[ModelConfig], Sequence[str]] = lambda config: ()  # theirs, saying nothing new
    lacks: re.Pattern[str] | None = None  # parameters of ours that have no place there, and are zero
    # What is done to the tensors of a file before the names fit.
    tidy: Callable[[Mapping[str, Any], Tensors], Tensors] = lambda hf, tensors: tensors

    @property
    def always(self) -> dict[str, Any]:
        """The settings that every model of it has."""
        always = names_of("always")
        return always.get(self.names, {}) | always.get(self.name, {})

    @property
    def family(self) -> str:
        """Our family of models."""
        return str(self.always["family"])

    @property
    def classes(self) -> dict[str, str]:
        """The classes that can be read, and the head that each is here."""
        return names_of("classes")[self.name]  # type: ignore[no-any-return]

    def class_with(self, head: str) -> str:
        """The class that has a head of ours."""
        return next(name for name, known in self.classes.items() if known == head)

    def class_of(self, hf: Mapping[str, Any]) -> str | None:
        """The class that config.json names, if it is one that can be imported; None where it names none."""
        named = hf.get("architectures")
        if not isinstance(named, list) or not named or not isinstance(named[0], str):
            return None
        if named[0] not in self.classes:
            raise UserError(
                "config.json names a {named}, and of models of type {kind} these can be imported: {classes}",
                named[0][:60],
                self.name,
                ", ".join(self.classes),
            )
        return named[0]

    def settings(self, hf: Mapping[str, Any]) -> dict[str, Any]:
        """Our settings from a config.json: what it says, and what the class always has."""
        name = self.class_of(hf)
        head = "mlm" if name is None else self.classes[name]
        labels = len(labels_of(hf)) if head in ("classify", "tag") else 0
        return self.from_config(hf) | self.always | {"head": head, "n_label": labels}

    def table(self, config: ModelConfig) -> list[Entry]:
        """Our parameters beside theirs, for a model of this config."""
        with shapes_alone():
            model = build_model(replace(config, share_layers=False))
        parameters = {name for name, _ in model.named_parameters()}
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
        usual = {field.name: field.default for field in fields(ModelConfig)}
        needs = dict(names_of("needs")[self.name])
        by_default = [*SAME_EVERYWHERE, *needs.pop("by_default")]
        needs = {"head": [*self.classes.values()]} | {name: usual[name] for name in by_default} | needs
        found = []
        for name, wanted in needs.items():
            choices = wanted if isinstance(wanted, list) else [wanted]
            if (have := getattr(config, name)) not in choices:
                nearest = " or ".join(dict.fromkeys(map(str, choices)))
                told = {"have": have, "dialect": self.name, "nearest": nearest}
                found.append(_("model.{name} is {have}, and {dialect} has {nearest}", name=name, **told))
        return found
