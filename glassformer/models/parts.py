"""From a config to parts: the one place that reads a ModelConfig and builds layers from its numbers.

What the three families share also lives here: embeddings with positions (`BaseModel.embed`), what every block is told of the
rows (`BaseModel.block_inputs`), the count of parameters and the initialisation.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.config.model import preset
from glassformer.config.recipe import refuse_unknown
from glassformer.errors import ConfigError
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.block import Block, BlockInputs, Decoder, DecoderLayer, Encoder, EncoderLayer
from glassformer.nn.embedding import Embedding
from glassformer.nn.feedforward import GATES, MLP, GatedMLP
from glassformer.nn.loss import linear_cross_entropy
from glassformer.nn.masks import AttentionMask, self_mask
from glassformer.nn.norms import BatchNorm, LayerNorm, NoNorm, RMSNorm
from glassformer.nn.positions import (
    ALiBiSlopes,
    FixedTable,
    LearnedPositions,
    Llama3Scaling,
    PositionalEncoding,
    RelativePositions,
    Rotary,
)
from glassformer.nn.rows import Rows
from glassformer.nn.taps import Tapped

M = TypeVar("M", bound="BaseModel")
COURSE_NAMES = {"max_seq_len", "num_layer", "embed_dim", "num_head", "feedforward_dim", "no_res", "no_pos"}
"""What the GPT of a course (glassformer.classic.GPT) calls its settings."""


def make_norm(config: ModelConfig) -> nn.Module:
    """The norm that the config asks for, over n_embd features."""
    match config.norm:
        case "layer":
            return LayerNorm(config.n_embd, bias=config.bias, eps=config.norm_eps)
        case "rms":
            return RMSNorm(config.n_embd, eps=config.norm_eps)
        case "batch":
            return BatchNorm(config.n_embd, bias=config.bias, eps=config.norm_eps)
        case "none":
            return NoNorm()


def make_attention(config: ModelConfig, name: str) -> MultiHeadAttention:
    """The attention of this name (such as "decoder.3.cross"), without the heads that were pruned from it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Initializing zero-element tensors")  # all its heads may be pruned
        return MultiHeadAttention(
            config.n_embd,
            config.n_head,
            n_kv_head=config.n_kv_head,
            head_size=config.head_size,
            value_size=config.value_size,
            bias=config.bias,
            dropout=config.attention_dropout,
            qk_norm=config.norm_eps if config.qk_norm else False,
            scaled=config.scaled_attention,
            head_ids=config.kept_heads(name),
        )


def make_mlp(config: ModelConfig) -> nn.Module:
    """The feed-forward layer that the config asks for, gated or not."""
    kind = GatedMLP if config.activation in GATES else MLP
    return kind(config.n_embd, config.hidden, activation=config.activation, bias=config.bias)


def make_layer(config: ModelConfig, kind: type[Block], name: str, *, cross: bool) -> Block:
    """One block: attention, cross-attention where asked for, feed-forward layer and their norms."""
    return kind(
        make_attention(config, f"{name}.attention"),
        make_mlp(config),
        lambda: make_norm(config),
        cross=make_attention(config, f"{name}.cross") if cross else None,
        pre_norm=config.pre_norm,
        residual=config.residual,
        dropout=config.dropout,
    )


def stack_parts(config: ModelConfig, *, causal: bool) -> dict[str, Any]:
    """What a stack has beside its blocks."""
    relative = RelativePositions(config.n_head, causal=causal) if config.positions == "relative" else None
    norm = make_norm(config) if config.final_norm else None
    return {"norm": norm, "share_layers": config.share_layers, "positions": relative}


def make_encoder(config: ModelConfig, n_layer: int) -> Encoder:
    """A stack of `n_layer` blocks that see in both directions."""
    config = config.encoder_side
    layers = [make_layer(config, EncoderLayer, f"encoder.{i}", cross=False) for i in range(n_layer)]
    return Encoder(layers, **stack_parts(config, causal=False))


def make_decoder(config: ModelConfig, *, cross: bool) -> Decoder:
    """A stack of causal blocks, with cross-attention for the encoder-decoder."""
    layers = [make_layer(config, DecoderLayer, f"decoder.{i}", cross=cross) for i in range(config.n_layer)]
    return Decoder(layers, **stack_parts(config, causal=True))


