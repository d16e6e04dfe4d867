"""Which modules are exactly those of this room, with nothing done to them from outside.

Whoever takes a module's place (to make it faster, or to hand its weights to another program) must know what it does. A subclass
may do anything, and so may a hook: by exact type, then, and what is not on the list runs as itself.
"""

from __future__ import annotations

import functools

import torch
from torch import nn

from glassformer.nn.attention import MultiHeadAttention, fused_attention
from glassformer.nn.block import Block, Decoder, DecoderLayer, Encoder, EncoderLayer, Stack
from glassformer.nn.embedding import Embedding
from glassformer.nn.feedforward import MLP, GatedMLP
from glassformer.nn.lora import LoRALinear
from glassformer.nn.norms import BatchNorm, LayerNorm, NoNorm, RMSNorm
from glassformer.nn.positions import ALiBiSlopes, LearnedPositions, PositionalEncoding, RelativePositions, Rotary

KNOWN = frozenset({
    Encoder, Decoder, Stack, Block, EncoderLayer, DecoderLayer, MultiHeadAttention, MLP, GatedMLP, Embedding, LayerNorm, RMSNorm,
    BatchNorm, NoNorm, PositionalEncoding, LearnedPositions, Rotary, ALiBiSlopes, RelativePositions, nn.Linear, LoRALinear,
    nn.Dropout,
})  # fmt: skip
"""The layers that are known, beside the models of `glassformer.models`. A part that `accel` installs for training says which of
them it `stands_for`: in evaluation it does just what that one does."""
TORCH_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@functools.cache
def methods(kind: type) -> frozenset[str]:
    """The names of a class's methods."""
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name)))


def is_listened_to(model: nn.Module) -> bool:
    """Does a tap or a hook of torch look at what this model does, or change it? Then nobody may take its place."""
    if torch.nn.modules.module._has_any_global_hook():
        return True
    return any(vars(m).get("hooks") or any(vars(m)[name] for name in TORCH_HOOKS) for m in model.modules())


def is_known(module: nn.Module) -> bool:
    """Does this module do what its class does, and is that one of ours? By exact type: a subclass may do anything."""
    kind, attributes = type(module), vars(module)
    kernel = attributes.get("kernel", fused_attention)
    if kernel is not fused_attention and not hasattr(type(kernel), "stands_for"):
        return False
    is_ours = vars(kind).get("stands_for", kind) in KNOWN or kind.__module__.startswith("glassformer.models.")
    return is_ours and methods(kind).isdisjoint(attributes)  # type: ignore[arg-type]  # no method was replaced


def is_as_built(model: nn.Module) -> bool:
    """Is every module exactly one of ours, with nothing done to it from outside?"""
    return not is_listened_to(model) and all(map(is_known, model.modules()))
