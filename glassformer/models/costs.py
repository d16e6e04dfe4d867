"""What a model costs, from its config alone: parameters, arithmetic a token, bytes of cache a token. Nothing is built, and
torch is not needed.

A matrix of n numbers costs 2 n FLOPs for every token it meets: a product and a sum each. Attention adds, for every key a
query sees, 2 (d_k + d_v) FLOPs a head: one product with the key, one with the value. Keys hidden by the causal rule or by
a window are not counted, though a kernel may compute them: the number is that of the work, not of a machine. A backward
pass costs twice the forward pass. Norms, activations, softmax and looking up embeddings are left out; they are small in
arithmetic, if not always in time. (The counting of Kaplan et al. 2020, with attention and the output layer included.)

The encoder-decoder reads two texts; its token is a pair: one token of the source and one of the target, with as many keys
on either side.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from glassformer.config.model import ModelConfig

BYTES = {"fp32": 4, "bf16": 2}
GATED = ("swiglu", "geglu", "geglu_tanh")  # activations that bring a third matrix


@dataclass(frozen=True)
class ParameterTensor:
    """One tensor of weights with its bias. In its name a star stands for the number of a layer."""

    name: str
    kind: Literal["table", "matrix", "gain"]
    shape: tuple[int, ...]
    bias: int = 0
    layers: int = 1  # how many layers have such a part
    copies: int = 1  # how many of them have numbers of their own

    @property
    def parameters(self) -> int:
        """Numbers of its own, in all its copies."""
        return self.copies * (math.prod(self.shape) + self.bias)

    @property
    def flops(self) -> int:
        """A token's, forward. A table is looked up, a gain is small."""
        return 2 * self.layers * math.prod(self.shape) if self.kind == "matrix" else 0


@dataclass(frozen=True)
class Costs:
    """What a model costs, in parameters, FLOPs a token and numbers of cache a token."""

    parameters: int
    non_embedding: int
    forward_flops: int  # a token
    attention_flops: int  # of these, scores and weighted values
    cache_numbers: int  # a token: keys and values of every layer
    source_numbers: int  # a source token: what cross-attention keeps of it
    context: int

    @property
    def training_flops(self) -> int:
        """A token's, forward and backward: three times forward."""
        return 3 * self.forward_flops

    def cache_bytes(self, dtype: str) -> int:
        """A token's keys and values in this type."""
        return self.cache_numbers * BYTES[dtype]

    def source_bytes(self, dtype: str) -> int:
        """What cross-attention keeps of a source token, in this type."""
        return self.source_numbers * BYTES[dtype]


def norm_parts(config: ModelConfig, name: str, layers: int = 1, copies: int = 1) -> list[ParameterTensor]:
    """The gain (and bias) of a norm, or nothing where there is none."""
    if config.norm == "none":
        return []
    has_bias = config.bias and config.norm != "rms"
    return [ParameterTensor(name, "gain", (config.n_embd,), config.n_embd * has_bias, layers, copies)]


def attention_parts(config: ModelConfig, name: str, layers: int, copies: int) -> list[ParameterTensor]:
    """One entry for all layers, or one a layer where they have lost different heads."""
    if config.pruned_heads:
        names = [name.replace("*", str(i)) for i in range(layers)]
        if any(len(config.kept_heads(one)) < config.n_head for one in names):
            return [part for one in names for part in parts_of_heads(config, one, one, 1, 1)]
    return parts_of_heads(config, name.replace("*", "0"), name, layers, copies)


def parts_of_heads(config: ModelConfig, attention: str, name: str, layers: int, copies: int) -> list[ParameterTensor]:
    """The projections of one attention with the heads it still has."""
    width, heads, kv_heads = config.n_embd, len(config.kept_heads(attention)), config.kept_kv_heads(attention)
    sizes = {"query": heads * config.key_size, "key": kv_heads * config.key_size, "value": kv_heads * config.val_size}
    parts = [
        ParameterTensor(f"{name}.{part}", "matrix", (size, width), size * config.bias, layers, copies)
        for part, size in sizes.items()
    ]
    joined = heads * config.val_size
    parts.append(ParameterTensor(f"{name}.out", "matrix", (width, joined), width * config.bias, layers, copies))
    if config.qk_norm:
        for part in ("query_norm", "key_norm"):
            parts.append(ParameterTensor(f"{name}.{part}", "gain", (config.key_size,), 0, layers, copies))
    return parts


def mlp_parts(config: ModelConfig, name: str, layers: int, copies: int) -> list[ParameterTensor]:
    """The matrices of a feed-forward layer; a gated one has one more."""
    width, hidden = config.n_embd, config.hidden
    wide = ("gate", "up") if config.activation in GATED else ("up",)
    parts = [
        ParameterTensor(f"{name}.{part}", "matrix", (hidden, width), hidden * config.bias, layers, copies)
        for part in wide
    ]
    return [*parts, ParameterTensor(f"{name}.down", "matrix", (width, hidden), width * config.bias, layers, copies)]


