"""What runs a model: the decoder on the cache, or the model itself.

Engines of other people's (`int8`, `ctranslate2`, `onnx`): external.py.

`auto` and `fast` are the decoder (decoder.py), on a CPU with packed weights (ops/packed.py). `plain` is the model itself, one
token at a time; it also answers while someone listens to or interferes with the model by a tap or a hook of torch, where a
module is not exactly one of ours (a subclass, another kernel, a swapped part, a parametrization), and where heads that share keys
were pruned, since their groups need no longer be equal. A decoder is made when it is first asked
for, kept as long as its model, and sees the weights of now whenever a driver begins.
"""

from __future__ import annotations

import copy
import functools
import threading
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from glassformer import machine
from glassformer.config import DecodeConfig
from glassformer.decode.checksum import weight_checksum
from glassformer.decode.decoder import IncrementalDecoder
from glassformer.decode.ops.packed import PackedOps
from glassformer.decode.ops.torch import TorchOps
from glassformer.errors import ConfigError
from glassformer.models import GPT, Transformer
from glassformer.models.bert import ClassificationHead
from glassformer.nn.attention import MultiHeadAttention, fused_attention
from glassformer.nn.block import Block, Decoder, DecoderLayer, Encoder, EncoderLayer, Stack
from glassformer.nn.embedding import Embedding
from glassformer.nn.feedforward import MLP, GatedMLP
from glassformer.nn.lora import LoRALinear
from glassformer.nn.norms import BatchNorm, LayerNorm, NoNorm, RMSNorm
from glassformer.nn.positions import ALiBiSlopes, LearnedPositions, PositionalEncoding, Rotary

KNOWN = frozenset({
    Transformer, GPT, Encoder, Decoder, Stack, Block, EncoderLayer, DecoderLayer, MultiHeadAttention, MLP, GatedMLP, Embedding,
    LayerNorm, RMSNorm, BatchNorm, NoNorm, PositionalEncoding, LearnedPositions, Rotary, ALiBiSlopes, ClassificationHead,
    nn.Linear, LoRALinear, nn.Dropout,
})  # fmt: skip
"""The modules that the decoder knows. What is forgotten here is slow, never wrong: the model itself answers. A part that `accel`
installs for training says of which of them it `stands_for`: in evaluation it does just what that one does."""
TORCH_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
MEMORY_SHARE = 0.25  # of the free memory that one cache may take
UNKNOWN_MEMORY = 2**32  # bytes, where the system does not say what is free

decoders: weakref.WeakKeyDictionary[nn.Module, dict[type, tuple[Any, IncrementalDecoder]]] = weakref.WeakKeyDictionary()
gpu_decoders: weakref.WeakKeyDictionary[nn.Module, dict[str, tuple[Tensor, Any, IncrementalDecoder]]] = (
    weakref.WeakKeyDictionary()
)
lock = threading.Lock()


def is_as_built(model: nn.Module) -> bool:
    """Is every module exactly one of ours, with nothing done to it from outside: no tap, no hook of torch, no method or kernel of
    its own? Only then can the decoder, which reads weights and knows what these modules do with them, take the model's place."""
    if torch.nn.modules.module._has_any_global_hook():
        return False
    return all(is_known(module) for module in model.modules())


@functools.cache
def methods(kind: type) -> frozenset[str]:
    """The names of a class's methods."""
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name)))


def is_known(module: nn.Module) -> bool:
    """Does this module do what the decoder takes it to do? By exact type: a subclass may do anything."""
    kind, own = type(module), vars(module)
    if vars(kind).get("stands_for", kind) not in KNOWN or own.get("hooks") or any(own[name] for name in TORCH_HOOKS):
        return False
    kernel = own.get("kernel", fused_attention)
    if kernel is not fused_attention and not hasattr(type(kernel), "stands_for"):
        return False
    return methods(kind).isdisjoint(own)  # type: ignore[arg-type]  # or a method was replaced


def uses_plain_model(model: Any, config: DecodeConfig) -> bool:
    """Is it the model itself that runs?"""
    c = model.config
    uneven = bool(c.pruned_heads and c.kv_heads < c.n_head)
    return config.engine == "plain" or uneven or not is_as_built(model)