def make_positions(config: ModelConfig) -> PositionalEncoding | LearnedPositions | None:
    """The positions that are added to embeddings; the others act inside attention instead."""
    match config.positions:
        case "sinusoidal":
            return PositionalEncoding(config.block_size, config.n_embd, config.sinusoid_base)
        case "learned":
            return LearnedPositions(config.block_size, config.n_embd)
        case _:
            return None


def make_rotary(config: ModelConfig) -> Rotary:
    """Rotary positions, scaled as the config says."""
    scaling = None
    if config.rotary_scaling == "llama3":
        scaling = Llama3Scaling(config.rotary_factor, config.rotary_length, config.rotary_low, config.rotary_high)
    return Rotary(config.block_size, config.key_size, config.rotary_theta, config.rotary_linear_factor, scaling)


def materialise_tables(model: nn.Module, _: object) -> None:
    """A model built on the meta device and then given its weights still needs its fixed tables."""
    device = next(model.parameters()).device
    for module in model.modules():
        if isinstance(module, FixedTable):
            module.materialise(device)


class BaseModel(Tapped):
    """The base class of the three families: config, presets, embeddings with positions, block inputs, cache."""

    family: ClassVar[str] = ""
    handed_out: bool = True
    """May somebody hold the model, and change its weights? `load` says no of the one it makes, until it is asked for."""

    trained_length: int | None = None
    """The longest row that it has learned from, where that is known and fewer than `block_size` tokens: what is longer is read in
    windows."""

    shortlist: Any = None
    """A translator's lexical shortlist (decode/shortlist.py), where its run has one."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """`help()` and completion show each setting of ModelConfig as a keyword of the constructor."""
        super().__init_subclass__(**kwargs)
        config = inspect.Parameter("config", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
        parameters = inspect.signature(ModelConfig).parameters.values()
        cls.__signature__ = inspect.Signature([config, *(p for p in parameters if p.name != "family")])  # type: ignore[attr-defined]

    @classmethod
    def resolve(cls, config: ModelConfig | None, settings: Mapping[str, Any]) -> ModelConfig:
        """The config of this family: `config`, or the defaults, with the settings on top."""
        if config is not None and not isinstance(config, ModelConfig):
            raise ConfigError(
                "{cls} takes its settings by name, such as n_layer=2, or a ModelConfig, not {kind}; the tutorials' classes "
                "are in glassformer.classic",
                cls=cls.__name__,
                kind=type(config).__name__,
            )
        if settings.get("family", cls.family) != cls.family:
            raise ConfigError(
                "{cls} is of family {family}, and model.family={given_family} is another",
                cls=cls.__name__,
                family=cls.family,
                given_family=settings["family"],
            )
        settings = {name: value for name, value in settings.items() if name != "family"}
        if course := settings.keys() & COURSE_NAMES:
            raise ConfigError(
                "{cls} has no {key}; the tutorials' classes are in glassformer.classic",
                cls=cls.__name__,
                key=min(course),
            )
        refuse_unknown(settings, [f.name for f in fields(ModelConfig) if f.name != "family"], "model")
        config = ModelConfig(family=cls.family, **settings) if config is None else replace(config, **settings)  # type: ignore[arg-type]
        if config.family != cls.family:
            raise ConfigError(
                "{cls} is built from a config of family {family}, and this one describes a {given_family}; "
                "build_model(config) builds what a config describes",
                cls=cls.__name__,
                family=cls.family,
                given_family=config.family,
            )
        return config

    @classmethod
    def from_preset(cls: type[M], name: str, **settings: Any) -> M:
        """The model of a preset (`glassformer info` lists them) with fresh weights and, where given, other settings."""
        return cls(preset(name), **settings)  # type: ignore[call-arg, arg-type]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.vocab_size < 1:
            raise ValueError("model.vocab_size is not known yet; it is set by the tokenizer, or by hand")
        self.config = config
        # Another of the same signature may be installed.
        self.cross_entropy: Callable[..., Tensor] = linear_cross_entropy
        self.output_kernel: Callable[..., Tensor] = F.linear
        self.drop = nn.Dropout(config.dropout)
        self.rotary = make_rotary(config) if config.positions == "rotary" else None
        if config.positions == "alibi":
            self.slopes = ALiBiSlopes(config.n_head)
        self.register_load_state_dict_post_hook(materialise_tables)

    def embed(
        self,
        embedding: Embedding,
        encoding: PositionalEncoding | LearnedPositions | None,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "P T"],
        n_positions: int | None,
    ) -> Float[Tensor, "B T C"]:
        """Token embedding plus positional encoding, before dropout. Every position is below `n_positions`, where that is known.

        Under autocast on a GPU the residual stream that begins here is of the smaller type, which halves the traffic of
        everything that is not a matrix product."""
        x = embedding(tokens)
        if encoding is not None:
            x = x + encoding(positions, n_positions)
        if x.is_cuda and torch.is_autocast_enabled("cuda"):
            x = x.to(torch.get_autocast_dtype("cuda"))
        return x

    def block_inputs(
        self,
        rows: Rows,
        *,
        causal: bool,
        cross_mask: AttentionMask | None = None,
    ) -> BlockInputs:
        """What every block is told of these rows: masks, rotary angles or a bias of distances, and which tokens are real."""
        mask = self_mask(rows, causal=causal, window=self.config.window)
        real = rows.real if rows.layout != "whole" else None
        positions, rotation = rows.broadcast_positions, None
        if self.rotary is not None:
            rotation = self.rotary.rotation(positions, rows.n_positions)
        if (bias := self.distance_bias(causal=causal)) is not None:
            mask = replace(mask, bias=bias(positions, positions))
        return BlockInputs(mask, cross_mask or AttentionMask(), rotation, real)

    def distance_bias(self, *, causal: bool) -> Callable[..., Float[Tensor, "P H T S"]] | None:
        """From the positions of queries and keys to what the stack that is causal, or the other, adds to the scores."""
        match self.config.positions:
            case "alibi":
                return self.slopes.bias
            case "relative":
                return (self.decoder if causal else self.encoder).positions.bias  # type: ignore[return-value, union-attr]
            case _:
                return None

    def num_params(self, non_embedding: bool = False) -> int:
        """Every parameter once, however many places use it. `non_embedding` leaves out the tables of words and of
        learned positions, but not an output layer of its own, which is a matrix product like any other."""
        total = sum(p.numel() for p in self.parameters())
        if non_embedding:
            total -= sum(p.numel() for name, p in self.named_parameters() if is_embedding(name))
        return total

    def checkpoint_activations(self, on: bool = True) -> None:
        """Trade time for memory: blocks keep only their inputs and run again in the backward pass."""
        for module in self.modules():
            if hasattr(module, "checkpoint_activations") and module is not self:
                module.checkpoint_activations = on  # type: ignore[assignment]


def is_embedding(name: str) -> bool:
    """Whether a parameter of this name is an embedding table, of tokens or of learned positions."""
    return name.rpartition(".")[0].endswith(("embedding", "positions"))


def initialise(model: BaseModel) -> None:
    """How weights begin, by name (`model.init`):

    normal   every matrix and table from N(0, 0.02); the last projection of each sublayer, which is added to the residual
             stream (attention.out, cross.out, mlp.down), divided by sqrt(number of sublayers in its stack), as GPT-2
             describes. Biases zero.
    xavier   every matrix uniform in +-sqrt(6 / (in + out)), as the paper's reference code; tables from N(0, 1/sqrt(C)),
             so that a table scaled by sqrt(C) has unit variance and a tied output layer starts with logits near one.
    """
    config = model.config
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            continue
        if is_embedding(name):
            nn.init.normal_(parameter, std=0.02 if config.init == "normal" else config.n_embd**-0.5)
        elif config.init == "normal":
            is_last = name.endswith((".attention.out.weight", ".cross.out.weight", ".mlp.down.weight"))
            sublayers = config.n_layer * 2
            if name.startswith("encoder."):
                sublayers = config.encoder_layers * 2
            elif config.family == "transformer":
                sublayers = config.n_layer * 3
            scaled = is_last and config.residual and config.scaled_init
            nn.init.normal_(parameter, std=0.02 / math.sqrt(sublayers) if scaled else 0.02)
        else:
            nn.init.xavier_uniform_(parameter)
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            nn.init.zeros_(parameter)
