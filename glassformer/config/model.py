"""The settings of a model: its family, its sizes, and each choice between the parts of the literature; and the named sizes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from glassformer.config.fields import check, not_among, setting, shortened
from glassformer.errors import ConfigError
from glassformer.language import _


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model in numbers and choices: what a recipe's [model] holds. `glassformer info --settings model` shows them all.

        ModelConfig(family="gpt", vocab_size=65, n_layer=4, n_head=4, n_embd=128)

    A value that cannot be is a ConfigError with a sentence.

    >>> ModelConfig(n_embd=64, n_head=4).key_size
    16

    Attributes:
        family: transformer: an encoder-decoder, for pairs; gpt: a decoder, which writes on; bert: an encoder, which
            reads
        vocab_size: how many tokens there are; filled in from the tokenizer (of the target, where source and target
            differ)
        source_vocab_size: of the source, where it has a vocabulary of its own; none: source and target share one
        block_size: the longest row of tokens the model is built for; longer examples are left out of training, tagged
            ones read in windows
        n_layer: blocks of the decoder (of a GPT or BERT: of the model)
        n_encoder_layer: blocks of the encoder; none: as many as n_layer
        n_head: attention heads a layer
        n_encoder_head: heads a layer of the encoder; none: as many as n_head
        n_encoder_hidden: n_hidden of the encoder; none: the same
        n_kv_head: heads of keys and values; fewer than n_head: grouped-query attention, 1: multi-query; none: n_head
        n_embd: the hidden size (d_model): how many numbers stand for a token between layers
        n_hidden: the width inside the feed-forward layer; none: 4 n_embd
        head_size: numbers in a query and a key of one head; none: n_embd / n_head
        value_size: numbers in a value of one head; none: head_size
        dropout: the share of numbers set to zero after embeddings and sublayers while training, against learning by
            heart
        attention_dropout: the same for attention weights
        activation: between the two matrices of the feed-forward layer; swiglu and both kinds of geglu are gated and
            have a third matrix
        bias: whether matrices and layer norms have a bias
        norm: layer: mean 0, variance 1; rms: without the mean; batch and none are there for the experiment
        norm_eps: added under the root of a norm, so that nothing is divided by zero
        pre_norm: norm before each sublayer, inside the residual connection; false: post-norm, as in the paper
        final_norm: a norm after the last block
        embedding_norm: a norm on the embeddings, as in BERT
        positions: how the order of tokens is told: sinusoids, a learned table, rotated queries and keys, ALiBi's
            bias, T5's learned bias for buckets of distances (relative), not at all (none)
        sinusoid_base: of the wavelengths of sinusoidal positions; larger: a longer period
        rotary_scaling: reading texts longer than those trained on: linear squeezes positions by rotary_factor
            (position interpolation), ntk slows the slow turns instead and leaves the fast ones; llama3 divides the
            slow turns by rotary_factor, leaves the fast ones, and goes from one to the other between (Llama 3.1's)
        rotary_factor: how many times longer, with rotary_scaling
        rotary_length: llama3: the original context length, that of the training
        rotary_low: llama3: the low frequency factor; a pair that turns less often than this in that length is slow
        rotary_high: llama3: the high frequency factor; a pair that turns more often than this in that length is fast
        rotary_base: of the wavelengths of rotary positions; larger: slower turns, for longer texts
        window: self-attention sees this many keys, self included; none: all. Cross-attention always sees all
        qk_norm: an RMS norm on each head's queries and keys
        scaled_attention: divide scores by the root of the head size; false is there for the experiment
        scale_embeddings: multiply embeddings by the root of n_embd, as in the paper: beside sinusoids small ones
            would drown
        tie_output: the output layer is the embedding table
        output_bias: a number added to the score of each word, as in Marian's models (BERT always has one)
        share_source_target: one embedding table for both sides, where they share a vocabulary
        share_layers: all layers of a stack have the same parameters, for the experiment
        residual: false: no residual connections, for the experiment
        n_token_type: BERT: embeddings that say to which of several sentences a token belongs; 0: none
        head: BERT: what is predicted: masked tokens, the class of a text, or a tag for each word; none: nothing,
            texts become vectors
        pool: classify: read the class off the first token, or off the mean of all
        n_label: BERT: the number of classes or tags; filled in from the data
        init: how weights begin: normal with deviation 0.02 (GPT-2's), or Glorot's uniform (the paper's)
        scaled_init: init=normal: what writes into the residual stream begins smaller, the deeper the model
        pruned_heads: heads that were taken out after training, as "decoder.3.cross:5"; written by `heads --prune`
    """

    family: Literal["transformer", "gpt", "bert"] = "transformer"
    vocab_size: int = setting(0, ge=0, le=10**8)
    source_vocab_size: int | None = setting(None, ge=1, le=10**8)
    block_size: int = setting(256, ge=1, le=10**9)
    n_layer: int = setting(6, ge=1, le=10**4)
    n_encoder_layer: int | None = setting(None, ge=1, le=10**4)
    n_head: int = setting(8, ge=1, le=10**4)
    n_encoder_head: int | None = setting(None, ge=1, le=10**4)
    n_encoder_hidden: int | None = setting(None, ge=1, le=10**7)
    n_kv_head: int | None = setting(None, ge=1)
    n_embd: int = setting(512, ge=1, le=10**6)
    n_hidden: int | None = setting(None, ge=1, le=10**7)
    head_size: int | None = setting(None, ge=1, le=10**6)
    value_size: int | None = setting(None, ge=1, le=10**6)
    dropout: float = setting(0.1, ge=0, lt=1)
    attention_dropout: float = setting(0.0, ge=0, lt=1)
    activation: Literal["relu", "gelu", "gelu_tanh", "relu2", "silu", "swiglu", "geglu", "geglu_tanh"] = "relu"
    bias: bool = True
    norm: Literal["layer", "rms", "batch", "none"] = "layer"
    norm_eps: float = setting(1e-5, ge=0, lt=1)
    pre_norm: bool = True
    final_norm: bool = True
    embedding_norm: bool = False
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"] = "sinusoidal"
    sinusoid_base: float = setting(10000.0, gt=0, le=1e30)
    rotary_scaling: Literal["none", "linear", "ntk", "llama3"] = "none"
    rotary_factor: float = setting(1.0, ge=1, le=1e9)
    rotary_length: int = setting(8192, ge=1, le=10**9)
    rotary_low: float = setting(1.0, gt=0, le=1e9)
    rotary_high: float = setting(4.0, gt=0, le=1e9)
    rotary_base: float = setting(10000.0, gt=0, le=1e30)
    window: int | None = setting(None, ge=1, le=10**9)
    qk_norm: bool = False
    scaled_attention: bool = True
    scale_embeddings: bool = True
    tie_output: bool = True
    output_bias: bool = False
    share_source_target: bool = True
    share_layers: bool = False
    residual: bool = True
    n_token_type: int = setting(0, ge=0, le=10**4)
    head: Literal["mlm", "classify", "tag", "none"] = "mlm"
    pool: Literal["first", "mean"] = "first"
    n_label: int = setting(0, ge=0, le=10**7)
    init: Literal["normal", "xavier"] = "normal"
    scaled_init: bool = True
    pruned_heads: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self, "model")
        if self.head_size is None and self.n_embd % self.n_head:
            raise ConfigError(
                "model.n_embd {n_embd} is not divisible by model.n_head {n_head}; change one or set model.head_size",
                self.n_embd,
                self.n_head,
            )
        if self.n_head % self.kv_heads:
            raise ConfigError(
                "model.n_head {n_head} is not divisible by model.n_kv_head {kv_heads}", self.n_head, self.kv_heads
            )
        self.check_family()
        if self.encoder_side is not self:
            _unused = self.encoder_side.key_size  # sizes that cannot be are refused as those of the decoder are
        self.check_positions()
        if self.norm == "none" and self.embedding_norm:
            raise ConfigError('model.embedding_norm asks for a norm that model.norm="none" rules out')
        if self.pruned_heads:
            self.check_pruned()

    def check_positions(self) -> None:
        """Refuses positions that the sizes do not allow, and settings of a kind of positions that the model has not."""
        if self.positions == "rotary" and self.key_size % 2:
            raise ConfigError(
                "rotary positions turn pairs of numbers, so the head size must be even, not {key_size}", self.key_size
            )
        if self.n_encoder_head not in (None, self.n_head) and (
            self.positions == "alibi" or (self.positions == "rotary" and self.head_size is None)
        ):
            more = "" if self.positions == "alibi" else _(", or set model.head_size")
            raise ConfigError(
                "model.positions={positions} are made for heads of one kind; leave out model.n_encoder_head{more}",
                self.positions,
                more,
            )
        if self.positions == "sinusoidal" and self.n_embd % 2:
            raise ConfigError(
                "sinusoidal positions come in pairs, so model.n_embd must be even, not {n_embd}", self.n_embd
            )
        if (self.rotary_factor > 1) != (self.rotary_scaling != "none"):
            raise ConfigError(
                "longer texts by rotary positions need both model.rotary_scaling (linear, ntk or llama3) and a "
                "model.rotary_factor above 1; they are {rotary_scaling} and {rotary_factor}",
                self.rotary_scaling,
                self.rotary_factor,
            )
        if self.rotary_low >= self.rotary_high:
            raise ConfigError(
                "model.rotary_low must be below model.rotary_high, and they are {rotary_low} and {rotary_high}",
                self.rotary_low,
                self.rotary_high,
            )
        if self.rotary_scaling != "none" and self.positions != "rotary":
            raise ConfigError(
                "model.rotary_scaling is for rotary positions, and model.positions is {positions}", self.positions
            )

    def check_family(self) -> None:
        """Refuses what belongs to another family of models."""
        if self.family != "transformer":
            for name in ("layer", "head", "hidden"):
                if getattr(self, f"n_encoder_{name}") is not None:
                    raise ConfigError(
                        "model.n_encoder_{name} is for the encoder-decoder; {family} has n_{name} alone",
                        name,
                        self.family,
                    )
            if self.source_vocab_size is not None:
                raise ConfigError(
                    "model.source_vocab_size is for the encoder-decoder; {family} has one vocabulary", self.family
                )
        elif self.source_vocab_size is not None and self.share_source_target:
            raise ConfigError(
                "source and target with vocabularies of their own cannot share an embedding table; "
                "set model.share_source_target=false"
            )
        if self.family == "gpt" and self.head == "classify":
            if self.output_bias or self.n_token_type:
                raise ConfigError("a GPT that classifies has neither model.output_bias nor model.n_token_type")
        elif self.family != "bert" and (self.head != "mlm" or self.n_label or self.n_token_type):
            raise ConfigError(
                "model.head, model.n_label and model.n_token_type belong to family bert; a gpt can have head=classify alone"
            )
        if self.family == "bert" and self.output_bias:
            raise ConfigError("model.output_bias is for models that write; a BERT's masked words have a bias already")

    def check_pruned(self) -> None:
        """Refuses heads that this model cannot have, or that are named twice."""
        if self.share_layers:
            raise ConfigError(
                "model.pruned_heads takes heads out of one layer, and model.share_layers makes all layers one"
            )
        for name in self.pruned_heads:
            if not self.could_have_head(name):
                raise ConfigError(
                    "model.pruned_heads: this model has no head {name!r}; a head is an attention and a number below "
                    "{n_head}, such as {family}.0.attention:0",
                    name,
                    self.n_head,
                    "encoder" if self.family == "bert" else "decoder",
                )
        if len(set(self.pruned_heads)) < len(self.pruned_heads):
            raise ConfigError("model.pruned_heads names a head twice")

    def could_have_head(self, name: str) -> bool:
        """Whether the model, before any pruning, has a head of this name."""
        found = re.fullmatch(r"(encoder|decoder)\.(0|[1-9]\d*)\.(attention|cross):(0|[1-9]\d*)", name, re.ASCII)
        if found is None:
            return False
        stack, layer, part, head = found[1], int(found[2]), found[3], int(found[4])
        if stack == "encoder":
            known = self.family != "gpt" and part == "attention" and layer < self.encoder_layers
        else:
            known = self.family != "bert" and layer < self.n_layer
            known = known and (part == "attention" or self.family == "transformer")
        return known and head < self.heads_of(stack)

    @property
    def attentions(self) -> list[str]:
        """Every attention of the model by its name, in the order in which text goes through them."""
        names = []
        if self.family != "gpt":
            names += [f"encoder.{i}.attention" for i in range(self.encoder_layers)]
        if self.family != "bert":
            parts = ("attention", "cross") if self.family == "transformer" else ("attention",)
            names += [f"decoder.{i}.{part}" for i in range(self.n_layer) for part in parts]
        return names

    def heads_of(self, part: str) -> int:
        """Heads of an attention, or of each in a stack, before any pruning."""
        return self.n_encoder_head or self.n_head if part.startswith("encoder") else self.n_head

    @property
    def encoder_side(self) -> ModelConfig:
        """The same with the encoder's own sizes as the sizes."""
        if self.n_encoder_head is None and self.n_encoder_hidden is None:
            return self
        return replace(
            self,
            n_head=self.n_encoder_head or self.n_head,
            n_hidden=self.n_encoder_hidden or self.n_hidden,
            n_encoder_head=None,
            n_encoder_hidden=None,
            pruned_heads=tuple(name for name in self.pruned_heads if name.startswith("encoder.")),
        )

    def kept_heads(self, attention: str) -> tuple[int, ...]:
        """The heads an attention still has, by the numbers they have always had."""
        gone = {int(head) for name, _, head in (p.partition(":") for p in self.pruned_heads) if name == attention}
        return tuple(head for head in range(self.heads_of(attention)) if head not in gone)

    def kept_kv_heads(self, attention: str) -> int:
        """How many of its key and value heads some head still asks."""
        heads = self.heads_of(attention)
        return len({head // (heads // (self.n_kv_head or heads)) for head in self.kept_heads(attention)})

    @property
    def rotary_theta(self) -> float:
        """The base of rotary positions as they are used: NTK-aware scaling raises it, so that the slowest pair turns
        rotary_factor times more slowly and the fastest as before."""
        if self.rotary_scaling != "ntk":
            return self.rotary_base
        return self.rotary_base * self.rotary_factor ** (self.key_size / max(1, self.key_size - 2))

    @property
    def rotary_linear_factor(self) -> float:
        """The divisor of positions: linear scaling, or position interpolation (Chen et al. 2023)."""
        return self.rotary_factor if self.rotary_scaling == "linear" else 1.0

    @property
    def kv_heads(self) -> int:
        """Key and value heads: n_kv_head, or as many as n_head."""
        return self.n_kv_head or self.n_head

    @property
    def key_size(self) -> int:
        """Width of a head's queries and keys: head_size, or n_embd / n_head."""
        return self.head_size or self.n_embd // self.n_head

    @property
    def val_size(self) -> int:
        """Width of a head's values: value_size, or that of its keys."""
        return self.value_size or self.key_size

    @property
    def hidden(self) -> int:
        """Width of the feed-forward layer: n_hidden, or 4 n_embd."""
        return self.n_hidden or 4 * self.n_embd

    @property
    def encoder_layers(self) -> int:
        """Layers of the encoder: n_encoder_layer, or n_layer."""
        return self.n_layer if self.n_encoder_layer is None else self.n_encoder_layer


PRESETS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("presets.toml").read_text(encoding="utf-8")
)
"""Named sizes, of which a recipe says `preset = "gpt2"` and changes what it likes. `transformer-base` and `-big` are the
paper's (Vaswani et al. 2017, table 3), with 37,000 tied words; `transformer-tiny` is that of Wu et al. 2021 for Multi30k;
the GPT-2 sizes are those of Radford et al. 2019; `shakespeare-char` is nanoGPT's; `bert-base` is that of Devlin et al.
2019; `modern-gpt` is a GPT-2 small brought up to date."""


def preset_settings(name: Any) -> Mapping[str, Any]:
    """The settings of a preset; an error with a suggestion where there is none of that name."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(
            "there is no preset {preset}{suggestion}; there are {presets}", *not_among(shortened(name), PRESETS)
        )
    return PRESETS[name]


def preset(name: str) -> ModelConfig:
    """The ModelConfig of a known size by its name, such as "gpt2" or "transformer-base".

    >>> preset("gpt2").n_embd
    768
    """
    return ModelConfig(**preset_settings(name))
