"""What a model costs, counted from the model itself: parameters, arithmetic a token, numbers of cache a token. It is built on
torch's meta device, where it takes no memory, and with one layer for all that are alike.

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
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models.bert import BERT
from glassformer.models.gpt import GPT
from glassformer.models.parts import is_embedding
from glassformer.models.transformer import Transformer

FAMILIES: dict[str, type[Transformer] | type[GPT] | type[BERT]] = {"transformer": Transformer, "gpt": GPT, "bert": BERT}
BYTES = {"fp32": 4, "bf16": 2}
Kind = Literal["table", "matrix", "gain"]


@dataclass(frozen=True)
class ParameterTensor:
    """One tensor of weights with its bias. In its name a star stands for the number of a layer."""

    name: str
    kind: Kind
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


class NothingDrawn(TorchFunctionMode):
    """Weights are not initialised. (On the meta device there is nothing to, and trying to draw imports torch's compiler, which
    takes seconds.)"""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Models are built on the meta device: names and shapes, no numbers."""
    with torch.device("meta"), NothingDrawn():
        yield


def skeleton(config: ModelConfig) -> nn.Module:
    """The model on the meta device: names and shapes, no numbers. A stack has one layer, unless some have lost heads. Positions
    that are not learned are left out: they have no parameters."""
    if not config.pruned_heads:
        config = replace(config, n_layer=1, n_encoder_layer=config.n_encoder_layer and 1)
    if config.positions not in ("learned", "relative"):
        config = replace(config, positions="none", rotary_scaling="none", rotary_factor=1.0)
    with shapes_alone():
        return FAMILIES[config.family](config)


def tensors_of(module: nn.Module, name: str = "") -> Iterator[ParameterTensor]:
    """The tensors of a module, those of its parts first; a weight and its bias together."""
    for child, inner in module.named_children():
        yield from tensors_of(inner, f"{name}.{child}" if name else child)
    shapes = {key: tuple(parameter.shape) for key, parameter in module.named_parameters(recurse=False)}
    if "weight" in shapes:
        kind: Kind = "table" if is_embedding(f"{name}.weight") else "matrix" if len(shapes["weight"]) == 2 else "gain"
        yield ParameterTensor(name, kind, shapes["weight"], math.prod(shapes.get("bias", (0,))))
    else:
        yield from (ParameterTensor(f"{name}.{key}" if name else key, "gain", shape) for key, shape in shapes.items())


def starred(name: str) -> str:
    """The name with a star for the number of a layer.

    >>> starred("decoder.3.cross.query")
    'decoder.*.cross.query'
    """
    return re.sub(r"^(encoder|decoder)\.\d+\.", r"\1.*.", name)


def parts(config: ModelConfig) -> list[ParameterTensor]:
    """Every part of the model, from the embeddings to the output. Where layers are alike, one entry stands for all; an attention
    that has lost heads in some layer is listed layer by layer."""
    pruned = tuple({starred(head).partition(":")[0] + "." for head in config.pruned_heads})
    depths = {"encoder": config.encoder_layers, "decoder": config.n_layer}
    listed, seen = [], set()
    for tensor in tensors_of(skeleton(config)):
        name = starred(tensor.name)
        if name == tensor.name or name.startswith(pruned):
            listed.append(tensor)
        elif name not in seen:
            depth = depths[name.partition(".")[0]]
            listed.append(replace(tensor, name=name, layers=depth, copies=1 if config.share_layers else depth))
        seen.add(name)
    writes_words = config.head == "mlm" if config.family == "bert" else config.head != "classify"
    if writes_words and "output" not in seen:  # tied: no numbers of its own, and its product costs all the same
        listed.append(ParameterTensor("output", "matrix", (config.vocab_size, config.n_embd), copies=0))
    return listed


def count_parameters(config: ModelConfig) -> int:
    """How many numbers the model learns."""
    return sum(part.parameters for part in parts(config))


def memory_needed(config: ModelConfig) -> int:
    """Bytes of the bare model in fp32, its tables of positions included. What decoding and training add comes on top."""
    table = {"sinusoidal": config.n_embd, "rotary": 2 * config.key_size}.get(config.positions, 0)
    return 4 * (count_parameters(config) + config.block_size * table)


def keys_seen(context: int, *, causal: bool, window: int | None) -> float:
    """How many keys a query sees, on average over a row of `context` tokens."""
    reach = context if window is None else min(window, context)
    before = (reach * (reach + 1) // 2 + (context - reach) * reach) / context  # oneself included
    return before if causal else 2 * before - 1


def costs(config: ModelConfig, context: int | None = None) -> Costs:
    """`context` is the length of a row, by default the longest the model is built for."""
    context = context or config.block_size
    listed = parts(config)
    in_attention, kept = 0.0, {"attention": 0, "cross": 0}
    for part in listed:
        stack, _, attention, projection = [*part.name.split("."), *[""] * 3][:4]
        if attention not in kept:
            continue
        numbers = part.layers * part.shape[1 if projection == "out" else 0]  # of all heads of all layers
        if projection in ("query", "out"):
            causal = stack == "decoder"
            reach = context if attention == "cross" else keys_seen(context, causal=causal, window=config.window)
            in_attention += 2 * numbers * reach
        elif projection in ("key", "value") and stack == "decoder":
            kept[attention] += numbers
    return Costs(
        parameters=sum(p.parameters for p in listed),
        non_embedding=sum(p.parameters for p in listed if p.kind != "table"),
        forward_flops=sum(p.flops for p in listed) + round(in_attention),
        attention_flops=round(in_attention),
        cache_numbers=kept["attention"],
        source_numbers=kept["cross"],
        context=context,
    )


def check_fits_in_memory(config: ModelConfig) -> None:
    """A model larger than the machine's memory is refused before a byte of it is asked for. (On torch's meta device a model
    has no numbers, and any size is well.)"""
    if torch.get_default_device().type == "meta":
        return
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return  # a system that does not say
    needed = memory_needed(config)
    if needed > memory:
        raise ConfigError(
            "a model with {count_parameters:,} parameters and rows of {block_size:,} tokens needs "
            "{needed:,.0f} GB, and this machine has {memory:,.0f} GB; make model.n_layer, model.n_embd, "
            "model.block_size or the vocabulary smaller",
            count_parameters(config),
            config.block_size,
            needed / 2**30,
            memory / 2**30,
        )
