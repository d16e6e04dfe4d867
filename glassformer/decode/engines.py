"""Which engine runs a model: the model itself, or one made from its weights.

`fast`, `int8` and `int4` are for a CPU (engine.py, engine_int8.py), `graph` for a CUDA device (engine_cuda.py; it searches as
well, and leaves to the plain model what it cannot do). `auto` is `graph` on a CUDA device and `plain` elsewhere. An engine is
made when it is first asked for and kept as long as its model; when weights have changed since, it is made again. Engines
have no taps, so while someone listens to or interferes with the model, the model itself is run, whatever was asked for; and
so it is where heads that share keys were pruned, since their groups need no longer be equal.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from glassformer.config import DecodeConfig
from glassformer.decode.engine import Engine, GPTEngine, MakeLinear, TransformerEngine, transposed_linear
from glassformer.decode.engine_cuda import GraphEngine
from glassformer.decode.engine_int8 import int4_linear, int8_linear
from glassformer.errors import ConfigError
from glassformer.nn.block import Stack
from glassformer.nn.taps import Tapped


def fingerprint(model: nn.Module) -> tuple[tuple[int, int], ...]:
    """Changes whenever a parameter is replaced, or written to in place by anything but its `.data`."""
    return tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in model.parameters())


def is_watched(model: nn.Module) -> bool:
    return any(module.listeners for module in model.modules() if isinstance(module, Tapped))


def linear_maker(name: str, model: nn.Module) -> MakeLinear:
    weight = next(model.parameters())
    if weight.device.type != "cpu":
        raise ConfigError(f'decode.engine="{name}" is for a CPU, and the model is on {weight.device.type}; use "plain"')
    if name == "fast":
        return transposed_linear
    if weight.dtype != torch.float32:
        raise ConfigError(f'decode.engine="{name}" starts from float32 weights, and this model has {weight.dtype}')
    return int8_linear if name == "int8" else int4_linear


ENGINES: weakref.WeakKeyDictionary[nn.Module, dict[str, tuple[Any, Engine | GraphEngine]]] = weakref.WeakKeyDictionary()


def kept(model: Any, name: str, make: Callable[[], Engine | GraphEngine]) -> Any:
    """The model's engine of this name: made once, and again when weights have changed."""
    now = fingerprint(model)
    made = ENGINES.setdefault(model, {})
    if name not in made or made[name][0] != now:
        made[name] = (now, make())
    return made[name][1]


def prepared(model: Any, name: str) -> Any:
    """What stands for the model while a search asks it for scores: the model itself, or an engine for the CPU."""
    c = model.config
    if name in ("auto", "plain", "graph") or is_watched(model) or (c.pruned_heads and c.kv_heads < c.n_head):
        return model
    kind = TransformerEngine if hasattr(model, "encode") else GPTEngine
    return kept(model, name, lambda: kind(model, linear_maker(name, model)))


def graph_engine(model: Any, config: DecodeConfig) -> GraphEngine | None:
    """The engine that decodes by itself, where the config asks for it or leaves the choice open on a CUDA device."""
    wanted = config.engine == "graph" or (config.engine == "auto" and next(model.parameters()).is_cuda)
    is_ours = isinstance(getattr(model, "decoder", None), Stack) and not model.config.pruned_heads
    if not wanted or not is_ours or is_watched(model):
        return None
    return kept(model, f"graph {config.precision}", lambda: GraphEngine(model, config.precision))
