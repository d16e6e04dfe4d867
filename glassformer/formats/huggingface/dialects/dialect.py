"""What a dialect is, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.tables import Entry, same
from glassformer.language import _
from glassformer.text.tokenizer import PAD

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "relu2": "relu2", "silu": "silu"}
ACTIVATIONS_BACK = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
    "swish": "silu",
}


@dataclass(frozen=True)
class Dialect:
    """One model class of Hugging Face: its `model_type`, and how to go there and back."""

    name: str
    family: str
    classes: Mapping[str, str]  # by our head: the class that AutoModel... picks
    needs: Mapping[str, Any]  # settings without which a model cannot be said in this dialect
    table: Callable[[ModelConfig], list[Entry]]
    to_config: Callable[[ModelConfig], dict[str, Any]]
    from_config: Callable[[Mapping[str, Any]], dict[str, Any]]
    scales: bool = False  # the class itself multiplies embeddings by sqrt(n_embd) where its config says so
    half_split: bool = False  # residual channels are in another order: see tables.py
    ignored: Callable[[ModelConfig], Sequence[str]] = lambda config: ()  # theirs, saying nothing new

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


def attention_rows(ours: str, theirs: str, names: Sequence[str], *, bias: bool = True) -> list[Entry]:
    """query, key, value and out under four names of theirs."""
    parts = zip(("query", "key", "value", "out"), names, strict=True)
    return [row for part, name in parts for row in same(f"{ours}.{part}", f"{theirs}.{name}", bias=bias)]


def need(hf: Mapping[str, Any], name: str, kind: type | tuple[type, ...] = int) -> Any:
    """A value of a config.json that must be there and be of its kind."""
    value = hf.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UserError("config.json has no usable {name}: {value!r}", name, value)
    return value


USUAL = {
    "vocab_size": "vocab_size",
    "block_size": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
}
"""What most classes call the sizes."""


@dataclass(frozen=True)
class ConfigNames:
    """What a config.json calls our settings: one table, read both ways."""

    sizes: Mapping[str, str]  # whole numbers, which must be there
    rates: Mapping[str, tuple[str, float]]  # and numbers with the default of the class
    activation: str
    tied: bool  # whether the output layer is the embedding where the config does not say

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
