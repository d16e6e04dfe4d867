"""What answers by default is the model that people look at: `engine=auto` writes what `engine=plain` writes, whatever was done to
the model from outside. Caught: an engine that reads the weights of a module and passes over what the module does with them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrize

from glassformer import Translator, load
from glassformer.config import DecodeConfig
from glassformer.decode import generate_batch, translate_batch
from glassformer.models.weights import weight_checksum
from glassformer.nn import MultiHeadAttention
from glassformer.nn.attention import fused_attention
from glassformer.nn.block import DecoderLayer
from glassformer.nn.feedforward import MLP
from glassformer.nn.lora import add_lora
from tests.laws.test_decoding_cache import same, some_texts
from tests.laws.zoo import small
from tests.small_runs import small_run

Change = Callable[[Any], Any]


class HalvedMLP(MLP):
    """A feed-forward layer that somebody wrote themselves."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * super().forward(x)


class ReversedLayer(DecoderLayer):
    """A block that somebody wrote themselves."""

    def forward(self, x: Tensor, *given: Any, **named: Any) -> Tensor:
        return -super().forward(x, *given, **named)


class SharpAttention(MultiHeadAttention):
    """An attention that somebody wrote themselves."""

    def queries(self, x: Tensor, rotation: Any = None) -> Tensor:
        return 5 * super().queries(x, rotation)


class Doubled(nn.Module):
    """A parametrization: the weight twice."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def last(model: Any) -> Any:
    return model.decoder.layers[-1]


def become(module: nn.Module, kind: type) -> None:
    module.__class__ = kind


def swap_norm(model: Any) -> None:
    class Identity(nn.Module):
        def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
            return x

    last(model).mlp_norm = Identity()


def own_forward(model: Any) -> None:
    mlp = last(model).mlp
    mlp.forward = MethodType(lambda self, x: -type(self).forward(self, x), mlp)


def sharper_kernel(model: Any) -> None:
    last(model).attention.kernel = lambda q, k, v, mask, **options: fused_attention(5 * q, k, v, mask, **options)


def trained_lora(model: Any) -> None:
    add_lora(model, 2, 4.0, ["*.query", "*.value"])
    for name, parameter in model.named_parameters():
        if "lora" in name:
            nn.init.normal_(parameter, std=0.5)
    model.double()


def through_everything(model: Any) -> None:
    """Every module's output by a hook of torch for all modules; taken away by the test."""
    model.undo = register_module_forward_hook(
        lambda module, inputs, out: 0.5 * out if type(module) is MLP else None
    ).remove


CHANGES: dict[str, Change] = {
    "forward hook": lambda m: last(m).mlp.register_forward_hook(lambda module, inputs, out: 0 * out),
    "forward hook on a linear layer": lambda m: last(m).attention.out.register_forward_hook(
        lambda module, inputs, out: -out
    ),
    "forward hook on an embedding": lambda m: (
        m.target_table.register_forward_hook(lambda module, inputs, out: out.flip(-1))
        if hasattr(m, "encoder")
        else m.embedding.register_forward_hook(lambda module, inputs, out: out.flip(-1))
    ),
    "forward pre-hook": lambda m: last(m).mlp.register_forward_pre_hook(lambda module, inputs: (-inputs[0],)),
    "hook of every module": through_everything,
    "tap": lambda m: last(m).hooks.setdefault("residual", []).append(lambda value: -value),
    "subclassed block": lambda m: become(last(m), ReversedLayer),
    "subclassed attention": lambda m: become(last(m).attention, SharpAttention),
    "subclassed feed-forward": lambda m: become(last(m).mlp, HalvedMLP),
    "forward of its own": own_forward,
    "another kernel": sharper_kernel,
    "swapped norm": swap_norm,
    "parametrization": lambda m: parametrize.register_parametrization(last(m).attention.value, "weight", Doubled()),
    "LoRA": trained_lora,
}