def stack_parts(config: ModelConfig, stack: str, layers: int, *, cross: bool) -> list[ParameterTensor]:
    """Every part of an encoder or a decoder."""
    config = config.encoder_side if stack == "encoder" else config
    copies = 1 if config.share_layers else layers
    found = attention_parts(config, f"{stack}.*.attention", layers, copies)
    found += norm_parts(config, f"{stack}.*.attention_norm", layers, copies)
    if cross:
        found += attention_parts(config, f"{stack}.*.cross", layers, copies)
        found += norm_parts(config, f"{stack}.*.cross_norm", layers, copies)
    found += mlp_parts(config, f"{stack}.*.mlp", layers, copies)
    found += norm_parts(config, f"{stack}.*.mlp_norm", layers, copies)
    return found + (norm_parts(config, f"{stack}.norm") if config.final_norm else [])


def parts(config: ModelConfig) -> list[ParameterTensor]:
    """Every part of the model, from the embeddings to the output."""
    c = config
    two_tables = c.family == "transformer" and not (c.source_vocab_size is None and c.share_source_target)
    sides = ("source", "target") if c.family == "transformer" else ("",)

    def of(side: str, name: str) -> str:
        return f"{side}_{name}" if side else name

    if two_tables:
        found = [
            ParameterTensor("source_embedding", "table", (c.source_vocab_size or c.vocab_size, c.n_embd)),
            ParameterTensor("target_embedding", "table", (c.vocab_size, c.n_embd)),
        ]
    else:
        found = [ParameterTensor("embedding", "table", (c.vocab_size, c.n_embd))]
    if c.positions == "learned":
        found += [ParameterTensor(of(side, "positions"), "table", (c.block_size, c.n_embd)) for side in sides]
    if c.n_token_type:
        found.append(ParameterTensor("type_embedding", "table", (c.n_token_type, c.n_embd)))
    if c.embedding_norm:
        for side in sides:
            found += norm_parts(c, of(side, "norm") if side else "embedding_norm")
    if c.family != "gpt":
        found += stack_parts(c, "encoder", c.encoder_layers, cross=False)
    if c.family != "bert":
        found += stack_parts(c, "decoder", c.n_layer, cross=c.family == "transformer")
    return found + output_parts(c)


def count_parameters(config: ModelConfig) -> int:
    """How many numbers the model learns."""
    return sum(part.parameters for part in parts(config))


def memory_needed(config: ModelConfig) -> int:
    """Bytes of the bare model in fp32, its tables of positions included. What decoding and training add comes on top."""
    table = {"sinusoidal": config.n_embd, "rotary": 2 * config.key_size}.get(config.positions, 0)
    return 4 * (count_parameters(config) + config.block_size * table)


def output_parts(config: ModelConfig) -> list[ParameterTensor]:
    """What stands between the last layer and the scores."""
    width, words = config.n_embd, config.vocab_size
    found = []
    if config.family == "bert":
        if config.head == "none":
            return []
        if config.head != "tag":
            found.append(ParameterTensor("head.dense", "matrix", (width, width), width * config.bias))
        if config.head != "mlm":
            return [*found, ParameterTensor("head.label", "matrix", (config.n_label, width), config.n_label)]
        found += norm_parts(config, "head.norm")
        found.append(ParameterTensor("head.bias", "gain", (words,)))
    if config.family == "gpt" and config.head == "classify":
        dense = ParameterTensor("head.dense", "matrix", (width, width), width * config.bias)
        return [dense, ParameterTensor("head.label", "matrix", (config.n_label, width), config.n_label)]
    if config.output_bias:
        found.append(ParameterTensor("output_bias", "gain", (words,)))
    # A tied output layer has no numbers of its own, and costs its product all the same.
    return [*found, ParameterTensor("output", "matrix", (words, width), copies=0 if config.tie_output else 1)]


def keys_seen(context: int, *, causal: bool, window: int | None) -> float:
    """How many keys a query sees, on average over a row of `context` tokens."""
    reach = context if window is None else min(window, context)
    before = (reach * (reach + 1) // 2 + (context - reach) * reach) / context  # oneself included
    return before if causal else 2 * before - 1


def attention_flops(config: ModelConfig, context: int) -> int:
    """FLOPs a token spends on scores and weighted values in all layers, in rows of `context` tokens."""
    total = 0.0
    for name in config.attentions:
        side = config.encoder_side if name.startswith("encoder.") else config
        a_key = 2 * (side.key_size + side.val_size)
        if name.endswith(".cross"):
            seen = float(context)
        else:
            seen = keys_seen(context, causal=name.startswith("decoder."), window=config.window)
        total += a_key * len(config.kept_heads(name)) * seen
    return round(total)


def costs(config: ModelConfig, context: int | None = None) -> Costs:
    """`context` is the length of a row, by default the longest the model is built for."""
    context = context or config.block_size
    listed = parts(config)
    in_attention = attention_flops(config, context)
    numbers = {n: config.kept_kv_heads(n) * (config.key_size + config.val_size) for n in config.attentions}
    return Costs(
        parameters=sum(p.parameters for p in listed),
        non_embedding=sum(p.parameters for p in listed if p.kind != "table"),
        forward_flops=sum(p.flops for p in listed) + in_attention,
        attention_flops=in_attention,
        cache_numbers=sum(size for name, size in numbers.items() if re.fullmatch(r"decoder.*attention", name)),
        source_numbers=sum(size for name, size in numbers.items() if name.endswith(".cross")),
        context=context,
    )
