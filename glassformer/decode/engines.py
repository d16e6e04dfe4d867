"""Which model a driver steps with: the model itself, or its copy with modules for decoding (accel/decoding).

`plain` is the model itself: nothing is installed. `auto` and `fast` are a copy of it that shares its modules and weights; only
blocks that are exactly ours have others in their places, on a CPU with packed weights, on CUDA by kernels and in bfloat16. While
someone listens to the model by a tap or a hook of torch it answers itself, in the same precision.
The programs of other people (`int8`, `ctranslate2`, `onnx`) live with their formats (`formats/`, above this room): the module is
imported when an engine of its name is first asked for. CTranslate2 searches by itself, so whole batches are handed to it
(`SearchEngine`); onnxruntime computes logits and our own search does the rest (`LogitsEngine`).

A copy is made when it is first asked for and kept as long as its model. Before each use it is compared with the model: its
modules and, where weights were copied, the weights.
"""

from __future__ import annotations

import copy
import importlib
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from glassformer import machine
from glassformer.config import DecodeConfig
from glassformer.decode.request import Hypothesis, Request, SpecialTokens
from glassformer.decode.slots import Job
from glassformer.errors import ConfigError
from glassformer.models.weights import weight_checksum
from glassformer.nn.known import TORCH_HOOKS, is_as_built, is_known, is_listened_to

EXTERNAL_ENGINES = {
    "int8": "glassformer.formats.ctranslate2.engine",
    "ctranslate2": "glassformer.formats.ctranslate2.engine",
    "onnx": "glassformer.formats.onnx.engine",
}
"""By the engine's name, the module that provides it."""
RequestJob = tuple[Request, Job]
"""A request, and what was settled of it: limits, stop strings."""


@runtime_checkable
class SearchEngine(Protocol):
    """A program with a search of its own."""

    def answer(
        self, model: Any, batch: Sequence[RequestJob], config: DecodeConfig, special: SpecialTokens, *, trace: bool
    ) -> list[list[Hypothesis]]:
        """The hypotheses for each request, best first; a ConfigError says what the program cannot do."""
        ...


@runtime_checkable
class LogitsEngine(Protocol):
    """A program that computes a model's logits."""

    def net(self, model: Any, batch: Sequence[RequestJob]) -> Any:
        """The model in its hands, with room for these requests and the calls `start` and `step` of a model."""
        ...


Engine = SearchEngine | LogitsEngine


def external_engine(name: str) -> Engine | None:
    """The program behind an engine's name; None where the engine is our own."""
    return importlib.import_module(EXTERNAL_ENGINES[name]) if name in EXTERNAL_ENGINES else None  # type: ignore[return-value]


MEMORY_SHARE = 0.25  # of the free memory that one cache may take
UNKNOWN_MEMORY = 2**32  # bytes, where the system does not say what is free


@dataclass
class DecodingCopy:
    """A copy for decoding, and what its model was like when it was made."""

    modules: Any
    checksum: Tensor  # empty where no weight was copied
    ops: Any
    model: Any


copies: weakref.WeakKeyDictionary[nn.Module, dict[Any, DecodingCopy]] = weakref.WeakKeyDictionary()
lock = threading.Lock()


def answers_itself(model: Any, config: DecodeConfig) -> bool:
    """Does the model itself answer, with nothing installed?"""
    return config.engine == "plain" or is_listened_to(model)


def suits_external(model: Any) -> bool:
    """Can another program, which is given the weights, answer as this model does? Groups of heads that share keys need not be
    equal after pruning, which no other program knows."""
    c = model.config
    return is_as_built(model) and not (c.pruned_heads and c.kv_heads < c.n_head)


def decoding_model(model: Any, config: DecodeConfig, rows: int) -> Any:
    """The model that decodes at most `rows` rows: a copy for decoding, with the weights of now, or the model itself. A single
    row on a CPU gains nothing from packed weights."""
    weight = next(model.parameters())
    precision = precision_of(model, config) if weight.is_cuda else "model"
    if answers_itself(model, config):
        return model if precision == "model" or config.engine == "plain" else converted(model, torch.bfloat16)
    try:
        from glassformer.accel.decoding.block import decoding_copy
    except ImportError:  # without that room the model itself decodes
        return model
    if weight.is_cuda:
        kind = precision
    else:
        kind = "single" if rows == 1 else "packed"
    modules = [(id(module), type(module), is_known(module)) for module in model.modules()]
    modules += [(*map(id, model.parameters()), weight.device, weight.dtype)]
    checksum = weight_checksum(model) if kind != "single" else torch.empty(0)
    with lock:
        kept = copies.setdefault(model, {})
        known = kept.get(kind)
        same = known is not None and known.modules == modules
        if known is not None and same and not torch.equal(known.checksum, checksum):
            # On a CPU the weights are packed anew; captured steps go on using the memory they were captured on.
            same, known.checksum = not weight.is_cuda, checksum
            known.ops.refresh()
        if known is None or not same:
            base = converted(model, torch.bfloat16) if precision == "bf16" else model
            base = base if not weight.is_cuda or base is not model else converted(model, weight.dtype)
            ops = make_ops(model, kind)
            known = kept[kind] = DecodingCopy(modules, checksum, ops, decoding_copy(base, ops))
    return known.model


def converted(model: nn.Module, to: torch.dtype | torch.device) -> nn.Module:
    """A copy of a model in another precision or on another device. Hooks, kernels and whatever else somebody has hung on it are
    not copied: the copy calls the same ones."""
    shared: dict[int, Any] = {}
    for module in model.modules():
        hooks = [hook for name in TORCH_HOOKS for hook in vars(module)[name].values()]
        hooks += [hook for several in vars(module).get("hooks", {}).values() for hook in several]
        hooks += [value for value in vars(module).values() if callable(value) and not isinstance(value, nn.Module)]
        shared |= {id(hook): hook for hook in hooks}
    return copy.deepcopy(model, shared).to(to).eval()


def precision_of(model: Any, config: DecodeConfig) -> str:
    """The numbers a GPU computes with: bfloat16 where it has units for them and weights are float32, unless asked otherwise."""
    if config.precision != "auto":
        return config.precision
    device = machine.gpu(next(model.parameters()).device.index)
    suits = device is not None and device.has_bfloat16 and next(model.parameters()).dtype == torch.float32
    return "bf16" if suits else "model"


def make_ops(model: Any, kind: str) -> Any:
    """The table of operations for a copy of this kind: on a GPU by kernels, where there is Triton; on a CPU with packed weights,
    unless it decodes a single row."""
    from glassformer.accel.decoding.operations import PackedOps, TorchOps

    if next(model.parameters()).is_cuda and machine.has_triton():
        from glassformer.accel.decoding.triton import TritonOps

        return TritonOps(model.config)
    if next(model.parameters()).is_cuda or kind == "single":
        return TorchOps()
    return PackedOps()


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
            "{samples:,} hypotheses side by side (decode.beam or decode.num_samples) of up to {limit:,} tokens "
            "(decode.max_new_tokens) may need {alone:,.1f} GB, and {free:,.1f} GB can be had; ask for fewer or "
            "shorter ones",
            samples * beams,
            limit,
            alone / 2**30,
            free / 2**30,
        )
    rows = machine.rows_at_once(weight.device)
    return max(
        1, min(rows // beams, int(MEMORY_SHARE * free) // max(1, slot_memory(model, beams, limit, prompt, source)))
    )