def best_ops(model: Any, rows: int) -> type[TorchOps]:
    """The operations that suit the device, for so many rows at most. A single row gains nothing from packed weights."""
    on_cpu = next(model.parameters()).device.type == "cpu"
    return PackedOps if on_cpu and rows > 1 else TorchOps


def cached_decoder(model: Any, config: DecodeConfig, rows: int) -> IncrementalDecoder:
    """The model's decoder: made once, and again when a parameter has been replaced by another."""
    weight = next(model.parameters())
    if weight.is_cuda:
        return gpu_decoder(model, precision_of(model, config))
    parameters = (*map(id, model.parameters()), weight.device, weight.dtype)
    kind = best_ops(model, rows)
    with lock:
        known = decoders.setdefault(model, {})
        if kind not in known or known[kind][0] != parameters:
            known[kind] = (parameters, IncrementalDecoder(model, kind()))
        decoder = known[kind][1]
    decoder.refresh()
    return decoder


def precision_of(model: Any, config: DecodeConfig) -> str:
    """The numbers a GPU computes with: bfloat16 where it has units for them and weights are float32, unless asked otherwise."""
    if config.precision != "auto":
        return config.precision
    device = machine.gpu(next(model.parameters()).device.index)
    suits = device is not None and device.has_bfloat16 and next(model.parameters()).dtype == torch.float32
    return "bf16" if suits else "model"


def gpu_ops(model: Any) -> TorchOps:
    """The table of operations for a GPU: by kernels, where there is Triton."""
    if not machine.has_triton():
        return TorchOps()
    from glassformer.decode.ops.triton import TritonOps

    return TritonOps(model.config)


def gpu_decoder(model: Any, precision: str) -> IncrementalDecoder:
    """The model's decoder on a GPU, with the weights of now. It has copies of them, and captured steps go on using their memory:
    where a weight has changed, decoder and steps are made anew."""
    now = weight_checksum(model)
    with lock:
        made = gpu_decoders.setdefault(model, {})
        known = made.get(precision)
        if known is None or not torch.equal(known[0], now):
            own = copy.deepcopy(model).eval()
            own = own.to(torch.bfloat16) if precision == "bf16" else own
            known = made[precision] = (now, own, IncrementalDecoder(own, gpu_ops(model)))
        return known[2]


def slot_memory(model: Any, beams: int, limit: int, prompt: int, source: int) -> int:
    """Bytes that a slot may come to need for `limit` new tokens: keys and values of all columns, which of them each beam sees,
    the tokens, and the scores of a step."""
    c, size = model.config, next(model.parameters()).element_size()
    columns = limit * beams + prompt
    cache = (columns + source) * c.n_layer * c.kv_heads * (c.key_size + c.val_size) * size
    return cache + beams * (columns + beams) * size + beams * (24 * limit + 16 * c.vocab_size)


def slots_that_fit(model: Any, config: DecodeConfig, limit: int, longest: int) -> int:
    """How many slots are decoded at a time, of texts of at most `longest` tokens and answers of at most `limit`: by what brings
    something, and by memory. What cannot fit even alone is refused before anything is allocated."""
    c, weight, beams = model.config, next(model.parameters()), config.beams
    source, prompt = (longest, 0) if c.family == "transformer" else (0, longest)
    cut = not source and c.positions in ("learned", "sinusoidal")  # such a GPT never looks back further than block_size
    most, samples = min(limit, c.block_size) if cut else limit, config.num_samples if config.temperature > 0 else 1
    alone = samples * slot_memory(model, beams, most, min(prompt, c.block_size) if cut else prompt, source)
    free = machine.available_memory(weight.device) or UNKNOWN_MEMORY
    if alone > free:
        raise ConfigError(
            f"{samples * beams:,} hypotheses side by side (decode.beam or decode.num_samples) of up to {limit:,} tokens "
            f"(decode.max_new_tokens) may need {alone / 2**30:,.1f} GB, and {free / 2**30:,.1f} GB can be had; ask for fewer or "
            "shorter ones"
        )
    rows = machine.rows_at_once(weight.device)
    return max(
        1, min(rows // beams, int(MEMORY_SHARE * free) // max(1, slot_memory(model, beams, limit, prompt, source)))
    )