BEAM: dict[str, Any] = {"beam": 3, "n_best": 3}  # it has all that a greedy search has


def decoded(model: Any, engine: str, search: dict[str, Any]) -> Any:
    decode = translate_batch if hasattr(model, "encoder") else generate_batch
    config = DecodeConfig(**search, max_new_tokens=8, min_new_tokens=4, no_repeat_ngram=2, engine=engine)
    return decode(model, some_texts([4, 7, 1, 5], seed=2), config)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_auto_is_plain(family: str, name: str) -> None:
    model = small(family, seed=1, tie_output=False)
    before = decoded(model, "auto", BEAM)
    model.undo = lambda: None
    with torch.no_grad():
        CHANGES[name](model)
    try:
        plain = decoded(model, "plain", BEAM)
        assert not same_ids(plain, before), "the change changes nothing, and the test would see nothing"
        assert same(decoded(model, "auto", BEAM), plain)
    finally:
        model.undo()


def same_ids(first: Any, second: Any) -> bool:
    return [[h.ids for h in row] for row in first] == [[h.ids for h in row] for row in second]


@pytest.mark.parametrize("family", ["transformer", "gpt"])
@pytest.mark.parametrize("pruned", [("decoder.1.attention:0",), ("decoder.0.attention:1", "decoder.1.attention:0")])
def test_auto_is_plain_with_pruned_heads(family: str, pruned: tuple[str, ...]) -> None:
    for heads in ({}, {"n_kv_head": 2}):
        model = small(family, seed=1, pruned_heads=pruned, **heads)
        assert same(decoded(model, "auto", {"beam": 3}), decoded(model, "plain", {"beam": 3}))


def test_a_backward_hook_is_listening_too() -> None:
    """It sees gradients alone, but an answer that went another way would have none to show."""
    from glassformer.nn.known import is_as_built

    model = small("gpt")
    assert is_as_built(model)
    handle = last(model).mlp.register_full_backward_hook(lambda *given: None)
    assert not is_as_built(model)
    handle.remove()
    assert is_as_built(model)


def test_training_parts_are_no_strangers() -> None:
    """What accelerate() installs for training steps aside in evaluation: the fast engine still answers."""
    from glassformer.accel import accelerate
    from glassformer.nn.known import is_as_built

    for options in ({"compiled": True}, {"short_rows": 64}, {"float8": True}):
        model = accelerate(small("transformer", n_embd=32, n_head=2), **options)  # type: ignore[arg-type]
        assert is_as_built(model), options


def test_checksums_of_one_model_can_be_compared() -> None:
    """They are where the weights are, before a model is handed out and afterwards; torch compares nothing across devices, so a
    model that had answered on a GPU and was looked at afterwards answered no more. Broken variant: an empty one on the CPU."""
    model = small("gpt").to("meta")
    for handed_out in (False, True):
        model.handed_out = handed_out
        checksum = weight_checksum(model)
        assert checksum.device.type == "meta" and checksum.dtype == torch.int64 and bool(checksum.numel()) == handed_out


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["fast", "int8"])
def test_weights_that_nobody_holds_are_not_looked_at(engine: str, tmp_path: Path) -> None:
    """Until the model is asked for nobody can change it; from then on a change is seen, however it is made, also by one who
    asked long ago. Broken variants: a look at every weight for every answer; `model.model` that hands it out without a note."""
    model, texts = load(small_run(tmp_path, "pairs", steps=2).path, task="translate"), ["eins zwei drei", "vier"]
    before = model.translate(texts, engine=engine)
    assert not weight_checksum(model._model).numel(), "an answer is no reason to look"
    held = model.model
    assert weight_checksum(held).numel()
    for factor in (-1.0, 0.5):
        with torch.inference_mode():
            held.target_table.weight.data.mul_(factor)
        fresh = Translator(copy.deepcopy(held), model.tokenizers, model.recipe).translate(texts, engine=engine)
        assert model.translate(texts, engine=engine) == fresh != before
